"""Every operation of the API, described: one row of :data:`OPERATIONS` for each route and method.

To describe a new route, write a function that returns its :class:`Operation` (``None`` where this
server has no such route) and give it a row; a test compares the rows with what is served. What the
operation may be refused with is named by error codes; statuses, headers and bodies of refusals
follow (``answers``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from service.core.errors import ERRORS
from service.core.errors import OutcomeClass as Class
from service.http import site
from service.http.openapi.answers import PREDICTED, TRY_AGAIN, UNSEEN, Answer, Described
from service.http.openapi.bodies import JSON, prediction_answer, prediction_body
from service.http.openapi.served import Served
from service.tasks.schemas import Schema, members
from service.worker.rehearsal import FAULT_SYNTAX

HTML = "text/html"

TAGS = {
    "predictions": "Ask the model.",
    "health": "Probes; open to everybody, and never dependent on load.",
    "figures": "How it goes.",
    "reading": "Pages for people; programs get JSON where the address has both.",
}
"""The groups of operations, in the order in which they are shown."""

_ELSEWHERE = frozenset({"not_found", "method_not_allowed", "unauthorized"})
PREDICTION = tuple(code for code in ERRORS if code not in UNSEEN | _ELSEWHERE)
"""What every prediction may be refused with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one route.

    Attributes:
        name: unique; clients that are made from the description call it so.
        tag: one of :data:`TAGS`.
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


_SWITCH: Schema = {"type": "boolean"}
_STRING: Schema = {"type": "string"}

_ID = in_header(
    "X-Request-Id",
    "An id of your own for this request, of 1 to 128 letters, digits, dots, dashes and "
    "underscores; anything else is replaced. It comes back with the answer.",
    _STRING,
)
_KNOWN = in_header(
    "If-None-Match", "The ETag of what you have; 304 if nothing has changed.", _STRING
)
_UNCHANGED = Answer("Nothing has changed.", headers=("ETag",))


def prediction_headers(served: Served) -> tuple[Described, ...]:
    """The headers that any prediction may have."""
    most = served.settings.max_deadline_ms
    deadline = (
        f"The deadline in milliseconds, counted from the headers; the smaller of the two headers"
        f" counts, and never more than {most}."
    )
    milliseconds = {"type": "integer", "minimum": 1}
    found = [
        _ID,
        in_header("X-Request-Timeout-Ms", deadline, milliseconds),
        in_header("x-envoy-expected-rq-timeout-ms", deadline, milliseconds),
        in_header("traceparent", "W3C Trace Context; its id goes to the log.", _STRING),
    ]
    if served.settings.rehearsal:
        says = f"A fault to act out, one of {FAULT_SYNTAX}."
        found.append(in_header("X-Rehearse-Fault", says, _STRING))
    return tuple(found)


def _predict(served: Served) -> Operation:
    answer = Answer("The answer.", {JSON: prediction_answer(served)}, PREDICTED)
    return Operation(
        name="predict",
        tag="predictions",
        summary=f"Predict ({served.task.name})",
        says="Answers with what the Transformers pipeline returns for the input. A list of n inputs"
        " is answered with a list of n answers, or refused whole.",
        answers={200: answer},
        refusals=PREDICTION,
        parameters=prediction_headers(served),
        body=prediction_body(served),
        keyed=True,
    )


def _probe(name: str, summary: str, says: str, shown: dict[str, Schema]) -> Operation:
    content = {JSON: members(shown)}
    return Operation(
        name=name,
        tag="health",
        summary=summary,
        says=says,
        answers={200: Answer("Yes.", content), 503: Answer("No.", content, TRY_AGAIN)},
        parameters=(_ID,),
    )


def _livez(_served: Served) -> Operation:
    says = "The process answers and has not given up; never depends on load, worker or model."
    return _probe("livez", "Is it alive?", says, {"alive": _SWITCH})


def _readyz(_served: Served) -> Operation:
    says = "May traffic come, and if not, why not. A full queue never makes it say no."
    return _probe("readyz", "Is it ready?", says, {"ready": _SWITCH, "reason": _STRING})


def _startupz(_served: Served) -> Operation:
    says = "Whether the model has been ready once."
    return _probe("startupz", "Has it started?", says, {"started": _SWITCH})


def _metrics(served: Served) -> Operation | None:
    if served.settings.metrics_bind:
        return None
    content = {"text/plain": _STRING, "application/openmetrics-text": _STRING}
    return Operation(
        name="metrics",
        tag="figures",
        summary="Metrics",
        says="In the format of Prometheus, or OpenMetrics where Accept asks for it.",
        answers={200: Answer("All series.", content)},
        parameters=(_ID,),
    )


def _status(served: Served) -> Operation | None:
    if served.settings.metrics_bind:
        return None
    content = {JSON: {"type": "object", "required": ["state"], "properties": {"state": _STRING}}}
    return Operation(
        name="status",
        tag="figures",
        summary="Status",
        says="State, queue, breaker, workers, estimator, limits and settings in force.",
        answers={200: Answer("The figures of this moment.", content)},
        parameters=(_ID,),
        keyed=True,
    )


def _root(_served: Served) -> Operation:
    about = members(
        name=_STRING,
        version=_STRING,
        task=_STRING,
        media={"type": "string", "description": "what the task takes: text, or bytes of a kind"},
        model=_STRING,
        example={"description": "an input that works; null until the model is ready"},
        parameters={"type": "object", "description": "what the example needs besides"},
        links={"type": "object", "additionalProperties": _STRING},
    )
    schema = {**about, "additionalProperties": True}
    return Operation(
        name="about",
        tag="reading",
        summary="What is served",
        says="A browser gets the status page, where the model can be tried.",
        answers={200: Answer("What is served.", {JSON: schema, HTML: _STRING}), 304: _UNCHANGED},
        parameters=(_ID, _KNOWN),
    )


def _error(_served: Served) -> Operation:
    page = members(
        {"class": {"enum": [one.value for one in Class if one is not Class.OK]}},
        code={"enum": [*ERRORS]},
        status={"type": "integer"},
        title=_STRING,
        detail=_STRING,
        retryable=_SWITCH,
        caller={"type": "string", "description": "what to do if you call this server"},
        operator={"type": "string", "description": "what to do if you run this server"},
    )
    return Operation(
        name="error",
        tag="reading",
        summary="What an error means",
        answers={200: Answer("The error.", {JSON: page, HTML: _STRING})},
        refusals=("not_found",),
        parameters=(_ID, in_path("code", "An error code.", {"enum": [*ERRORS]})),
    )


def _asset(_served: Served) -> Operation:
    names = sorted(name for name in site.ASSETS if name != site.PAGE)
    kinds = sorted({site.ASSETS[name].media_type for name in names})
    return Operation(
        name="asset",
        tag="reading",
        summary="A file of the pages",
        answers={
            200: Answer("The file.", dict.fromkeys(kinds, _STRING), ("ETag",)),
            304: _UNCHANGED,
        },
        refusals=("not_found",),
        parameters=(_ID, _KNOWN, in_path("name", "Its name.", {"enum": names})),
    )


def _document(_served: Served) -> Operation:
    content = {JSON: {"type": "object", "required": ["openapi", "info", "paths"]}}
    return Operation(
        name="openapi",
        tag="reading",
        summary="This description, for programs",
        answers={200: Answer("OpenAPI 3.1.", content, ("ETag",)), 304: _UNCHANGED},
        parameters=(_ID, _KNOWN),
    )


def _docs(_served: Served) -> Operation:
    return Operation(
        name="docs",
        tag="reading",
        summary="This description, for people",
        answers={200: Answer("A page.", {HTML: _STRING}, ("ETag",)), 304: _UNCHANGED},
        parameters=(_ID, _KNOWN),
    )


OPERATIONS: dict[tuple[str, str], Callable[[Served], Operation | None]] = {
    ("/", "post"): _predict,
    ("/livez", "get"): _livez,
    ("/readyz", "get"): _readyz,
    ("/startupz", "get"): _startupz,
    ("/metrics", "get"): _metrics,
    ("/status", "get"): _status,
    ("/", "get"): _root,
    ("/errors/{code}", "get"): _error,
    ("/site/{name}", "get"): _asset,
    ("/openapi.json", "get"): _document,
    ("/docs", "get"): _docs,
}
"""By path and method. ``HEAD`` works wherever ``get`` does and is not described again."""
