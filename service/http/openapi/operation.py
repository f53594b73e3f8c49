"""What it takes to describe one operation: its shape, and what many of them have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.core.errors import ERRORS
from service.http.openapi.answers import TRY_AGAIN, UNSEEN, Answer, Described
from service.http.openapi.bodies import JSON
from service.http.openapi.served import Served
from service.tasks.schemas import Schema, members
from service.worker.rehearsal import FAULT_SYNTAX

_ELSEWHERE = frozenset({"not_found", "method_not_allowed", "unauthorized"})
PREDICTION = tuple(code for code in ERRORS if code not in UNSEEN | _ELSEWHERE)
"""What every prediction may be refused with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one route.

    Attributes:
        name: unique; clients that are made from the description call it so.
        tag: one of the groups of ``operations``.
        summary: a few words.
        says: a sentence or two more.
        answers: what is no refusal, by status.
        refusals: error codes, besides those that any operation may end with.
        parameters: in the path and in headers.
        body: what is sent.
        keyed: whether a key is needed where keys are configured.
        problem: the schema of its refusals, by name.
    """

    name: str
    tag: str
    summary: str
    answers: Mapping[int, Answer]
    says: str = ""
    refusals: tuple[str, ...] = ()
    parameters: tuple[Described, ...] = ()
    body: Described | None = None
    keyed: bool = False
    problem: str = "Problem"


def in_header(name: str, says: str, schema: Schema) -> Described:
    """A header of a request."""
    return {"name": name, "in": "header", "description": says, "schema": schema}


def in_path(name: str, says: str, schema: Schema) -> Described:
    """A part of the path."""
    return {
        "name": name, "in": "path", "required": True, "description": says, "schema": schema,
    }  # fmt: skip


SWITCH: Schema = {"type": "boolean"}
STRING: Schema = {"type": "string"}

REQUEST_ID = in_header(
    "X-Request-Id",
    "An id of your own for this request, of 1 to 128 letters, digits, dots, dashes and "
    "underscores; anything else is replaced. It comes back with the answer.",
    STRING,
)
KNOWN = in_header("If-None-Match", "The ETag of what you have; 304 if nothing has changed.", STRING)
UNCHANGED = Answer("Nothing has changed.", headers=("ETag",))


def prediction_headers(served: Served) -> tuple[Described, ...]:
    """The headers that any prediction may have."""
    most = served.settings.max_deadline_ms
    deadline = (
        f"Your deadline in milliseconds, counted from the headers, and never more than {most}; it"
        " takes the place of the default."
    )
    waits = (
        "How long the proxy in front waits, in milliseconds, counted from the headers; it makes a"
        " deadline shorter, never longer."
    )
    milliseconds = {"type": "integer", "minimum": 1}
    found = [
        REQUEST_ID,
        in_header("X-Request-Timeout-Ms", deadline, milliseconds),
        in_header("x-envoy-expected-rq-timeout-ms", waits, milliseconds),
        in_header("traceparent", "W3C Trace Context; its id goes to the log.", STRING),
    ]
    if served.settings.rehearsal:
        says = f"A fault to act out, one of {FAULT_SYNTAX}."
        found.append(in_header("X-Rehearse-Fault", says, STRING))
    return tuple(found)


def probe(name: str, summary: str, says: str, shown: dict[str, Schema]) -> Operation:
    """A probe: the same object with 200 and with 503."""
    content = {JSON: members(shown)}
    return Operation(
        name=name,
        tag="health",
        summary=summary,
        says=says,
        answers={200: Answer("Yes.", content), 503: Answer("No.", content, TRY_AGAIN)},
        parameters=(REQUEST_ID,),
    )
