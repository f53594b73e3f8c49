"""An input as pieces: what goes through the model for it, once or many times.

A chunked pipeline makes several rows of one input: a piece of a long text or sound, or a text
beside each label. All rows of a batch share forwards; then each input gets its own rows back, in
its order.

Laws
- Rows that are padded are sorted by length and cut into forwards in which at most half is padding.
  Others share a forward only with rows of their shape.
- What a forward holds is bounded, however many rows one input makes.
- Nobody's rows are ever another's, and rows of padding are never handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

FORWARD_UNITS = 4096
"""Padded tokens of one forward, where an input makes more rows than one: as many as a device can
use at once. A CPU is busy with a tenth of it."""


class Measured(Protocol):
    """What goes through the model at once."""

    @property
    def length(self) -> int:
        """Its size, in units."""
        ...

    @property
    def nbytes(self) -> int:
        """What it costs to keep."""
        ...


R = TypeVar("R", bound=Measured)


@dataclass(frozen=True, slots=True, eq=False)
class Pieces(Generic[R]):
    """One prepared input.

    Attributes:
        rows: what goes through the model, at least one.
        call: the parameters by the stock call's names.
        fixed: forward parameters that preparing has decided.
    """

    rows: tuple[R, ...]
    call: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Units of the first row."""
        return self.rows[0].length

    @property
    def units(self) -> int:
        """Units of all rows."""
        return sum(row.length for row in self.rows)

    @property
    def nbytes(self) -> int:
        """What all rows cost to keep."""
        return sum(row.nbytes for row in self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class Row(Generic[R]):
    """Where a row belongs: item and place in it."""

    item: int
    place: int
    payload: R


def placed(items: Sequence[Pieces[R]]) -> list[Row[R]]:
    """All rows of a batch, in order."""
    return [
        Row(item, place, payload)
        for item, pieces in enumerate(items)
        for place, payload in enumerate(pieces.rows)
    ]


def forwards(items: Sequence[Pieces[R]]) -> Iterator[list[Row[R]]]:
    """The rows of a batch, to be padded, cut into forwards, the longest first."""
    rows = placed(items)
    if len(rows) == len(items):
        yield rows  # the batch was chosen for this
        return
    rows.sort(key=lambda row: -row.payload.length)
    group: list[Row[R]] = []
    for row in rows:
        longest = group[0].payload.length if group else row.payload.length
        full = (len(group) + 1) * longest > FORWARD_UNITS
        if group and (full or 2 * row.payload.length < longest):
            yield group
            group = []
        group.append(row)
    yield group


def alike(
    items: Sequence[Pieces[R]], shape: Callable[[R], str], most_units: int
) -> Iterator[list[Row[R]]]:
    """The rows of a batch, cut into forwards of one shape each.

    Args:
        items: the batch.
        shape: what rows of one forward agree in; without one, a row is alone.
        most_units: of a forward, where an input makes more rows than one.
    """
    shapes: dict[str, list[Row[R]]] = {}
    for row in placed(items):
        named = shape(row.payload) or f"{row.item} {row.place}"
        shapes.setdefault(named, []).append(row)
    lone = all(len(pieces.rows) == 1 for pieces in items)
    for rows in shapes.values():
        # A batch of one row each was chosen by its size; rows of one input were not.
        most = len(rows) if lone else max(1, most_units // rows[0].payload.length)
        yield from (rows[start : start + most] for start in range(0, len(rows), most))


def divided(groups: Sequence[list[Row[R]]], group: list[Row[R]]) -> list[list[Row[R]]]:
    """A forward ran out of memory: its halves, and what waits in parts of no more rows.

    Args:
        groups: what waits, the next one last; with as many rows it would hardly fit either.
        group: what ran out, of several rows.
    """
    most = (len(group) + 1) // 2
    return [
        waiting[max(0, end - most) : end]
        for waiting in (*groups, group)
        for end in range(len(waiting), 0, -most)
    ]
