"""The ladder: what the synthetic servers do at half their capacity and up to ten times it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import uvloop

from service.bench.client import Address
from service.bench.figures import make_point
from service.bench.options import Options
from service.bench.progress import Progress
from service.bench.report import Capacity, Point
from service.bench.run import Bench, opened
from service.bench.schedule import Segment
from tests.bench.live_rows import Row, Unit, mean, median, side_of
from tests.e2e.server import Server

RATES = (0.5, 1.0, 2.0, 5.0, 10.0)
OVERLOADS = ("2x", "5x", "10x")
WARMUP_S = 2.0

DEEP_WARMUP_S, LEAST_DEEP_S = 7.0, 10.0
"""Until everybody who asked first has his answer; and enough batches to count."""

DEEP_CONNECTIONS = 320
"""More than the batcher looks ahead, so that it never runs out of choice."""

NO_LIMITS = (
    "--deadline-ms", "3600000", "--max-deadline-ms", "3600000", "--max-wait-ms", "3600000",
    "--queue-limit", "100000",
)  # fmt: skip
"""Nothing is refused and nothing is late; with the usual batch time beside it, it is the same
batcher at work on a queue that is always deep."""


@dataclass(frozen=True, slots=True)
class Targets:
    """What must hold on one synthetic server; shares, milliseconds, and parts of D."""

    overload: float
    full: float
    wasted: float
    p99_of_deadline: float
    slow: float
    gap: float


@dataclass(frozen=True, slots=True)
class Profile:
    """One synthetic server and its load."""

    name: str
    model: str
    deadline_ms: int
    words: tuple[float, float, int, int]
    deep_s: float
    targets: Targets

    @property
    def flags(self) -> tuple[str, ...]:
        """Its settings."""
        return ("--model", self.model, "--deadline-ms", str(self.deadline_ms))

    def options(self, server: Server) -> Options:
        """How it is asked."""
        median_words, sigma, least, most = self.words
        return replace(
            plain_options(server),
            words_median=median_words, words_sigma=sigma, words_min=least, words_max=most,
        )  # fmt: skip


PROFILES = (
    Profile(
        "cpu", "synthetic:cpu", 646, (24.0, 0.8, 4, 512), 25.0,
        Targets(0.90, 0.85, 0.02, 0.95, 0.85, 0.02),
    ),
    Profile(
        "gpu", "synthetic:gpu", 1228, (128.0, 0.8, 8, 512), 15.0,
        Targets(0.84, 0.80, 0.03, 1.15, 0.62, 0.05),
    ),
)  # fmt: skip
"""The two service models; the deadlines are 30 and 20 times one run of mean length."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long everything takes.

    Attributes:
        seconds: of each rate on the ladder.
        seeds: of the ladder.
        shorter: 1 for the real thing; a part of it for a look.
    """

    seconds: float
    seeds: tuple[int, ...]
    shorter: float = 1.0


def plain_options(server: Server) -> Options:
    """A server of this run, on loopback."""
    address = Address.parse(server.url)
    return Options(address=address, metrics_address=address)


def asking(options: Options) -> AbstractAsyncContextManager[Bench]:
    """The generator for a server."""
    return opened(options, Progress(sys.stderr))


_T = TypeVar("_T")


def run(main: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run one coroutine on the loop that ``seawall bench`` uses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def deep_capacity(profile: Profile, pace: Pace) -> Capacity:
    """C: what the server's own batcher does with a queue that is always deep and no deadlines."""
    with Server(*profile.flags) as usual:
        batch_ms = round(1000 * usual.status()["limits"]["batch_s"])
    flags = ("--model", profile.model, *NO_LIMITS, "--batch-ms", str(batch_ms))
    with Server(*flags) as server:
        options = replace(
            profile.options(server),
            connections=DEEP_CONNECTIONS,
            capacity_s=max(LEAST_DEEP_S, profile.deep_s * pace.shorter),
        )
        return run(lambda: _deep(options, warmup_s=DEEP_WARMUP_S))


async def _deep(options: Options, warmup_s: float) -> Capacity:
    async with asking(options) as bench:
        return await bench.closed(warmup_s)


def climb(profile: Profile, pace: Pace, capacity: Capacity) -> list[Point]:
    """Every rate with every seed, on one server that has learnt its speed."""
    with Server(*profile.flags) as server:
        return run(lambda: _climb(profile.options(server), pace, capacity))


async def _climb(options: Options, pace: Pace, capacity: Capacity) -> list[Point]:
    points = []
    warmup_s = min(WARMUP_S, pace.seconds / 4)
    async with asking(options) as bench:
        await bench.offer("warm-up", [Segment(3.0, capacity.rps)], seed=0)
        for seed in pace.seeds:
            for times in RATES:
                label, rps = f"{times:g}x", times * capacity.rps
                segments = [Segment(pace.seconds, rps)]
                phase = await bench.offer(
                    f"{label} seed {seed}", segments, warmup_s=warmup_s, seed=seed
                )
                points.append(make_point(label, rps, phase, capacity))
    return points


def ladder_rows(profile: Profile, points: list[Point]) -> list[Row]:
    """The ladder against its targets; each figure is the median over the seeds."""
    targets, column = profile.targets, profile.name
    deadline_ms = profile.deadline_ms

    def at(label: str, figure: Callable[[Point], float | None]) -> float | None:
        return median(figure(point) for point in points if point.label == label)

    def worst(figure: Callable[[Point], float | None], labels: tuple[str, ...]) -> float | None:
        found = [at(label, figure) for label in labels]
        known = [value for value in found if value is not None]
        return max(known) if len(known) == len(found) else None

    everywhere = tuple(f"{times:g}x" for times in RATES)
    rows = [
        Row(f"goodput / C at {label}", column, at(label, lambda p: p.goodput_of_capacity),
            Unit.SHARE, least=targets.overload)
        for label in OVERLOADS
    ]  # fmt: skip
    long = [at(label, lambda p: p.fairness.ratio) for label in OVERLOADS]
    return [
        *rows,
        Row("goodput / C at 1x", column, at("1x", lambda p: p.goodput_of_capacity),
            Unit.SHARE, least=targets.full),
        Row("success at 0.5x", column, at("0.5x", lambda p: p.success_share),
            Unit.FINE_PERCENT, least=0.999),
        Row("wasted model time, worst rate", column,
            worst(lambda p: side_of(p).wasted_share, everywhere),
            Unit.PERCENT, most=targets.wasted),
        Row("refusal p50 at 10x", column, at("10x", lambda p: p.refusal.p50_ms),
            Unit.MILLISECONDS, most=7.0),
        Row("refusal p99 at 10x", column, at("10x", lambda p: p.refusal.p99_ms),
            Unit.MILLISECONDS, most=25.0),
        Row("p99 of successes / D at 2x to 10x, worst", column,
            worst(lambda p: (p.latency.p99_ms or 0.0) / deadline_ms, OVERLOADS),
            Unit.SHARE, most=targets.p99_of_deadline),
        Row("answers later than deadline + 20 ms, worst rate", column,
            worst(lambda p: p.late_share, everywhere), Unit.FINE_PERCENT, most=0.001),
        Row("longest tenth / shortest quarter, mean of 2x to 10x", column,
            mean(long), Unit.SHARE, least=0.75),
        Row("gap between batches at 10x", column, at("10x", lambda p: side_of(p).gap_share),
            Unit.PERCENT, most=targets.gap),
    ]  # fmt: skip
