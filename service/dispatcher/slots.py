"""A slot: one worker's seat in the pool, and the small steps between items, wire and tickets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from math import inf
from typing import cast

from service.core.cost import Cost
from service.core.errors import Problem, invalid, problem
from service.core.isolation import Recovery
from service.core.item import Item, ItemState
from service.core.limits import Limits
from service.dispatcher.tickets import Ticket
from service.logs import get_log
from service.worker.wire import Trace, WireItem
from service.workers import Loss, Worker, WorkerState

MOST_UNITS = 2**40
"""No item or batch is so large; a worker that says so is broken."""

_READY = WorkerState.READY  # asked on every arrival

_WIRE_OVERHEAD = 64
"""Bytes of an item's frame beside its contents: id, lengths, tags."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known once the first worker is ready.

    ``step_units`` is a generated token's cost, ``most_units`` the size of a batch whose answers fit
    one frame.
    """

    cost: Cost
    limits: Limits
    batchable: bool
    step_units: float = 0.0
    most_units: float = inf


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """What a worker runs now."""

    id: int
    items: tuple[Item, ...]
    predicted_s: float
    started: float


@dataclass(slots=True, eq=False)
class Slot:
    """One worker's seat.

    Attributes:
        batch: what it runs now; ``probe`` is the canary's number instead.
        expected_end: when what it runs now should be back.
        recovery: the failed batch that it is working off.
        members: every item that this worker owes an end: the batch it took from the queue.
        trace: where the last failed batch failed, for the log.
        splits: splits of the recovery that were counted already.
        generation: the breaker's, when ``members`` were taken.
        failures: batches in a row that failed together with their canary.
        watch: the watchdog's timer.
        preparing: items that it was given to tokenise and has not answered, by id, in order.
        heard: when it answered one last, or its line or its batch began or ended.
        prepare_watch: the timer that looks after ``preparing``.
        hungry_since: since when it has been idle although work waited.
    """

    worker: Worker
    batch: Batch | None = None
    probe: int | None = None
    expected_end: float = 0.0
    recovery: Recovery | None = None
    members: tuple[Item, ...] = ()
    trace: Trace | None = None
    splits: int = 0
    generation: int = 0
    failures: int = 0
    watch: asyncio.TimerHandle | None = None
    preparing: dict[int, Item] = field(default_factory=dict)
    heard: float = 0.0
    prepare_watch: asyncio.TimerHandle | None = None
    hungry_since: float | None = None

    @property
    def ready(self) -> bool:
        """Whether its worker can take something at all."""
        return self.worker.state is _READY

    @property
    def running(self) -> bool:
        """Whether its worker runs a batch or a canary."""
        return self.batch is not None or self.probe is not None

    @property
    def idle(self) -> bool:
        """Whether its worker could take a batch now."""
        return self.ready and not self.running and self.recovery is None

    @property
    def runs_suspect(self) -> bool:
        """Whether it runs an input by itself that may have killed a worker."""
        return self.batch is not None and self.batch.items[0].alone

    def unwatch(self) -> None:
        """Call the watchdog off."""
        if self.watch is not None:
            self.watch.cancel()
            self.watch = None

    def broken(self) -> None:
        """Its worker broke the protocol: whatever it says next is worth nothing."""
        get_log().error("worker.broken", worker=self.worker.index)
        self.leave_preparing()  # what it had in hand is not to blame
        self.worker.kill(Loss.CRASHED)

    def leave_preparing(self) -> None:
        """Nothing that it was given to tokenise comes back any more."""
        self.preparing.clear()
        if self.prepare_watch is not None:
            self.prepare_watch.cancel()
            self.prepare_watch = None

    def settle(self) -> None:
        """A recovery is over: whoever was skipped (its client is gone) is done too."""
        for item in self.members:
            if item.state is ItemState.RUNNING:
                retire(item)
        self.recovery, self.members, self.splits = None, (), 0


def retire(item: Item) -> None:
    """An item's run is over, with or without an answer."""
    item.move(ItemState.DONE)
    ticket_of(item).check_out()


def ticket_of(item: Item) -> Ticket:
    """The request that the item belongs to (the core does not look inside)."""
    return cast("Ticket", item.owner)


def wire_item(item: Item) -> WireItem:
    """The item as it goes to a worker."""
    return WireItem(item.id, item.inputs, item.parameters, item.rehearse, item.media)


def wire_bytes(item: Item) -> int:
    """At most so many bytes go to a worker for it (a character has at most four in UTF-8)."""
    chars = len(item.inputs)
    text = chars if item.inputs.isascii() else 4 * chars
    return text + len(item.parameters) + len(item.media) + len(item.rehearse) + _WIRE_OVERHEAD


def refusal_of(
    code: str,
    pointer: str,
    message: str = "",
    limit: int = 0,
    retry_after_s: float | None = None,
) -> Problem:
    """The end of one item as its client reads it; ``pointer`` is the place in the body at fault."""
    if code == "invalid_input":
        return invalid(pointer, message or "send an input that fits the task", limit=limit or None)
    return problem(code, limit=limit or None, retry_after_s=retry_after_s)
