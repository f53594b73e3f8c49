"""The pool: every worker's seat, and what each one runs next.

A slot runs one thing at a time: a batch, or a canary. What is next is the core's decision: the
steps of a recovery first, then a canary that is due, then the next batch from the queue.

Laws
- A worker that is free and has something to do starts it in the same step of the loop: no timer.
- A batch is watched: past its limit the worker is killed, and the loss ends its items.
- Whoever leaves the queue into a batch stands in ``Slot.members`` until it has its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from service.core.admission import rest_of_batch
from service.core.batching import LOOK_AHEAD, Pick, pick
from service.core.errors import Stage
from service.core.isolation import CanaryStep, RunStep
from service.core.item import Item, ItemState
from service.core.memory import MemoryBudget, padded_units
from service.core.queue import BoundedQueue
from service.dispatcher.circuit import Circuit
from service.dispatcher.slots import Batch, Plan, Slot, ticket_of, wire_bytes, wire_item
from service.dispatcher.tickets import Ticket
from service.metrics import Metrics
from service.worker.framing import MAX_FRAME
from service.workers import Loss, Worker

FRAME_BYTES = MAX_FRAME * 3 // 4
"""Most bytes of a batch of several: it goes to the worker in one frame."""


class Pool:
    """Every slot, and the rules that feed it.

    Args:
        queue: where work waits.
        metrics: where waits and gaps are counted.
        clock: the one clock.
        on_step: called after every change, so that the fill is accounted.

    Attributes:
        queue: where work waits.
        slots: one for each worker, by its index.
        plan: costs and limits, once the first worker is ready.
        budget: the memory budget.
        circuit: the breaker; set right after construction, since each needs the other.
    """

    circuit: Circuit

    def __init__(
        self,
        queue: BoundedQueue,
        metrics: Metrics,
        clock: Callable[[], float],
        on_step: Callable[[], None],
    ) -> None:
        self.slots: list[Slot] = []
        self.plan: Plan | None = None
        self.budget = MemoryBudget()
        self.queue = queue
        self._metrics = metrics
        self._clock = clock
        self._on_step = on_step
        self._ids = count(1)

    def ready_slots(self) -> list[Slot]:
        """Slots whose worker is ready."""
        return [slot for slot in self.slots if slot.ready]

    @property
    def any_idle(self) -> bool:
        """Whether a worker could take a batch now; one that owes a PREPARED may stand still."""
        return any(slot.idle and not slot.preparing for slot in self.slots)

    def slot_of(self, worker: Worker) -> Slot:
        """The seat of ``worker``."""
        return self.slots[worker.index]

    def rests(self, now: float) -> list[float]:
        """For each ready worker, the predicted seconds until it is free."""
        return [self._rest_s(slot, now) for slot in self.slots if slot.ready]

    def _rest_s(self, slot: Slot, now: float) -> float:
        rest_s = (
            rest_of_batch(now, slot.expected_end) if slot.running else self._stalled_s(slot, now)
        )
        return rest_s if slot.recovery is None else rest_s + self._recovery_s(slot)

    def _stalled_s(self, slot: Slot, now: float) -> float:
        """What an overdue item in preparation says: no batch runs, and none can begin without it.

        As with an overdue batch: as long again.
        """
        item = next(iter(slot.preparing.values()), None)
        if item is None or self.plan is None:
            return 0.0
        return max(0.0, now - slot.heard - self.plan.cost.prepare_s(item.weight))

    def _recovery_s(self, slot: Slot) -> float:
        """What a recovery has still to run, beside what runs now."""
        if self.plan is None or slot.recovery is None:
            return 0.0
        running = {item.id for item in slot.recovery.running}
        left = [item for item in slot.recovery.open if item.id not in running]
        return self.plan.cost.batch_s(padded_units(left)) if left else 0.0

    def batch_budget(self) -> float:
        """Most padded units of a batch: the smaller of the time's and the memory's."""
        if self.plan is None:
            return 0.0
        cost = self.plan.cost
        seconds = self.plan.limits.batch_time(cost.batch_s(0.0))
        return min(self.budget.limit(cost.padded_within(seconds)), self.plan.most_units)

    def feed(self) -> None:
        """Give every free worker its next step."""
        for slot in self.slots:
            self._feed(slot)
        self._on_step()

    def _feed(self, slot: Slot) -> None:
        if not slot.ready or slot.running:
            return
        if slot.recovery is not None:
            step = slot.recovery.next_step()
            if isinstance(step, RunStep):
                self._run(slot, step.items)
                return
            if isinstance(step, CanaryStep):
                self._probe(slot)
                return
            slot.settle()
        if self.circuit.due:
            self.circuit.sent(self._clock())
            self._probe(slot)
        elif not self.circuit.open:
            self._next_batch(slot)

    def _next_batch(self, slot: Slot) -> None:
        now = self._clock()
        items = self._choose(now)
        if not items:
            slot.hungry_since = None
            return
        if slot.hungry_since is not None:
            self._metrics.batch_gap(now - slot.hungry_since)
            slot.hungry_since = None
        for item in items:
            waited = self.queue.start(item, now)
            self._metrics.queue_wait(waited)
            self._metrics.stage_seconds("queue", waited)
        slot.members = items
        slot.generation = self.circuit.generation
        self._run(slot, items)

    def _choose(self, now: float) -> tuple[Item, ...]:
        """The next batch, empty if nothing can run; whoever cannot make it any more is told so."""
        while self.plan is not None:
            waiting = self.queue.waiting(LOOK_AHEAD + 1)
            choice = pick(
                waiting,
                now,
                cost=self.plan.cost,
                budget=self.batch_budget(),
                most=self.circuit.batch_limit if self.plan.batchable else 1,
                others=len(self.queue) - len(waiting),
            )
            late = self._late(choice)
            for ticket in late:
                ticket.late(Stage.QUEUED)
            # A request that is late has taken all of its list with it.
            items = tuple(item for item in choice.items if item in self.queue)
            if items or not late:
                return _within_frame(items)
        return ()

    def _late(self, choice: Pick) -> list[Ticket]:
        """The requests to drop. Never the last one: it runs, or a wrong estimator never learns."""
        late = list(dict.fromkeys(ticket_of(item) for item in choice.doomed))
        all_late = all(ticket_of(item) in late for item in choice.items)
        if late and all_late and all(ticket_of(item) in late for item in self.queue):
            late.remove(ticket_of((*choice.doomed, *choice.items)[-1]))
        return late

    def _run(self, slot: Slot, items: tuple[Item, ...]) -> None:
        if self.plan is None:
            raise RuntimeError("a batch before the first worker was ready")
        padded = padded_units(items)
        predicted = self.plan.cost.batch_s(padded)
        slot.batch = Batch(next(self._ids), items, predicted, self._clock())
        slot.expected_end = slot.batch.started + predicted
        self._watch(slot, self.plan.limits.watchdog(predicted))
        slot.worker.run(slot.batch.id, [wire_item(item) for item in items])

    def _probe(self, slot: Slot) -> None:
        slot.probe = next(self._ids)
        if self.plan is not None:
            predicted = self.plan.cost.batch_s(0.0)
            slot.expected_end = self._clock() + predicted
            self._watch(slot, self.plan.limits.watchdog(predicted))
        slot.worker.probe(slot.probe)

    def _watch(self, slot: Slot, seconds: float) -> None:
        slot.watch = asyncio.get_running_loop().call_later(seconds, self._hung, slot)

    def _hung(self, slot: Slot) -> None:
        slot.watch = None
        slot.worker.kill(Loss.HUNG)

    def end_batch(self, slot: Slot) -> float:
        """What the slot ran came back; returns the time."""
        slot.unwatch()
        slot.batch = slot.probe = None
        slot.heard = now = self._clock()
        slot.hungry_since = now if self.queue.waiting(1) else None
        return now

    def vacate(self, slot: Slot) -> tuple[list[Item], list[Item]]:
        """The worker is gone: empty its seat.

        Returns:
            The items that it owed an end, and those of the batch that ran just then.
        """
        batch = slot.batch
        slot.unwatch()
        if batch is not None:
            self._metrics.failed_batch(self._clock() - batch.started)
        owed = [item for item in slot.members if item.state is ItemState.RUNNING]
        slot.batch = slot.probe = slot.hungry_since = None
        slot.leave_preparing()
        slot.recovery, slot.members, slot.splits, slot.failures = None, (), 0, 0
        return owed, list(batch.items) if batch else []


def _within_frame(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """As many of the first items as one frame holds, one at the least."""
    total = 0
    for number, item in enumerate(items):
        total += wire_bytes(item)
        if number and total > FRAME_BYTES:
            return items[:number]
    return items
