"""The packaged model under overload, what batching by length gains, and what a refusal costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import psutil

from service.bench.client import Client
from service.bench.figures import make_point
from service.bench.load import Span, open_loop
from service.bench.options import Options
from service.bench.record import REFUSED, Tally
from service.bench.report import Capacity, Point
from service.bench.retries import Retries
from service.bench.schedule import Arrivals, Lengths, Segment, make_schedule
from service.bench.texts import Texts
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
from tests.e2e.load import Call
from tests.e2e.server import Server

COLUMN = "packaged model"
CLOSED_CONNECTIONS = 64
CAPACITY_S, DEEP_S, RATE_S = 15.0, 20.0, 12.0
FILLING_S = 5.0
TENFOLD = 10.0

REFUSALS_RPS = 1400.0
"""Ten times what ``synthetic:gpu`` can do."""

REFUSALS_S = 6.0
HOLD_MS = 30_000


@dataclass(frozen=True, slots=True)
class Packaged:
    """What was measured with the packaged model."""

    closed: Capacity
    deep: Capacity
    fifo: Capacity
    points: list[Point]

    def rows(self) -> list[Row]:
        """Against the targets."""
        return [
            Row("goodput at 10x / closed-loop capacity (64 connections)", COLUMN,
                median(point.goodput_of_capacity for point in self.points),
                Unit.SHARE, least=0.80),
            Row("capacity / that with plain FIFO batches of 32", COLUMN,
                self.deep.rps / self.fifo.rps, Unit.TIMES, least=3.0),
        ]  # fmt: skip


def packaged(pace: Pace) -> Packaged:
    """Capacities with every limit lifted, so that nobody is refused; overload with the defaults."""
    with Server() as usual:
        batch_ms = round(1000 * usual.status()["limits"]["batch_s"])
        flags = (*NO_LIMITS, "--batch-ms", str(batch_ms), "--watchdog-ms", "600000")
        with Server(*flags) as lifted:
            closed = _closed(lifted, CLOSED_CONNECTIONS, CAPACITY_S * pace.shorter)
            deep = _closed(lifted, DEEP_CONNECTIONS, DEEP_S * pace.shorter)
        points = run(lambda: _overload(plain_options(usual), pace, closed))
    with variant("fifo-32", *flags) as server:
        fifo = _closed(server, DEEP_CONNECTIONS, DEEP_S * pace.shorter)
    return Packaged(closed, deep, fifo, points)


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


# ---------------------------------------------------------------- what a refusal costs


def refusal_rows() -> list[Row]:
    """The front's CPU for one refusal: the worker is held, the one place taken, all are refused."""
    flags = ("--model", "synthetic:cpu", "--rehearsal", "--queue-limit", "1", "--watchdog-ms",
             "600000", "--deadline-ms", str(2 * HOLD_MS))  # fmt: skip
    with Server(*flags) as server:
        hold = Call("one two three", {"X-Rehearse-Fault": f"slow={HOLD_MS}"})
        server.send(hold)
        server.wait_running()
        server.send(Call("four five six"))
        server.wait_depth(1)
        options = plain_options(server)
        refused: list[int] = []
        idle = _front_cpu_s(server, lambda: time.sleep(REFUSALS_S))
        busy = _front_cpu_s(server, lambda: refused.append(run(lambda: _refuse(options))))
    own_us, kernel_us = (1e6 * (b - i) / refused[0] for b, i in zip(busy, idle, strict=True))
    return [
        Row("front CPU of one refusal", COLUMN, own_us + kernel_us, Unit.MICROSECONDS, most=100.0),
        Row("of that in the kernel", COLUMN, kernel_us, Unit.MICROSECONDS),
    ]


def _front_cpu_s(server: Server, during: Callable[[], None]) -> tuple[float, float]:
    """CPU time of the front meanwhile: its own, and the kernel's on its behalf."""
    process = psutil.Process(server.pid)
    before = process.cpu_times()
    during()
    after = process.cpu_times()
    return after.user - before.user, after.system - before.system


async def _refuse(options: Options) -> int:
    calls = make_schedule(
        [Segment(REFUSALS_S, REFUSALS_RPS)], Arrivals.POISSON, Lengths(), None, seed=1
    )
    client = Client(options.address, {})
    tally = Tally()
    try:
        phase = await open_loop(
            client, calls, Texts("", 1), span=Span(REFUSALS_S, 0.0, 5.0, 1),
            retries=Retries(), tally=tally,
        )  # fmt: skip
    finally:
        client.close()
    refused = sum(one.status == REFUSED for one in phase.attempts)
    if refused != len(phase.attempts):
        raise RuntimeError("something was not refused")
    return refused
