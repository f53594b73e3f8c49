"""What a parameter may be: the few kinds that the tasks' tables are made of.

Laws
- A check says what to send and never repeats what was sent.
- A number is a number: ``true``, ``"5"`` and NaN are none.
- Check and schema of a kind stand together and are made of the same values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from service.core.errors import FieldError
from service.tasks.parameter import Json, Parameter, Reject, Role
from service.tasks.schemas import SCORE, Schema, integer, list_of, one_of
from service.tasks.schemas import text as text_schema

MAX_WHOLE = 2**31 - 1
"""Bound of numbers that have no other: a library may keep them in 32 bits."""

Check = Callable[[Json, Mapping[str, int]], Json]


def _send(describe: str) -> str:
    return f"send {describe}"


def whole(name: str, role: Role, low: int, high: int = MAX_WHOLE, note: str = "") -> Parameter:
    """A whole number from ``low`` to ``high``; ``note`` says what a reader should know more."""
    bound = f"from {low} to {high}" if high != MAX_WHOLE else f"of at least {low}"
    describe = f"an integer {bound}{note}"

    def check(value: Json, _facts: Mapping[str, int]) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise Reject(_send(describe))
        return value

    return Parameter(name, role, describe, check, schema=lambda _: integer(low, high))


def number(name: str, role: Role, low: float, high: float, note: str = "") -> Parameter:
    """A number over ``low`` and up to ``high``."""
    describe = f"a number over {low:g}, at most {high:g}{note}"

    def check(value: Json, _facts: Mapping[str, int]) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Reject(_send(describe))
        if not low < value <= high or not math.isfinite(value):
            raise Reject(_send(describe))
        return float(value)

    schema = {"type": "number", "exclusiveMinimum": low, "maximum": high}
    return Parameter(name, role, describe, check, schema=lambda _: schema)


def share(name: str, role: Role, note: str = "") -> Parameter:
    """A number from 0 to 1, both included."""
    describe = f"a number from 0 to 1{note}"

    def check(value: Json, _facts: Mapping[str, int]) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise Reject(_send(describe))
        return float(value)

    return Parameter(name, role, describe, check, schema=lambda _: SCORE)


def switch(name: str, role: Role, note: str = "") -> Parameter:
    """True or false."""
    describe = f"true or false{note}"

    def check(value: Json, _facts: Mapping[str, int]) -> bool:
        if not isinstance(value, bool):
            raise Reject(_send(describe))
        return value

    return Parameter(name, role, describe, check, schema=lambda _: {"type": "boolean"})


def only(name: str, role: Role, describe: str, *, value: Json) -> Parameter:
    """A parameter that clients send although it has but one value here."""

    def check(given: Json, _facts: Mapping[str, int]) -> Json:
        if given != value or type(given) is not type(value):
            raise Reject(_send(describe))
        return given

    return Parameter(name, role, describe, check, schema=lambda _: {"const": value})


def choice(name: str, role: Role, words: Sequence[str], note: str = "") -> Parameter:
    """One of a few words."""
    describe = f"one of {', '.join(words)}{note}"

    def check(value: Json, _facts: Mapping[str, int]) -> str:
        if not isinstance(value, str) or value not in words:
            raise Reject(_send(describe))
        return value

    return Parameter(name, role, describe, check, schema=lambda _: {"enum": [*words]})


def texts(  # noqa: PLR0913 - a row of a table
    name: str,
    role: Role,
    what: str,
    *,
    most: int,
    chars: int,
    least: int = 1,
    required: bool = False,
    stock: str = "",
    split: Callable[[str], list[str]] | None = None,
) -> Parameter:
    """A text or a list of ``least`` to ``most`` texts of up to ``chars``, kept as a list.

    ``what`` says in a word or two what a lone text is; ``split`` makes several of one.
    """
    describe = f"{what} or a list of {least} to {most}, each of 1 to {chars} characters"

    def check(value: Json, _facts: Mapping[str, int]) -> list[str]:
        found = value
        if isinstance(value, str):
            found = split(value) if split else [value]
        if not isinstance(found, list) or not least <= len(found) <= most:
            raise Reject(_send(describe))
        for one in found:
            if not is_text(one, chars):
                raise Reject(_send(describe))
        return list(found)

    # How long the parts of one text are, no schema says.
    lone: Schema = {"type": "string", "pattern": r"[^\s,]"} if split else text_schema(chars)
    schema = one_of(lone, list_of(text_schema(chars), least, most))
    return Parameter(name, role, describe, check, required, stock, lambda _: schema)


def text(name: str, role: Role, what: str, *, chars: int) -> Parameter:
    """A text of up to ``chars``; ``what`` says in a few words what it is."""
    describe = f"{what}: 1 to {chars} characters"

    def check(value: Json, _facts: Mapping[str, int]) -> str:
        if not is_text(value, chars):
            raise Reject(_send(describe))
        return str(value)

    return Parameter(name, role, describe, check, schema=lambda _: text_schema(chars))


def is_text(value: Json, chars: int) -> bool:
    """Whether it is a text of valid Unicode with something in it, of at most ``chars``."""
    if not isinstance(value, str) or not value.strip() or len(value) > chars:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def at(name: str, message: str) -> FieldError:
    """The fault of one parameter."""
    return FieldError(f"/parameters/{name}", message)


def table(*parameters: Parameter) -> dict[str, Parameter]:
    """Parameters by name, in their order."""
    return {parameter.name: parameter for parameter in parameters}
