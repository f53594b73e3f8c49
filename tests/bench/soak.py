"""An hour of load: does anything grow?

``python -m tests.bench.soak [--minutes M] [--quick] [--paper FILE]``

Minute by minute the default server with the packaged model gets 0.8 of its capacity, and three
times its capacity for six seconds in between; clients come and go with it. Every five seconds the
memory and the descriptors of the front and of each worker are read.

Law
- Flat: what a straight line through the samples after the first quarter rises until the end is at
  most a fiftieth of the mean, or 4 MiB or 8 descriptors where that is more. In the front a leak of
  ten bytes for each request would show.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import linear_regression, mean, median

import psutil

from service.bench.command import raise_file_limit
from service.bench.figures import make_point
from service.bench.report import Capacity, Point
from service.bench.run import machine
from service.bench.schedule import Segment
from tests.bench.live import write_between
from tests.bench.live_ladder import asking, plain_options, run
from tests.bench.live_packaged import all_ready
from tests.bench.live_rows import Row, Unit, markdown, table
from tests.bench.speed_offline import LENGTHS
from tests.e2e.server import Server, wait_for
from tests.tools import ROOT

PROGRAM = "python -m tests.bench.soak"
PAPER = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"
COLUMN = "packaged model"

STEADY, BURST = 0.8, 3.0
STRETCHES = ((27.0, STEADY), (6.0, BURST), (27.0, STEADY))
"""Seconds and multiples of the capacity: one minute."""

SAMPLE_S, CAPACITY_S = 5.0, 15.0
SHARE, LEAST_MIB, LEAST_DESCRIPTORS = 0.02, 4.0, 8.0
MIB = 2**20

TOLD = ("ok", "queue_full", "overloaded", "deadline_exceeded", "deadline_too_short")
"""The ends that a burst may have."""


class Quiet(Server):
    """A server whose log is counted by level and dropped once it runs: an hour of it is large."""

    def __init__(self, *flags: str) -> None:
        self.levels: Counter[str] = Counter()
        super().__init__(*flags)

    def _read(self) -> None:
        stream = self.process.stdout
        for line in stream or ():
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                self.levels[found.get("level", "")] += 1
                if not found.get("event", "").startswith("request."):
                    self.lines.append(found)


@dataclass(slots=True)
class Series:
    """One quantity over time.

    Attributes:
        what: for people.
        unit: how it is written.
        least: a rise up to this is none.
        times: seconds from the start.
        values: one for each.
    """

    what: str
    unit: Unit
    least: float
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def note(self, at_s: float, value: float) -> None:
        """One more sample."""
        self.times.append(at_s)
        self.values.append(value)

    @property
    def late(self) -> tuple[list[float], list[float]]:
        """The samples after the first quarter."""
        begin = self.times[0] + (self.times[-1] - self.times[0]) / 4
        first = next(index for index, at_s in enumerate(self.times) if at_s >= begin)
        return self.times[first:], self.values[first:]

    @property
    def rise(self) -> float:
        """What the line through them rises from the first to the last."""
        times, values = self.late
        return linear_regression(times, values).slope * (times[-1] - times[0])

    @property
    def allowed(self) -> float:
        """The largest rise that counts as flat."""
        return max(SHARE * mean(self.late[1]), self.least)


@dataclass(slots=True)
class Watch:
    """Reads a server's processes."""

    server: Server
    series: dict[str, Series] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def look(self) -> None:
        """One sample of everything."""
        at_s = time.monotonic() - self.started
        front = psutil.Process(self.server.pid)
        named = [("front", front)]
        named += [(f"worker {number}", one) for number, one in enumerate(front.children(), 1)]
        for name, process in named:
            with process.oneshot():
                memory, descriptors = process.memory_info().rss / MIB, process.num_fds()
            self._note(f"{name}, resident", Unit.MEBIBYTES, LEAST_MIB, at_s, memory)
            self._note(f"{name}, descriptors", Unit.NUMBER, LEAST_DESCRIPTORS, at_s, descriptors)

    def _note(self, what: str, unit: Unit, least: float, at_s: float, value: float) -> None:
        self.series.setdefault(what, Series(what, unit, least)).note(at_s, value)

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Look every few seconds meanwhile."""

        async def again() -> None:
            while True:
                self.look()
                await asyncio.sleep(SAMPLE_S)

        task = asyncio.create_task(again())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def main(arguments: list[str]) -> int:
    """Soak; returns 0 if everything is flat, else 1."""
    given = _parse(arguments)
    raise_file_limit()
    started = time.monotonic()
    with Quiet("--workers", "auto") as server:
        wait_for(lambda: all_ready(server), "all workers")
        watch = Watch(server)
        before = [one.pid for one in server.children()]
        points, capacity = run(lambda: _soak(server, watch, given.minutes))
        rows = _rows(points, capacity)
        same = before == [one.pid for one in server.children()]
        rows += [
            Row("workers that were replaced", COLUMN, float(not same), Unit.NUMBER, most=0),
            Row("log lines of level error", COLUMN,
                server.levels["error"] + server.levels["critical"], Unit.NUMBER, most=0),
        ]  # fmt: skip
    how = (
        f"Measured with `{' '.join((PROGRAM, *arguments))}` in"
        f" {(time.monotonic() - started) / 60:.0f} minutes on {machine().cpus} CPUs:"
        f" {given.minutes} minutes, each with 54 s at {STEADY:g} and 6 s at {BURST:g} times"
        f" {capacity.rps:.0f} requests/s, sampled every {SAMPLE_S:g} s."
    )
    flat = all(one.rise <= one.allowed for one in watch.series.values())
    text = f"{how}\n\n{growth(list(watch.series.values()))}\n\n{markdown(rows)}"
    sys.stdout.write(text + "\n")
    if given.paper is not None:
        write_between(given.paper, BEGIN, END, text)
    return 0 if flat and all(row.good for row in rows) else 1


async def _soak(server: Server, watch: Watch, minutes: int) -> tuple[list[Point], Capacity]:
    options = replace(
        plain_options(server), capacity_s=CAPACITY_S, words_median=LENGTHS.median,
        words_sigma=LENGTHS.sigma, words_min=LENGTHS.least, words_max=LENGTHS.most,
    )  # fmt: skip
    points = []
    async with asking(options) as bench:
        capacity = await bench.closed()
        segments = [Segment(seconds, times * capacity.rps) for seconds, times in STRETCHES]
        async with watch.looking():
            for minute in range(minutes):
                phase = await bench.offer(f"minute {minute + 1}", segments, seed=minute)
                points.append(make_point(f"minute {minute + 1}", capacity.rps, phase, capacity))
        watch.look()
    return points, capacity


def _rows(points: Sequence[Point], capacity: Capacity) -> list[Row]:
    """How it served: what was asked and answered, and the end beside the beginning."""
    codes: Counter[str] = Counter()
    for point in points:
        codes.update(point.outcomes)
    told = sum(codes[code] for code in TOLD)
    quarter = max(1, len(points) // 4)
    first, last = (
        median(point.goodput_rps for point in some)
        for some in (points[quarter : 2 * quarter] or points, points[-quarter:])
    )
    return [
        Row("requests", COLUMN, sum(codes.values()), Unit.NUMBER),
        Row("of these answered", COLUMN, codes["ok"] / sum(codes.values()), Unit.PERCENT),
        Row("neither answered nor refused for load or time", COLUMN, sum(codes.values()) - told,
            Unit.NUMBER, most=0),
        Row("goodput / capacity", COLUMN,
            median(point.goodput_rps for point in points) / capacity.rps, Unit.SHARE),
        Row("goodput of the last quarter / of the second", COLUMN, last / first, Unit.SHARE,
            least=0.9),
    ]  # fmt: skip


def growth(series: Sequence[Series]) -> str:
    """Each quantity with its verdict."""
    heads = ("what", "at first", "after a quarter", "at the end", "most", "rise since the quarter",
             "allowed", "verdict")  # fmt: skip
    lines = []
    for one in series:
        late = one.late[1]
        figures = (one.values[0], late[0], one.values[-1], max(one.values))
        cells = [one.unit.write(value) for value in figures]
        signed = ("+" if one.rise >= 0 else "") + f"{one.rise:.2f}"
        verdict = "flat" if one.rise <= one.allowed else "**grows**"
        lines.append((one.what, *cells, signed, f"{one.allowed:.2f}", verdict))
    return table(heads, lines)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, default=60, help="of load (60)")
    parser.add_argument("--quick", action="store_true", help="a look: two minutes")
    parser.add_argument("--paper", type=Path, help="the paper to write into")
    given = parser.parse_args(arguments)
    if given.quick:
        given.minutes = 2
    elif given.paper is None:
        given.paper = PAPER
    return given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
