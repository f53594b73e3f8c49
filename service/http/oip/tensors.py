"""Tensors as bytes: the binary extension of the protocol.

A BYTES tensor is its elements, each behind its length as four bytes, little-endian; an FP32 tensor
is its numbers, four bytes each, little-endian. Row after row in both.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable

_LENGTH = struct.Struct("<I")


class Torn(Exception):
    """The bytes are not that many elements."""


def elements_of(data: bytes, count: int) -> list[bytes]:
    """The elements of a BYTES tensor.

    Raises:
        Torn: there are more or fewer, or one is cut off.
    """
    found: list[bytes] = []
    at = 0
    while at < len(data):
        start = at + _LENGTH.size
        if len(found) == count or start > len(data):
            raise Torn
        (length,) = _LENGTH.unpack_from(data, at)
        at = start + length
        if at > len(data):
            raise Torn
        found.append(data[start:at])
    if len(found) != count:
        raise Torn
    return found


def bytes_of(elements: Iterable[bytes]) -> bytes:
    """A BYTES tensor."""
    return b"".join(part for one in elements for part in (_LENGTH.pack(len(one)), one))


def floats_of(numbers: Iterable[float]) -> bytes:
    """An FP32 tensor."""
    packed = array("f", numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
