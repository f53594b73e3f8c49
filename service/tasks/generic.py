"""``generic:NAME``: a task that transformers offers and this release has no entry for.

Limits, since nothing is known of it: text models only; a string or a JSON object in, at most
:data:`MAX_DEPTH` deep; no parameters; the stock call itself, one input after the other; an answer
that is no JSON is the item's own ``model_error``; a cost fitted to the example alone.
"""

from __future__ import annotations

from service.core.errors import Refused, invalid
from service.tasks.base import Task, a_text
from service.tasks.parameter import Json
from service.tasks.schemas import TEXT, one_of

PREFIX = "generic:"
MAX_DEPTH = 8


def _parse(value: Json, pointer: str) -> Json:
    if isinstance(value, str):
        return a_text(value, pointer)
    if not isinstance(value, dict) or not value:
        raise Refused(invalid(pointer, "send a string or an object"))
    _check(value, pointer, MAX_DEPTH)
    return value


def _check(value: Json, pointer: str, depth: int) -> None:
    """Every text in it is valid Unicode, and it is not deep."""
    if depth < 0:
        raise Refused(invalid(pointer, f"send an object that is at most {MAX_DEPTH} deep"))
    if isinstance(value, dict):
        for name, part in value.items():
            _check(name, pointer, depth - 1)
            _check(part, pointer, depth - 1)
    elif isinstance(value, list):
        for part in value:
            _check(part, pointer, depth - 1)
    elif isinstance(value, str) and value:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refused(invalid(pointer, "send text of valid Unicode")) from None


def generic(name: str) -> Task:
    """The entry of a task that has none; ``name`` is transformers' name of it."""
    return Task(
        name=f"{PREFIX}{name}",
        media="text",
        example="The harbour wall was built of grey stone.",
        canary="It still stands.",
        way="whole",
        stock=name,
        structured=True,
        parse=_parse,
        schema=one_of(TEXT, {"type": "object", "minProperties": 1}),
        bad_examples=((5, "neither text nor object"), ({}, "an empty object")),
        unit="characters / 4",
    )
