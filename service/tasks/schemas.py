"""JSON schemas of what tasks take and answer, made of the same numbers as the checks.

They are for people and for programs that read ``/openapi.json``. Whether a request passes is
decided by the checks; a test holds both against each other. What a schema cannot say (valid
Unicode, columns of one length, labels between commas) the check alone knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]
"""A JSON schema, draft 2020-12, as OpenAPI 3.1 has them."""

ANY: Schema = {}
TEXT: Schema = {"type": "string", "pattern": r"\S"}
"""A text with something in it."""

BYTES: Schema = {
    "type": "string",
    "minLength": 1,
    "contentEncoding": "base64",
    "description": "the bytes in base64, or a data: URL; never an address to fetch",
}
"""The input of a task that takes no text."""

BY_MEDIUM: Mapping[str, Schema] = {"text": TEXT}
"""The input of a task whose entry says nothing more; other media come as :data:`BYTES`."""

NUMBER: Schema = {"type": "number"}
STRING: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SCORE: Schema = {"type": "number", "minimum": 0, "maximum": 1}


def text(chars: int) -> Schema:
    """A text with something in it, of at most ``chars`` characters."""
    return {**TEXT, "minLength": 1, "maxLength": chars}


def integer(low: int, high: int) -> Schema:
    """A whole number, the bounds included."""
    return {"type": "integer", "minimum": low, "maximum": high}


def one_of(*schemas: Schema) -> Schema:
    """Whatever fits one of them, or several."""
    return {"anyOf": [*schemas]}


def list_of(items: Schema, least: int | None = None, most: int | None = None) -> Schema:
    """A list, with how many it may hold."""
    bounds = {"minItems": least, "maxItems": most}
    known = {name: bound for name, bound in bounds.items() if bound is not None}
    return {"type": "array", "items": items, **known}


def members(
    also: Mapping[str, Schema] | None = None,
    /,
    *,
    optional: Sequence[str] = (),
    **properties: Schema,
) -> Schema:
    """An object of these members and no other; all are there but the ``optional`` ones."""
    properties |= also or {}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
