"""The live benchmark: real servers, real requests, the targets of the service.

``python -m tests.bench.live [--quick] [--seconds S] [--seeds N] [--only PART,...] [--paper FILE]``

=========  ==========================================================================
part       what runs
=========  ==========================================================================
cpu, gpu   ``synthetic:cpu`` and ``synthetic:gpu``: capacity, ladder, trouble
packaged   the packaged model: overload, batching by length against FIFO batches of 32
refusal    the front's CPU for one refusal, beside a bare web server's
=========  ==========================================================================

C is the capacity of the same server with every limit lifted, its usual batch time, and always 320
requests to choose from. A full run takes about 40 minutes and wants the machine for itself; it
writes its figures into the paper between two markers. ``--quick`` shows in ten minutes that
everything works; its figures mean little, and it writes nothing unless a paper is named.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from service.bench.command import raise_file_limit
from service.bench.report import Point
from service.bench.retries import RetryKind
from service.bench.run import machine
from tests.bench.live_ladder import PROFILES, Pace, Profile, climb, deep_capacity, ladder_rows
from tests.bench.live_packaged import packaged
from tests.bench.live_refusal import refusal_rows
from tests.bench.live_rows import Row, Unit, ladder_markdown, markdown, median
from tests.bench.live_trouble import BURSTS, recovery_row, slow_row, wrong_row
from tests.tools import ROOT

PROGRAM = "python -m tests.bench.live"
PAPER = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- live: begin -->", "<!-- live: end -->"
PARTS = ("cpu", "gpu", "packaged", "refusal")
QUICK = Pace(seconds=4.0, seeds=(1,), shorter=0.2)
RETRIES = (RetryKind.NONE, RetryKind.IMMEDIATE, RetryKind.BACKOFF)
WRONG = (100.0, 0.01)


@dataclass(slots=True)
class Found:
    """Everything that was measured."""

    rows: list[Row] = field(default_factory=list)
    ladders: dict[str, list[Point]] = field(default_factory=dict)
    facts: list[str] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """One more figure, shown at once."""
        self.rows.append(row)
        sys.stderr.write(f"  {row.column}: {row.what}: {row.shown} ({row.target})\n")


def main(arguments: list[str]) -> int:
    """Run; returns 0 if every target is met, else 1."""
    given = _parse(arguments)
    pace = QUICK if given.quick else Pace(given.seconds, tuple(range(1, given.seeds + 1)))
    raise_file_limit()
    started = time.monotonic()
    found = Found()
    for profile in PROFILES:
        if profile.name in given.only:
            _synthetic(profile, pace, found)
    if "packaged" in given.only:
        _packaged(pace, found)
    if "refusal" in given.only:
        for row in refusal_rows():
            found.add(row)
    shown = " ".join((PROGRAM, *arguments))
    text = _text(found, pace, shown, time.monotonic() - started)
    sys.stdout.write(text + "\n")
    if given.paper is not None:
        write_between(given.paper, BEGIN, END, text)
    return 0 if all(row.good for row in found.rows) else 1


def _synthetic(profile: Profile, pace: Pace, found: Found) -> None:
    capacity = deep_capacity(profile, pace)
    found.facts.append(
        f"{profile.model}: C = {capacity.rps:.1f} requests/s, D = {profile.deadline_ms} ms"
    )
    points = climb(profile, pace, capacity)
    found.ladders[profile.model] = points
    for row in ladder_rows(profile, points):
        found.add(row)
    for kind in RETRIES:
        found.add(recovery_row(profile, pace, capacity, kind))
    if profile is PROFILES[0]:  # enough to see it once: it takes longer than the others
        found.add(recovery_row(profile, pace, capacity, RetryKind.RETRY_AFTER))
    found.add(slow_row(profile, pace, capacity))
    for factor in WRONG:
        found.add(wrong_row(profile, pace, capacity, factor))


def _packaged(pace: Pace, found: Found) -> None:
    measured = packaged(pace)
    closed = Unit.RATE.write(median(one.closed.rps for one in measured.rounds) or 0.0)
    deep, fifo = (
        Unit.RATE.write(median(one.rps for one in runs)) for runs in (measured.deep, measured.fifo)
    )
    found.facts.append(
        f"packaged model: with every limit lifted {closed} in a closed loop of 64 connections and"
        f" {deep} with 320; {fifo} with 320 and FIFO batches of 32"
    )
    found.ladders["packaged model"] = measured.points
    for row in measured.rows():
        found.add(row)


# ---------------------------------------------------------------- the paper


def _text(found: Found, pace: Pace, command: str, took_s: float) -> str:
    here = machine()
    how = (
        f"Measured with `{command}` in {took_s / 60:.0f} minutes, on {here.cpus} CPUs (quota"
        f" {here.cpu_limit_cores:g} cores) that server, worker and generator share, Python"
        f" {here.python}, which adds ten million numbers in {_adding_s():.2f} s here."
        f" {pace.seconds:g} s for each rate of the ladder; every figure is the median of"
        f" {len(pace.seeds)} runs; recovery counts {BURSTS} bursts together, C is one"
        " long run each."
    )
    parts = [
        how,
        "\n".join(f"- {fact}" for fact in found.facts),
        markdown(found.rows),
    ]
    for name, points in found.ladders.items():
        parts += [f"**{name}**, Poisson arrivals:", ladder_markdown(points)]
    return "\n\n".join(part for part in parts if part)


def _adding_s() -> float:
    """How fast this machine is for Python, since most of the front's time is spent there."""
    started = time.perf_counter()
    total = 0
    for number in range(10_000_000):
        total += number
    return time.perf_counter() - started


def write_between(path: Path, begin: str, end: str, text: str) -> None:
    """Put figures between two markers of a paper; one without them gets them at its end."""
    paper = path.read_text() if path.exists() else "# Performance\n"
    between = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
    if not between.search(paper):
        paper = f"{paper.rstrip()}\n\n{begin}\n{end}\n"
    path.write_text(between.sub(lambda _: f"{begin}\n{text}\n{end}", paper))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a look at everything")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each rate (30)")
    parser.add_argument("--seeds", type=int, default=3, help="of the ladder (3)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS),
                        help=f"some of {','.join(PARTS)}")  # fmt: skip
    parser.add_argument("--paper", type=Path, help="the paper to write into")
    given = parser.parse_args(arguments)
    if given.paper is None and not given.quick and given.only == list(PARTS):
        given.paper = PAPER
    return given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
