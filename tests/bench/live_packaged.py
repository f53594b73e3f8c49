"""The packaged model under overload, and what batching by length gains."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from statistics import mean

import psutil

from service.bench.figures import make_point
from service.bench.record import Phase
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
CAPACITY_S, DEEP_S, RATE_S = 8.0, 8.0, 12.0
FILLING_S = 3.0
PAIRS = 7
"""Short ones: the speed of a machine that is shared drifts by a fifth within a minute."""

TENFOLD = 10.0


@dataclass(frozen=True, slots=True)
class Round:
    """Overload between two halves of a capacity: the speed of a shared machine drifts.

    Attributes:
        closed: the mean of the two.
        point: ten times the first of them; its goodput is a share of the mean.
        taken_cores: what front and generator took meanwhile, of the cores that the workers had.
    """

    closed: Capacity
    point: Point
    taken_cores: float


@dataclass(frozen=True, slots=True)
class Packaged:
    """What was measured with the packaged model.

    Attributes:
        rounds: overload beside capacity.
        deep, fifo: the same load right after each other, again and again.
    """

    rounds: list[Round]
    deep: list[Capacity]
    fifo: list[Capacity]

    @property
    def points(self) -> list[Point]:
        """The rates of the ladder: there is just one."""
        return [one.point for one in self.rounds]

    def rows(self) -> list[Row]:
        """Against the targets."""
        cores = len(os.sched_getaffinity(0))
        shares = [one.point.goodput_of_capacity or 0.0 for one in self.rounds]
        left = [
            share / (1 - one.taken_cores / cores)
            for share, one in zip(shares, self.rounds, strict=True)
        ]
        return [
            Row("goodput at 10x / closed-loop capacity (64 connections)", COLUMN, median(shares),
                Unit.SHARE, least=0.80),
            Row("cores that front and generator took at 10x", COLUMN,
                median(one.taken_cores for one in self.rounds), Unit.SHARE),
            Row("goodput at 10x / that capacity on the cores that they left", COLUMN,
                median(left), Unit.SHARE),
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
            rounds = [_round(usual, lifted, pace, seed) for seed in pace.seeds]
            deep, fifo = [], []
            with variant("fifo-32", *AUTO, *flags) as oldest:
                wait_for(lambda: all_ready(oldest), "all workers")
                for _ in range(PAIRS):
                    deep.append(_closed(lifted, DEEP_CONNECTIONS, DEEP_S * pace.shorter))
                    fifo.append(_closed(oldest, DEEP_CONNECTIONS, DEEP_S * pace.shorter))
    return Packaged(rounds, deep, fifo)


def _round(usual: Server, lifted: Server, pace: Pace, seed: int) -> Round:
    before = _closed(lifted, CLOSED_CONNECTIONS, CAPACITY_S * pace.shorter)
    phase, taken = _overload(usual, pace, before.rps, seed)
    after = _closed(lifted, CLOSED_CONNECTIONS, CAPACITY_S * pace.shorter)
    words = [closed.words_rps or 0.0 for closed in (before, after)]
    closed = Capacity(
        rps=mean((before.rps, after.rps)), words_rps=mean(words), how="before and after"
    )
    return Round(closed, make_point("10x", TENFOLD * before.rps, phase, closed), taken)


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


def _overload(usual: Server, pace: Pace, capacity_rps: float, seed: int) -> tuple[Phase, float]:
    """Ten times the capacity, and the cores that front and generator took for it."""
    seconds = RATE_S * pace.shorter

    async def offer() -> tuple[Phase, float]:
        async with asking(plain_options(usual)) as bench:
            await bench.offer("warm-up", [Segment(3.0, capacity_rps)], seed=0)
            started, used = time.monotonic(), _used_s(usual)
            phase = await bench.offer(
                f"10x seed {seed}",
                [Segment(seconds, TENFOLD * capacity_rps)],
                warmup_s=seconds / 8,
                seed=seed,
            )
            return phase, (_used_s(usual) - used) / (time.monotonic() - started)

    return run(offer)
