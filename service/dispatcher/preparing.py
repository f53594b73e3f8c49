"""Preparing: every item is tokenised by a worker before it can join a batch.

The worker with the shortest line gets it; what comes back is its true length and batch key, or why
it does not fit. Prepared items are a cache of the worker, never state: any worker can run any item.

Laws
- A worker answers each PREPARE once and in order, also for items that left meanwhile. So the first
  of ``Slot.preparing`` is the one that it has in hand.
- A worker that answers nothing for as long as a hung batch may take is killed: an input that stops
  the tokeniser must not leave a service that looks well and serves nobody. While it runs a batch or
  a canary that one's own watchdog rules, since a model may keep the tokeniser waiting.
- A suspect is prepared within its own lone run and not before, and nothing else is prepared beside
  it: a kill is then its own.
- An item that nobody prepares, since its worker is gone, goes to another or to the next one ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from service.core.errors import problem
from service.core.item import Item, ItemState
from service.dispatcher.pool import Pool
from service.dispatcher.slots import MOST_UNITS, Plan, Slot, refusal_of, ticket_of, wire_item
from service.logs import get_log
from service.metrics import Metrics
from service.worker.wire import Prepared, Unfit
from service.workers import Loss

_UNKNOWN = "?"
"""The batch key of an item that runs alone anyway."""


class Preparing:
    """The items that are being prepared, on every worker.

    Args:
        pool: the workers' seats and the queue.
        metrics: where the time is counted.
        clock: the one clock.
    """

    def __init__(self, pool: Pool, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._queue = pool.queue
        self._metrics = metrics
        self._clock = clock

    def prepare(self, item: Item) -> None:
        """Have the item tokenised by the worker with the shortest line."""
        ready = [slot for slot in self._pool.ready_slots() if not slot.runs_suspect]
        if item.alone:
            self._queue.prepared(item, item.units, _UNKNOWN)
            self._pool.feed()
            return
        if not ready:
            return  # it waits for the next worker that is ready, or for the end of that run
        slot = min(ready, key=lambda slot: len(slot.preparing))
        if not slot.preparing:
            slot.heard = self._clock()
        slot.preparing[item.id] = item
        slot.worker.prepare(wire_item(item))
        if slot.prepare_watch is None:
            self._watch(slot, self._patience_s(slot))

    def prepare_rest(self) -> None:
        """Have those prepared whose worker is gone."""
        if self._pool.ready_slots():
            held = {item_id for slot in self._pool.slots for item_id in slot.preparing}
            for item in list(self._queue):
                if item.state is ItemState.PREPARING and item.id not in held:
                    self.prepare(item)

    def forget(self, ids: Sequence[int]) -> None:
        """These items left the queue without being run."""
        for slot in self._pool.ready_slots():
            slot.worker.drop(ids)

    def prepared(self, slot: Slot, frame: Prepared) -> None:
        """An item is tokenised: it may be run now."""
        if not 0 <= frame.units <= MOST_UNITS:
            slot.broken()
            return
        item = self._answered(slot, frame.id)
        if item is None:
            slot.worker.drop([frame.id])
            return
        if self._pool.plan is not None:
            self._learn(self._pool.plan, item, frame)
        self._metrics.stage_seconds("prepare", self._clock() - item.arrived)
        self._queue.prepared(item, float(frame.units), frame.key)
        self._pool.feed()

    def _learn(self, plan: Plan, item: Item, frame: Prepared) -> None:
        """What a character makes: of the text once, without what is generated behind it."""
        ask = ticket_of(item).ask
        units = max(0.0, frame.units - ask.steps * plan.step_units) / ask.times
        plan.cost.learn_item(item.weight, units, frame.seconds)

    def unfit(self, slot: Slot, frame: Unfit) -> None:
        """An item cannot be run: its request ends."""
        item = self._answered(slot, frame.id)
        if item is None:
            return
        ticket = ticket_of(item)
        if frame.code == "invalid_input":
            pointer = frame.pointer or ticket.pointer(item)
            refusal = refusal_of(frame.code, pointer, frame.message, frame.limit)
        else:
            refusal = problem("model_error")
            trace = frame.trace
            get_log().error(
                "model.error",
                id=ticket.ask.request_id,
                reason="prepare",
                **({"error": trace.error, "frames": trace.frames} if trace else {}),
            )
        ticket.refuse(refusal, item)
        self._pool.feed()

    def _answered(self, slot: Slot, item_id: int) -> Item | None:
        """The item that an answer is for, ``None`` if it left meanwhile or was never asked for."""
        slot.heard = self._clock()
        item = slot.preparing.pop(item_id, None)
        return item if item is not None and item.state is ItemState.PREPARING else None

    # ------------------------------------------------------------------ a tokeniser that hangs

    def _patience_s(self, slot: Slot) -> float:
        if self._pool.plan is None:
            raise RuntimeError("an item before the first worker was ready")
        plan = self._pool.plan
        size = max((item.weight for item in slot.preparing.values()), default=0)
        return plan.limits.watchdog(plan.cost.prepare_s(size))

    def _watch(self, slot: Slot, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        slot.prepare_watch = loop.call_later(seconds, self._look, slot)

    def _look(self, slot: Slot) -> None:
        """One timer for a line of items: it looks when the first could be overdue, then again."""
        slot.prepare_watch = None
        if not slot.preparing:
            return
        patience_s = self._patience_s(slot)
        if slot.running:
            slot.heard = self._clock()
        left_s = slot.heard + patience_s - self._clock()
        if left_s > 0:
            self._watch(slot, left_s)
        else:
            slot.worker.kill(Loss.HUNG)
