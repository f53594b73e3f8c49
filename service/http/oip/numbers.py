"""A tensor of numbers as bytes: little-endian, row after row, whichever way it has come.

Laws
- As many numbers as the shape says, all of the datatype, or a 422 that names the tensor.
- How many bytes they will be is known from the shape, and judged before one of them is looked at.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Sequence
from itertools import chain

from service.core.errors import Refused, invalid, problem
from service.http.context import HttpContext
from service.tasks.media import MAX_RATE_HZ, MIN_RATE_HZ
from service.tasks.numbers import Numbers
from service.tasks.parameter import Json

MAX_IN_JSON = 2**20
"""Numbers of one tensor as JSON: a minute of sound at 16 kHz. To read them takes a tenth of a
second (measured: 0.1 us each), and nobody else is served meanwhile; as bytes it takes a hundredth
of that."""

_RATE = "sampling_rate"
_RATE_SAYS = f"send the samples of a second, an integer from {MIN_RATE_HZ} to {MAX_RATE_HZ}"


def shape_of(given: Json, kind: Numbers, at: str) -> tuple[tuple[int, ...], bool]:
    """The shape with the items as its first axis, and whether the tensor is one item without it.

    Raises:
        Refused: ``invalid_input``.
    """
    good = isinstance(given, list) and all(type(axis) is int and 0 < axis < 2**53 for axis in given)
    shape = kind.items_of(given) if good else None
    if shape is None:
        raise Refused(invalid(at, f"send {kind.says}; no axis is 0"))
    return shape, len(shape) > len(given)


def rate_hz(
    kind: Numbers, own: dict[str, Json], overall: dict[str, Json], at: str, context: HttpContext
) -> int:
    """The samples of a second, taken out of the parameters; 0 for what is no sound.

    What is said of the tensor rules over what is said of the request; without a word it is the rate
    that the model hears.

    Args:
        kind: of the tensor.
        own: parameters of the tensor.
        overall: parameters of the request.
        at: pointer of the tensor's.
        context: of the server.

    Raises:
        Refused: ``invalid_input``.
    """
    if not kind.is_sound:
        return 0
    rates = ((overall.pop(_RATE, None), "/parameters"), (own.pop(_RATE, None), at))
    found = context.dispatcher.int_facts.get("rate_hz", 0)
    for rate, where in rates:
        if rate is None:
            continue
        if type(rate) is not int or not MIN_RATE_HZ <= rate <= MAX_RATE_HZ:
            raise Refused(invalid(f"{where}/{_RATE}", _RATE_SAYS))
        found = rate
    if not found:
        raise Refused(invalid(f"/parameters/{_RATE}", _RATE_SAYS))
    return found


def bytes_of(shape: Sequence[int], kind: Numbers) -> int:
    """Bytes of a tensor."""
    return math.prod(shape) * array(kind.code).itemsize


def check_size(nbytes: int, context: HttpContext) -> None:
    """Refuse what would be larger than a body may be; JSON can be shorter than the numbers in it.

    Raises:
        Refused: ``payload_too_large``.
    """
    most = context.settings.max_body_bytes
    if nbytes > most:
        detail = f"The numbers of a tensor may have at most {most} bytes together."
        raise Refused(problem("payload_too_large", detail, limit=most))


def of_bytes(raw: bytes, shape: Sequence[int], kind: Numbers, at: str) -> bytes:
    """The numbers that follow the JSON.

    Raises:
        Refused: ``invalid_input``.
    """
    nbytes = bytes_of(shape, kind)
    if len(raw) != nbytes:
        message = (
            f"the bytes behind the JSON must be {nbytes}: {kind.datatype} of this shape, row after "
            "row, little-endian"
        )
        raise Refused(invalid(at, message))
    return raw


def of_json(data: Json, shape: Sequence[int], kind: Numbers, at: str) -> bytes:
    """The numbers of a list, flat or nested as the shape says.

    Raises:
        Refused: ``invalid_input``, ``payload_too_large``.
    """
    count = math.prod(shape)
    if count > MAX_IN_JSON:
        detail = f"A tensor may have at most {MAX_IN_JSON} numbers as JSON; send it as binary data."
        raise Refused(problem("payload_too_large", detail, limit=MAX_IN_JSON))
    flat = _flat(data, shape, count)
    if flat is None:
        message = f"send a list of as many numbers as the shape says: {count}"
        raise Refused(invalid(at, message))
    numbers = _numbers(flat, kind)
    if numbers is None:
        raise Refused(invalid(at, f"send numbers that are {kind.datatype}"))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _flat(data: Json, shape: Sequence[int], count: int) -> list[Json] | None:
    if not isinstance(data, list):
        return None
    if len(data) == count and not isinstance(data[0], list):
        return data
    rows: list[Json] = [data]
    for axis in shape:
        if not all(isinstance(row, list) and len(row) == axis for row in rows):
            return None
        rows = list(chain.from_iterable(rows))
    return rows


def _numbers(flat: list[Json], kind: Numbers) -> array[float] | array[int] | None:
    known = {int, float} if kind.code == "f" else {int}
    if not set(map(type, flat)) <= known:  # true is no number, and asked so it costs little
        return None
    try:
        return array(kind.code, flat)
    except OverflowError:
        return None
