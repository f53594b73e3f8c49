"""A ticket: an admitted request on the front's side, from its places in the queue to its one end.

Laws
- Exactly one outcome: the first of answer, refusal, deadline and leaving wins, the rest is ignored.
- Every waiter is its own timer: at the deadline the client is told then, not when the batch ends.
  A fired timer *is* the event; nothing compares the time again.
- When it ends, whatever the way, its items that still wait leave the queue at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from service.core.admission import Ask
from service.core.errors import FieldError, Problem, Refused, Stage, at_stage, problem
from service.core.item import Item, ItemState


@dataclass(frozen=True, slots=True)
class Reply:
    """The answers of one request.

    Attributes:
        outputs: JSON bytes, one for each input, in order.
        queue_s: the longest wait of its items.
        infer_s: the longest time of a batch that held one of them.
        batch_items: the size of the last such batch.
        units: of all items together; tokens, for text. What ran as a suspect is estimated.
    """

    outputs: tuple[bytes, ...]
    queue_s: float
    infer_s: float
    batch_items: int
    units: int


class Ticket:
    """One admitted request.

    Args:
        ask: the request.
        timeout_s: seconds until its deadline.
        allowed_s: what the deadline is called before the client.
        loop: the event loop, for the deadline's timer.
        on_end: called once, at the end, to withdraw what still waits.
        on_out: called once, when it has ended and none of its items runs any more.
    """

    def __init__(
        self,
        ask: Ask,
        timeout_s: float,
        allowed_s: float,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[Ticket], None],
        on_out: Callable[[Ticket], None],
    ) -> None:
        self.ask = ask
        self.items: list[Item] = []
        self._outputs: list[bytes | None] = [None] * len(ask.inputs)
        self._missing = len(ask.inputs)
        self._out = False
        self._infer_s = 0.0
        self._batch_items = 0
        self._allowed_ms = round(allowed_s * 1000)
        self._end: asyncio.Future[Reply | Problem | Stage] = loop.create_future()
        self._on_end = on_end
        self._on_out = on_out
        self._timer = loop.call_later(max(0.0, timeout_s), self._expire)

    @property
    def open(self) -> bool:
        """Whether the request still waits for its end."""
        return not self._end.done()

    @property
    def running(self) -> bool:
        """Whether one of its items is in a batch (also after its end)."""
        return any(item.state is ItemState.RUNNING for item in self.items)

    @property
    def stage(self) -> Stage:
        """How far it has come."""
        states = {item.state for item in self.items}
        if ItemState.RUNNING in states:
            return Stage.RUNNING
        if ItemState.WAITING in states:
            return Stage.QUEUED
        return Stage.PREPARE if ItemState.PREPARING in states else Stage.RESPOND

    async def wait(self) -> Reply:
        """The answers.

        Raises:
            Refused: with the problem that ended the request.
        """
        end = await asyncio.shield(self._end)
        if isinstance(end, Reply):
            return end
        raise Refused(end if isinstance(end, Problem) else problem("client_gone", stage=end))

    def leave(self) -> Stage:
        """The client is gone: withdraw what waits; returns the stage it was in."""
        stage = self.stage
        self._finish(stage)
        return stage

    def answer(self, item: Item, output: bytes, infer_s: float, batch_items: int) -> None:
        """One item has its answer (JSON bytes); the last one ends the request."""
        if not self.open or self._outputs[item.index] is not None:
            return
        self._outputs[item.index] = output
        self._missing -= 1
        self._infer_s = max(self._infer_s, infer_s)
        self._batch_items = batch_items
        if self._missing == 0:
            waits = (i.started - i.arrived for i in self.items)
            outputs = tuple(output for output in self._outputs if output is not None)
            units = round(sum(item.units for item in self.items))
            self._finish(Reply(outputs, max(waits), self._infer_s, self._batch_items, units))

    def refuse(self, refusal: Problem, item: Item | None = None) -> None:
        """End the request with ``refusal``; ``item`` is the one at fault, named for a list."""
        if item is not None and self.ask.is_list and not refusal.errors:
            refusal = refusal._replace(errors=(FieldError(self.pointer(item), refusal.detail),))
        self._finish(refusal)

    def pointer(self, item: Item) -> str:
        """The JSON pointer of one of its items in the request's body."""
        return f"/inputs/{item.index}" if self.ask.is_list else "/inputs"

    def late(self, stage: Stage) -> None:
        """Its deadline has passed, or cannot be kept any more."""
        detail = f"The deadline of {self._allowed_ms} ms passed before the answer was there."
        self._finish(at_stage(problem("deadline_exceeded", detail), stage))

    def _expire(self) -> None:
        self.late(self.stage)

    def _finish(self, end: Reply | Problem | Stage) -> None:
        if self._end.done():
            return
        self._end.set_result(end)
        self._timer.cancel()
        self._on_end(self)
        self.check_out()

    def check_out(self) -> None:
        """One of its items is done: when all are and it has ended, it is out of the house."""
        if not self.open and not self._out and not self.running:
            self._out = True
            self._on_out(self)
