"""An input as pieces: what goes through the model for it, once or many times.

A chunked pipeline makes several rows of one input: a piece of a long text, or a text beside each
label. All rows of a batch share forwards; then each input gets its own rows back, in its order.

Laws
- Rows of a batch are sorted by length and cut into forwards in which at most half is padding. What
  a forward holds is bounded, however many rows one input makes.
- Nobody's rows are ever another's, and rows of padding are never handed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.worker.interface import Foreign
from service.worker.pipelines.stock import Payload

FORWARD_UNITS = 4096
"""Padded tokens of one forward, where an input makes more rows than one: as many as a device can
use at once. A CPU is busy with a tenth of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """One prepared input.

    Attributes:
        rows: what goes through the model, at least one.
        call: the parameters by the stock call's names.
        fixed: forward parameters that preparing has decided.
    """

    rows: tuple[Payload, ...]
    call: Mapping[str, Any]
    fixed: Mapping[str, Any]

    @property
    def length(self) -> int:
        """Tokens of the first row."""
        return self.rows[0].length

    @property
    def units(self) -> int:
        """Tokens of all rows."""
        return sum(row.length for row in self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """Where a row belongs: item and place in it."""

    item: int
    place: int
    payload: Payload


def forwards(items: Sequence[Pieces]) -> Iterator[list[Row]]:
    """The rows of a batch, cut into forwards, the longest first."""
    rows = [
        Row(item, place, payload)
        for item, pieces in enumerate(items)
        for place, payload in enumerate(pieces.rows)
    ]
    if len(rows) == len(items):
        yield rows  # the batch was chosen for this
        return
    rows.sort(key=lambda row: -row.payload.length)
    group: list[Row] = []
    for row in rows:
        longest = group[0].payload.length if group else row.payload.length
        full = (len(group) + 1) * longest > FORWARD_UNITS
        if group and (full or 2 * row.payload.length < longest):
            yield group
            group = []
        group.append(row)
    yield group


def divided(groups: Sequence[list[Row]], group: list[Row]) -> list[list[Row]]:
    """A forward ran out of memory: its halves, and what waits in parts of no more rows.

    Args:
        groups: what waits, the next one last; their rows are no longer than those of ``group``.
        group: what ran out, of several rows.
    """
    most = (len(group) + 1) // 2
    return [
        waiting[max(0, end - most) : end]
        for waiting in (*groups, group)
        for end in range(len(waiting), 0, -most)
    ]


def in_order(items: Sequence[Pieces]) -> list[list[Foreign]]:
    """An empty place for each row's outputs."""
    return [[None] * len(pieces.rows) for pieces in items]
