"""Every operation of the API, described: one row of :data:`OPERATIONS` for each route and method.

To describe a new route, write a function that returns its :class:`Operation` (``None`` where this
server has no such route) and give it a row; a test compares the rows with what is served. What the
operation may be refused with is named by error codes; statuses, headers and bodies of refusals
follow (``answers``).
"""

from __future__ import annotations

from collections.abc import Callable

from service.core.errors import ERRORS
from service.core.errors import OutcomeClass as Class
from service.http import site
from service.http.openapi import clients
from service.http.openapi.answers import PREDICTED, Answer
from service.http.openapi.bodies import JSON, prediction_answer, prediction_body
from service.http.openapi.operation import (
    KNOWN,
    PREDICTION,
    REQUEST_ID,
    STRING,
    SWITCH,
    UNCHANGED,
    Operation,
    in_path,
    prediction_headers,
    probe,
)
from service.http.openapi.served import Served
from service.tasks.schemas import members

HTML = "text/html"

TAGS = {
    "predictions": "Ask the model.",
    "clients": "For clients of the Open Inference Protocol V2 and of OpenAI's embeddings.",
    "health": "Probes; open to everybody, and never dependent on load.",
    "figures": "How it goes.",
    "reading": "Pages for people; programs get JSON where the address has both.",
}
"""The groups of operations, in the order in which they are shown."""


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


def _livez(_served: Served) -> Operation:
    says = "The process answers and has not given up; never depends on load, worker or model."
    return probe("livez", "Is it alive?", says, {"alive": SWITCH})


def _readyz(_served: Served) -> Operation:
    says = "May traffic come, and if not, why not. A full queue never makes it say no."
    return probe("readyz", "Is it ready?", says, {"ready": SWITCH, "reason": STRING})


def _startupz(_served: Served) -> Operation:
    says = "Whether the model has been ready once."
    return probe("startupz", "Has it started?", says, {"started": SWITCH})


def _metrics(served: Served) -> Operation | None:
    if served.settings.metrics_bind:
        return None
    content = {"text/plain": STRING, "application/openmetrics-text": STRING}
    return Operation(
        name="metrics",
        tag="figures",
        summary="Metrics",
        says="In the format of Prometheus, or OpenMetrics where Accept asks for it.",
        answers={200: Answer("All series.", content)},
        parameters=(REQUEST_ID,),
    )


def _status(served: Served) -> Operation | None:
    if served.settings.metrics_bind:
        return None
    content = {JSON: {"type": "object", "required": ["state"], "properties": {"state": STRING}}}
    return Operation(
        name="status",
        tag="figures",
        summary="Status",
        says="State, queue, breaker, workers, estimator, limits and settings in force.",
        answers={200: Answer("The figures of this moment.", content)},
        parameters=(REQUEST_ID,),
        keyed=True,
    )


def _root(_served: Served) -> Operation:
    about = members(
        name=STRING,
        version=STRING,
        task=STRING,
        media={"type": "string", "description": "what the task takes: text, or bytes of a kind"},
        model=STRING,
        example={"description": "an input that works; null until the model is ready"},
        parameters={"type": "object", "description": "what the example needs besides"},
        links={"type": "object", "additionalProperties": STRING},
    )
    schema = {**about, "additionalProperties": True}
    return Operation(
        name="about",
        tag="reading",
        summary="What is served",
        says="A browser gets the status page, where the model can be tried.",
        answers={200: Answer("What is served.", {JSON: schema, HTML: STRING}), 304: UNCHANGED},
        parameters=(REQUEST_ID, KNOWN),
    )


def _error(_served: Served) -> Operation:
    page = members(
        {"class": {"enum": [one.value for one in Class if one is not Class.OK]}},
        code={"enum": [*ERRORS]},
        status={"type": "integer"},
        title=STRING,
        detail=STRING,
        retryable=SWITCH,
        caller={"type": "string", "description": "what to do if you call this server"},
        operator={"type": "string", "description": "what to do if you run this server"},
    )
    return Operation(
        name="error",
        tag="reading",
        summary="What an error means",
        answers={200: Answer("The error.", {JSON: page, HTML: STRING})},
        refusals=("not_found",),
        parameters=(REQUEST_ID, in_path("code", "An error code.", {"enum": [*ERRORS]})),
    )


def _asset(_served: Served) -> Operation:
    names = sorted(name for name in site.ASSETS if name != site.PAGE)
    kinds = sorted({site.ASSETS[name].media_type for name in names})
    return Operation(
        name="asset",
        tag="reading",
        summary="A file of the pages",
        answers={
            200: Answer("The file.", dict.fromkeys(kinds, STRING), ("ETag",)),
            304: UNCHANGED,
        },
        refusals=("not_found",),
        parameters=(REQUEST_ID, KNOWN, in_path("name", "Its name.", {"enum": names})),
    )


def _document(_served: Served) -> Operation:
    content = {JSON: {"type": "object", "required": ["openapi", "info", "paths"]}}
    return Operation(
        name="openapi",
        tag="reading",
        summary="This description, for programs",
        answers={200: Answer("OpenAPI 3.1.", content, ("ETag",)), 304: UNCHANGED},
        parameters=(REQUEST_ID, KNOWN),
    )


def _docs(_served: Served) -> Operation:
    return Operation(
        name="docs",
        tag="reading",
        summary="This description, for people",
        answers={200: Answer("A page.", {HTML: STRING}, ("ETag",)), 304: UNCHANGED},
        parameters=(REQUEST_ID, KNOWN),
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
    **clients.OPERATIONS,
}
"""By path and method. ``HEAD`` works wherever ``get`` does and is not described again."""
