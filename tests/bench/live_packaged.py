"""The packaged model under overload, and what batching by length gains."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace

import psutil

from service.bench.figures import make_point
from service.bench.options import Options
from service.bench.report import Capacity, Point
from service.bench.schedule import Segment
from tests.bench.live_ladder import (
    DEEP_CONNECTIONS,
    LEAST_DEEP_S,
    NO_LIMITS,
    Pace,
    asking,
    plain_options,
    run,
)
from tests.bench.live_rows import Row, Unit, median
from tests.bench.live_trouble import variant
from tests.e2e.server import Server, wait_for

AUTO = ("--workers", "auto")

COLUMN = "packaged model"
CLOSED_CONNECTIONS = 64
CAPACITY_S, DEEP_S, RATE_S = 15.0, 8.0, 12.0
FILLING_S = 3.0
PAIRS = 7
"""Short ones: the speed of a machine that is shared drifts by a fifth within a minute."""

TENFOLD = 10.0


@dataclass(frozen=True, slots=True)
class Packaged:
    """What was measured with the packaged model."""

    closed: Capacity
    deep: list[Capacity]
    fifo: list[Capacity]
    """The same load right after each other, again and again: the machine's speed drifts."""
    points: list[Point]
    taken_cores: float
    """What front and generator took meanwhile, of the cores that the workers had before."""

    def rows(self) -> list[Row]:
        """Against the targets."""
        share = median(point.goodput_of_capacity for point in self.points) or 0.0
        left = 1 - self.taken_cores / len(os.sched_getaffinity(0))
        return [
            Row("goodput at 10x / closed-loop capacity (64 connections)", COLUMN, share,
                Unit.SHARE, least=0.80),
            Row("cores that front and generator took at 10x", COLUMN, self.taken_cores,
                Unit.SHARE),
            Row("goodput at 10x / that capacity on the cores that they left", COLUMN,
                share / left, Unit.SHARE),
            Row("capacity / that with plain FIFO batches of 32", COLUMN,
                median(ours.rps / theirs.rps
                       for ours, theirs in zip(self.deep, self.fifo, strict=True)),
                Unit.TIMES, least=3.0),
        ]  # fmt: skip


def packaged(pace: Pace) -> Packaged:
    """Capacities with every limit lifted, so that nobody is refused; overload with the defaults."""
    with Server(*AUTO) as usual:
        wait_for(lambda: all_ready(usual), "all workers")
        flags = (*NO_LIMITS, "--watchdog-ms", "600000")
        with Server(*AUTO, *flags) as lifted:
            wait_for(lambda: all_ready(lifted), "all workers")
            closed = _closed(lifted, CLOSED_CONNECTIONS, CAPACITY_S * pace.shorter)
            deep, fifo = [], []
            with variant("fifo-32", *AUTO, *flags) as oldest:
                wait_for(lambda: all_ready(oldest), "all workers")
                for _ in range(PAIRS):
                    deep.append(_closed(lifted, DEEP_CONNECTIONS, DEEP_S * pace.shorter))
                    fifo.append(_closed(oldest, DEEP_CONNECTIONS, DEEP_S * pace.shorter))
        started, before = time.monotonic(), _used_s(usual)
        points = run(lambda: _overload(plain_options(usual), pace, closed))
        taken = (_used_s(usual) - before) / (time.monotonic() - started)
    return Packaged(closed, deep, fifo, points, taken)


def _used_s(server: Server) -> float:
    """CPU seconds of the front and of this process, which is the generator."""
    times = [process.cpu_times() for process in (psutil.Process(server.pid), psutil.Process())]
    return sum(one.user + one.system for one in times)


def all_ready(server: Server) -> bool:
    """Whether every worker that it wants is there."""
    workers = server.status()["workers"]
    return all(worker["state"] == "ready" for worker in workers)


def _closed(server: Server, connections: int, seconds: float) -> Capacity:
    options = replace(
        plain_options(server), connections=connections, capacity_s=max(LEAST_DEEP_S, seconds)
    )

    async def measure() -> Capacity:
        async with asking(options) as bench:
            return await bench.closed(FILLING_S)

    return run(measure)


async def _overload(options: Options, pace: Pace, closed: Capacity) -> list[Point]:
    points = []
    rps, seconds = TENFOLD * closed.rps, RATE_S * pace.shorter
    async with asking(options) as bench:
        await bench.offer("warm-up", [Segment(3.0, closed.rps)], seed=0)
        for seed in pace.seeds:
            phase = await bench.offer(
                f"10x seed {seed}", [Segment(seconds, rps)], warmup_s=seconds / 8, seed=seed
            )
            points.append(make_point("10x", rps, phase, closed))
    return points
