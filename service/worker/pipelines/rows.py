"""Rows: what goes through the model at once, put together and taken apart again.

The library stacks tensors along their first dimension and puts everything else in a list; outputs
are taken apart the same way. So it is here, with two differences: only equal shapes are stacked,
and what an output holds that is no row of its own (a list of layers, for example) is not handed on.

Laws
- As many rows come back as went in, or the forward has failed by that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.utils import ModelOutput

from service.worker.interface import Foreign, Mismatch

KEEP_BYTES = 1024
"""Python's own share in keeping one row."""

NUMBERS_PER_UNIT = 768
"""A patch of 16 x 16 pixels in three colours counts as much as a token."""

_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}
_COARSE = 3e-2
"""Relative to the largest output; half precision rounds otherwise in another shape."""


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """What the stock preprocess made of a medium.

    Attributes:
        made: as it came.
        signature: names, shapes and types; rows that differ in it, or have none, never share a
            forward.
        length: its size, in units.
        tokens: of the longest text in it.
        nbytes: what it costs to keep.
    """

    made: Mapping[str, Any]
    signature: str
    length: int
    tokens: int
    nbytes: int


def split(made: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors, and all else."""
    tensors = {name: part for name, part in made.items() if isinstance(part, torch.Tensor)}
    return tensors, {name: part for name, part in made.items() if name not in tensors}


def row_of(made: Mapping[str, Any]) -> Made:
    """Measure one."""
    tensors, others = split(made)
    parts = [
        f"{name}:{'x'.join(map(str, part.shape))}:{part.dtype}" for name, part in tensors.items()
    ]
    stackable = bool(tensors) and all(part.ndim and len(part) == 1 for part in tensors.values())
    signature = ",".join(sorted([*parts, *others]))
    found = list(_tensors(made))
    numbers = sum(part.numel() for _, part in found if part.is_floating_point())
    texts = [part for name, part in found if name == "input_ids"]
    units = numbers // NUMBERS_PER_UNIT + sum(part.numel() for part in texts)
    return Made(
        made,
        signature.replace("torch.", "") if stackable else "",
        max(1, units),
        max((part.shape[-1] for part in texts), default=0),
        KEEP_BYTES + sum(part.nbytes for _, part in found),
    )


def _tensors(value: Foreign, name: str = "") -> list[tuple[str, torch.Tensor]]:
    """All tensors in it, however deep, with the name that they stand under."""
    if isinstance(value, torch.Tensor):
        return [(name, value)]
    if hasattr(value, "items"):
        return [found for key, part in value.items() for found in _tensors(part, key)]
    if isinstance(value, list | tuple):
        return [found for part in value for found in _tensors(part, name)]
    return []


def stacked(rows: Sequence[Made]) -> Foreign:
    """The input of one forward; a fresh container, since the stock forward takes things out."""
    first: Foreign = rows[0].made
    if len(rows) == 1:
        return type(first)(dict(first)) if hasattr(first, "data") else dict(first)
    return {
        name: torch.cat([row.made[name] for row in rows])
        if isinstance(part, torch.Tensor)
        else [row.made[name] for row in rows]
        for name, part in first.items()
    }


def check_rows(outputs: Foreign, rows: int) -> None:
    """Hold what came back of a forward against what went in.

    Raises:
        Mismatch: the model gave another number of rows.
    """
    for value in outputs.values():
        if isinstance(value, torch.Tensor) and value.ndim and len(value) != rows:
            raise Mismatch(len(value), rows)


_NONE_OF_ITS_OWN = object()


def own_row(outputs: Foreign, index: int, rows: int) -> Foreign:
    """What the stock forward would have given for this row alone."""
    found = {}
    for name, value in outputs.items():
        mine = _own(value, index, rows)
        if mine is not _NONE_OF_ITS_OWN:
            found[name] = mine
    return ModelOutput(found) if isinstance(outputs, ModelOutput) else found


def _own(value: Foreign, index: int, rows: int) -> Foreign:
    if value is None:
        return None
    if isinstance(value, torch.Tensor) and value.ndim and len(value) == rows:
        return value[index : index + 1]
    if isinstance(value, ModelOutput | dict):
        return own_row(value, index, rows)
    if isinstance(value, tuple):
        parts = tuple(_own(part, index, rows) for part in value)
        return _NONE_OF_ITS_OWN if any(part is _NONE_OF_ITS_OWN for part in parts) else parts
    if isinstance(value, list) and len(value) == rows:
        return value[index]
    return _NONE_OF_ITS_OWN


def is_equal(one: Foreign, other: Foreign) -> bool:
    """Whether the outputs of a row are those of the other, but for rounding."""
    if isinstance(other, torch.Tensor):
        if one.shape != other.shape:
            return False
        if not other.is_floating_point():
            return bool((one == other).all())
        limit = _TOLERANCE.get(other.dtype, _COARSE) * max(1.0, float(other.abs().max()))
        return bool(((one - other).abs() <= limit).all())
    if hasattr(other, "items"):
        return all(name not in one or is_equal(one[name], part) for name, part in other.items())
    if isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return True
