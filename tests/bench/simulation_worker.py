"""A worker in virtual time: the synthetic pipeline itself, whose sleep is a timer of the loop.

It stands behind the ``Worker`` protocol. Facts, counting of words, service times with their noise
and stragglers are the pipeline's own; only the process, the wire and the waiting are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from service.worker.interface import PreparedInput
from service.worker.synthetic import SyntheticPipeline
from service.worker.wire import Facts, Prepared, Ready, Result, WireItem
from service.workers import Loss, WorkerEvents, WorkerState
from tests.bench.simulation_device import Device


@dataclass(frozen=True, slots=True)
class Ran:
    """One batch that came back: when it started, how long it took, whom it was for."""

    started: float
    seconds: float
    items: tuple[int, ...]


class SimulatedWorker:
    """One worker whose model takes as long as its service model says.

    Args:
        events: the dispatcher.
        device: what it stands for.
        seed: of the noise.
        fit_error: the warm-up measured so many times what is true.
        slowness: the factor on a batch that starts now.
        stall_s: how much longer still that batch takes.

    Attributes:
        batches: every batch that came back, in order.
    """

    index = 0
    pid: int | None = 1

    def __init__(
        self,
        events: WorkerEvents,
        device: Device,
        *,
        seed: int,
        fit_error: float,
        slowness: Callable[[], float],
        stall_s: Callable[[], float],
    ) -> None:
        self.state = WorkerState.STARTING
        self.facts: Facts | None = None
        self.batches: list[Ran] = []
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._fit_error = fit_error
        self._slowness = slowness
        self._stall_s = stall_s
        self._slept = 0.0
        self._held: dict[int, PreparedInput] = {}
        self._pipeline = SyntheticPipeline(
            device.model, device.times, seed=seed, sleep=self._note_sleep
        )

    def start(self) -> None:
        self._loop.call_soon(self._ready)

    def prepare(self, item: WireItem) -> None:
        prepared = self._pipeline.prepare(item.inputs, b"", {})
        self._held[item.id] = prepared
        frame = Prepared(item.id, prepared.units, "", 0.0)
        self._loop.call_soon(self._events.received, self, frame)

    def run(self, batch: int, items: Sequence[WireItem]) -> None:
        inputs = [self._held.pop(item.id) for item in items]
        answers = self._pipeline.run(inputs)
        seconds = self._slept * self._slowness() + self._stall_s()
        lengths = [one.units for one in inputs]
        outputs = [msgspec.json.encode(answer) for answer in answers]
        frame = Result(batch, outputs, seconds, sum(lengths), len(lengths) * max(lengths))
        self._loop.call_later(seconds, self._end, frame, tuple(item.id for item in items))

    def drop(self, ids: Sequence[int]) -> None:
        for item_id in ids:
            self._held.pop(item_id, None)

    def probe(self, probe: int) -> None:
        raise AssertionError("a canary in a story without a fault")

    def kill(self, reason: Loss) -> None:
        raise AssertionError(f"killed in a story without a loss: {reason}")

    async def stop(self) -> None:
        self.state = WorkerState.STOPPED
        self.facts = None

    def _ready(self) -> None:
        facts = self._pipeline.facts
        self.facts = msgspec.structs.replace(
            facts,
            cost_fixed_s=facts.cost_fixed_s * self._fit_error,
            cost_unit_s=facts.cost_unit_s * self._fit_error,
        )
        self.state = WorkerState.READY
        self._events.received(self, Ready(self.facts))

    def _note_sleep(self, seconds: float) -> None:
        self._slept = seconds

    def _end(self, frame: Result, items: tuple[int, ...]) -> None:
        now = self._loop.time()
        self.batches.append(Ran(now - frame.seconds, frame.seconds, items))
        self._events.received(self, frame)
