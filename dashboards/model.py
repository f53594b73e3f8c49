"""What a dashboard is made of, as plain values that know nothing of Grafana's JSON.

Laws
- A panel asks one question, and says what it means when it moves and what to do first.
- An id belongs to its panel for ever: links to a single panel go by it.
- A limit that a metric exports is drawn from that metric, never from a number written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """How a panel shows its answer."""

    TILES = "stat"
    LINES = "timeseries"
    STATES = "state-timeline"
    TABLE = "table"


class Unit(StrEnum):
    """Grafana's names of the units in use."""

    COUNT = "short"
    PER_SECOND = "cps"
    REQUESTS = "reqps"
    SECONDS = "s"
    SHARE = "percentunit"
    SINCE = "dateTimeFromNow"
    TOKENS = "locale"


class Look(StrEnum):
    """How the series of one query are drawn."""

    LINE = "line"
    AREA = "area"
    STACK = "stack"
    BARS = "bars"
    LIMIT = "limit"


Steps = tuple[tuple[float, str], ...]
"""Colours from a value on; below the first one it is green."""


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel.

    Attributes:
        expr: PromQL without job and instance, ``[R]`` for the range (``promql.scoped``).
        legend: the name of its series, with labels in double braces.
        look: how they are drawn.
        color: one fixed colour for all of them.
        right: the unit of an axis of its own, on the right.
        steps: thresholds of its own (tiles).
        exemplars: ask for the traces behind the numbers too.
    """

    expr: str
    legend: str
    look: Look = Look.LINE
    color: str = ""
    right: Unit | None = None
    steps: Steps = ()
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: the field that it shows, and how; its width in pixels."""

    source: str
    title: str
    unit: Unit | None = None
    words: Mapping[float, str] = field(default_factory=dict)
    width: int | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """One question and its answer.

    Attributes:
        id: stable and unique.
        title: a few words.
        question: what it answers.
        moves: what it means when it moves.
        first: what to do first.
        runbook: the heading of the operations paper to read on at, as an anchor.
        queries: the expressions.
        unit: of the left axis or the values.
        width: of 24.
        kind: how the answer is shown.
        steps: thresholds, a dashed line each in a graph.
        colors: fixed colours of series by name.
        families: one colour's shades for the series whose names match a pattern.
        most: the top of the left axis, at least.
        empty: what stands there when there is nothing to show.
        words: names of values, with their colours (states).
        columns: of a table, in order.
        interval: the smallest step; for bars, so that ranges do not overlap much.
    """

    id: int
    title: str
    question: str
    moves: str
    first: str
    runbook: str
    queries: tuple[Query, ...]
    unit: Unit = Unit.COUNT
    width: int = 8
    kind: Kind = Kind.LINES
    steps: Steps = ()
    colors: Mapping[str, str] = field(default_factory=dict)
    families: Mapping[str, str] = field(default_factory=dict)
    most: float | None = None
    empty: str = "No replica"
    words: Mapping[float, tuple[str, str]] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    interval: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading.

    Attributes:
        id: stable and unique among rows and panels.
        title: the heading.
        height: of each of its panels, in grid units.
        panels: from left to right, wrapped at 24.
    """

    id: int
    title: str
    height: int
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment drawn over every graph.

    Attributes:
        name: what it is called.
        expr: PromQL as in a query; wherever it has a value there is a mark.
        title: the text, with labels in double braces.
        color: of the mark.
        at_value: the value is the moment, in milliseconds.
    """

    name: str
    expr: str
    title: str
    color: str
    at_value: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Everything."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    marks: tuple[Mark, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Every panel, in reading order."""
        return tuple(panel for row in self.rows for panel in row.panels)
