"""What the live benchmark found, against its targets, as a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from service.bench.report import Point, ServerSide


class Unit(Enum):
    """How a value is written: digits after the point, and what stands behind it."""

    SHARE = (1.0, 2, "")
    PERCENT = (100.0, 1, " %")
    FINE_PERCENT = (100.0, 2, " %")
    MILLISECONDS = (1.0, 1, " ms")
    MICROSECONDS = (1.0, 0, " µs")
    SECONDS = (1.0, 2, " s")
    TIMES = (1.0, 1, " x")
    RATE = (1.0, 1, " /s")
    NUMBER = (1.0, 0, "")
    MEBIBYTES = (1.0, 0, " MiB")
    TINY = (1e6, 2, "e-6")

    def write(self, value: float | None) -> str:
        """A value for people."""
        if value is None:
            return "–"
        scale, digits, behind = self.value
        return f"{scale * value:.{digits}f}{behind}"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        what: its name, the same for every server it is measured on.
        column: the server.
        value: what was measured; ``None``: it never came.
        unit: how it is written.
        least: it must be at least this.
        most: it must be at most this.
    """

    what: str
    column: str
    value: float | None
    unit: Unit
    least: float | None = None
    most: float | None = None

    @property
    def good(self) -> bool:
        """Whether the target is met; what has none is only shown."""
        if self.value is None:
            return self.least is None and self.most is None
        above = self.least is None or self.value >= self.least
        return above and (self.most is None or self.value <= self.most)

    @property
    def target(self) -> str:
        """The target for people."""
        if self.least is not None:
            return f"≥ {self.unit.write(self.least)}"
        return f"≤ {self.unit.write(self.most)}" if self.most is not None else ""

    @property
    def shown(self) -> str:
        """The value for people; one that misses its target says so."""
        text = self.unit.write(self.value)
        return text if self.good else f"**{text}** (missed)"


def median(values: Iterable[float | None]) -> float | None:
    """The median of what is there, ``None`` if something is missing."""
    found = list(values)
    known = [value for value in found if value is not None]
    return statistics.median(known) if known and len(known) == len(found) else None


def mean(values: Iterable[float | None]) -> float | None:
    """The mean, ``None`` if something is missing."""
    found = list(values)
    known = [value for value in found if value is not None]
    return statistics.mean(known) if known and len(known) == len(found) else None


def side_of(point: Point) -> ServerSide:
    """The server's side of a point.

    Raises:
        ValueError: its metrics could not be read.
    """
    if point.server is None:
        raise ValueError("the server's metrics could not be read")
    return point.server


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of anything."""
    head = ("| " + " | ".join(heads) + " |", "|---" * len(heads) + "|")
    return "\n".join((*head, *("| " + " | ".join(line) + " |" for line in lines)))


def markdown(rows: Sequence[Row]) -> str:
    """A table: a line for each figure, target and value for each server."""
    columns = list(dict.fromkeys(row.column for row in rows))
    cells = {(row.what, row.column): row for row in rows}
    heads = ["figure", *(head for column in columns for head in (f"{column} target", column))]
    lines = []
    for what in dict.fromkeys(row.what for row in rows):
        line = [what]
        for column in columns:
            row = cells.get((what, column))
            line += [row.target, row.shown] if row else ["", ""]
        lines.append(line)
    return table(heads, lines)


def ladder_markdown(points: Sequence[Point]) -> str:
    """Every rate that was offered, each figure the median over the seeds."""
    heads = (
        "offered", "goodput / C", "words / C", "success", "p50", "p99", "503 p50", "503 p99",
        "late", "wasted", "batch", "padding", "gaps", "long / short",
    )  # fmt: skip
    lines = []
    for label in dict.fromkeys(point.label for point in points):
        same = [point for point in points if point.label == label]
        sides = [side_of(point) for point in same]
        cells = (
            Unit.SHARE.write(median(p.goodput_of_capacity for p in same)),
            Unit.SHARE.write(median(p.goodput_words_of_capacity for p in same)),
            Unit.PERCENT.write(median(p.success_share for p in same)),
            Unit.MILLISECONDS.write(median(p.latency.p50_ms for p in same)),
            Unit.MILLISECONDS.write(median(p.latency.p99_ms for p in same)),
            Unit.MILLISECONDS.write(median(p.refusal.p50_ms for p in same)),
            Unit.MILLISECONDS.write(median(p.refusal.p99_ms for p in same)),
            Unit.FINE_PERCENT.write(median(p.late_share for p in same)),
            Unit.PERCENT.write(median(side.wasted_share for side in sides)),
            Unit.TIMES.write(median(side.batch_items for side in sides)).removesuffix(" x"),
            Unit.PERCENT.write(median(side.padding_share for side in sides)),
            Unit.PERCENT.write(median(side.gap_share for side in sides)),
            Unit.SHARE.write(median(p.fairness.ratio for p in same)),
        )
        lines.append((label, *cells))
    return table(heads, lines)
