"""How answers are described: refusals from the error list, and the headers of every answer.

A refusal is described by its codes; which statuses that makes is the error list's word, which
headers they bring is that of ``http/problems``. Every operation may also end as :data:`ANYWHERE`
says: what the connection itself may refuse, and our own bug.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.core.errors import ERRORS, ErrorKind, OutcomeClass
from service.http.problems import RETRY_LEAST_S
from service.tasks.schemas import COUNT, Schema, list_of, members

Described = dict[str, Any]
"""A part of the OpenAPI document."""

PROBLEM = "application/problem+json"
UNAVAILABLE = 503
HEAD_TOO_LARGE = 431

ANYWHERE = ("malformed_request", "request_timeout", "internal_error", "queue_full", "draining")
"""Too many connections, a head that is broken, slow or too long, the end of the process, a bug."""

UNSEEN = frozenset(code for code, kind in ERRORS.items() if kind.outcome_class is OutcomeClass.GONE)
"""Codes that nobody is told: the client has left."""

POINTER: Schema = {
    "type": "string",
    "pattern": r"^(/.*)?$",
    "description": "JSON pointer into the body",
}


def problem_schema(error: Schema | None = None) -> Described:
    """A refusal; with the member ``error`` that the clients of other protocols read."""
    more = {} if error is None else {"error": error}
    schema = members(
        more,
        type={"type": "string", "description": "where the error is explained"},
        title={"type": "string"},
        status={"type": "integer"},
        detail={"type": "string"},
        code={"enum": [code for code in ERRORS if code not in UNSEEN]},
        retryable={"type": "boolean", "description": "whether the same request may succeed"},
        request_id={"type": "string"},
        retry_after_ms={"type": "integer", "minimum": 1},
        errors=list_of(members(pointer=POINTER, message={"type": "string"}), 1),
        limit={**COUNT, "description": "the limit that was passed"},
        min_timeout_ms={**COUNT, "description": "the shortest deadline that can work"},
        optional=("retry_after_ms", "errors", "limit", "min_timeout_ms", *more),
    )
    return {**schema, "description": "A refusal (RFC 9457)."}


SCHEMAS: dict[str, Described] = {"Problem": problem_schema()}
"""Shapes that several answers share."""

_ID = "X-Request-Id"
_AGAIN = "Retry-After"
_TIMING = "Server-Timing"
HEADERS: dict[str, Described] = {
    _ID: {
        "description": "The request's id: the client's own if it was fit, else a new one.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    },
    _AGAIN: {
        "description": "Whole seconds after which to come back.",
        "required": True,
        "schema": {"type": "integer", "minimum": RETRY_LEAST_S},
    },
    _TIMING: {
        "description": "Milliseconds in the queue, in the model and in all.",
        "required": True,
        "schema": {
            "type": "string",
            "pattern": r"^queue;dur=[\d.]+, infer;dur=[\d.]+, total;dur=[\d.]+$",
        },
    },
    "WWW-Authenticate": {
        "description": "How to send a key.",
        "required": True,
        "schema": {"type": "string"},
    },
    "x-envoy-ratelimited": {
        "description": "On refusals by load: a proxy should not retry them elsewhere.",
        "schema": {"const": "true"},
    },
    "ETag": {
        "description": "For If-None-Match.",
        "required": True,
        "schema": {"type": "string"},
    },
}
"""Every header that is described, by its name."""

_WITH_STATUS = {401: "WWW-Authenticate", UNAVAILABLE: _AGAIN}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer that is no refusal.

    Attributes:
        says: what it means.
        content: schemas by media type.
        headers: names of :data:`HEADERS` that it has besides the id.
    """

    says: str
    content: Mapping[str, Schema] = field(default_factory=dict)
    headers: tuple[str, ...] = ()


PREDICTED = (_TIMING,)
"""The headers of an answered prediction."""

TRY_AGAIN = (_AGAIN,)
"""The headers of a probe that says no."""


def responses(
    answers: Mapping[int, Answer], refusals: Iterable[str], problem: str = "Problem"
) -> Described:
    """Everything that an operation may answer, by status.

    Args:
        answers: by status.
        refusals: error codes, besides those of :data:`ANYWHERE`.
        problem: the name of the refusals' schema.
    """
    by_status: dict[int, list[ErrorKind]] = {HEAD_TOO_LARGE: [ERRORS["malformed_request"]]}
    for code in dict.fromkeys((*refusals, *ANYWHERE)):
        kind = ERRORS[code]
        by_status.setdefault(kind.status, []).append(kind)
    found = {status: _answer(answer) for status, answer in answers.items()}
    for status, kinds in by_status.items():
        refused = _refused(kinds, problem)
        if status in found:
            refused["description"] = f"{found[status]['description']} Or: {refused['description']}"
            refused["content"] = {**found[status].get("content", {}), **refused["content"]}
            refused["headers"] = {**found[status]["headers"], **refused["headers"]}
        found[status] = refused
    return {str(status): found[status] for status in sorted(found)}


def _answer(answer: Answer) -> Described:
    made: Described = {
        "description": answer.says,
        "headers": {name: _header(name) for name in (_ID, *answer.headers)},
    }
    if answer.content:
        made["content"] = {media: {"schema": schema} for media, schema in answer.content.items()}
    return made


def _refused(kinds: list[ErrorKind], problem: str) -> Described:
    names = [_ID, *(name for status, name in _WITH_STATUS.items() if status == kinds[0].status)]
    if any(kind.outcome_class is OutcomeClass.SHED for kind in kinds):
        names.append("x-envoy-ratelimited")
    schema = {
        "allOf": [{"$ref": f"#/components/schemas/{problem}"}],
        "properties": {"code": {"enum": [kind.code for kind in kinds]}},
    }
    return {
        "description": " ".join(f"`{kind.code}`: {kind.detail}" for kind in kinds),
        "headers": {name: _header(name) for name in names},
        "content": {PROBLEM: {"schema": schema}},
    }


def _header(name: str) -> Described:
    return {"$ref": f"#/components/headers/{name}"}
