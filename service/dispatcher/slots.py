"""A slot: one worker's seat in the pool, and the small steps between items, wire and tickets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

from service.core.cost import Cost
from service.core.errors import Problem, invalid, problem
from service.core.isolation import Recovery
from service.core.item import Item, ItemState
from service.core.limits import Limits
from service.dispatcher.tickets import Ticket
from service.worker.wire import Trace, WireItem
from service.workers import Worker, WorkerState


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known once the first worker is ready."""

    cost: Cost
    limits: Limits
    batchable: bool


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
        recovery: the failed batch that it is working off.
        members: every item that this worker owes an end: the batch it took from the queue.
        trace: where the last failed batch failed, for the log.
        splits: splits of the recovery that were counted already.
        generation: the breaker's, when ``members`` were taken.
        watch: the watchdog's timer.
        preparing: items that it tokenises, by id.
        hungry_since: since when it has been idle although work waited.
    """

    worker: Worker
    batch: Batch | None = None
    probe: int | None = None
    recovery: Recovery | None = None
    members: tuple[Item, ...] = ()
    trace: Trace | None = None
    splits: int = 0
    generation: int = 0
    watch: asyncio.TimerHandle | None = None
    preparing: dict[int, Item] = field(default_factory=dict)
    hungry_since: float | None = None

    @property
    def ready(self) -> bool:
        """Whether its worker can take something at all."""
        return self.worker.state is WorkerState.READY

    @property
    def idle(self) -> bool:
        """Whether its worker could take a batch now."""
        return self.ready and self.batch is None and self.probe is None and self.recovery is None

    def unwatch(self) -> None:
        """Call the watchdog off."""
        if self.watch is not None:
            self.watch.cancel()
            self.watch = None

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


def refusal_of(code: str, pointer: str, message: str = "", limit: int = 0) -> Problem:
    """The end of one item as its client reads it; ``pointer`` is the item's place in the body."""
    if code == "invalid_input":
        return invalid(pointer, message or "send an input that fits the task", limit=limit or None)
    return problem(code, limit=limit or None)
