"""The addresses of other protocols, described: Open Inference Protocol V2, OpenAI's embeddings."""

from __future__ import annotations

from collections.abc import Callable

from service.core.errors import ERRORS
from service.http.openapi.answers import PREDICTED, Answer, Described, problem_schema
from service.http.openapi.bodies import JSON
from service.http.openapi.operation import (
    PREDICTION,
    REQUEST_ID,
    STRING,
    SWITCH,
    Operation,
    in_header,
    in_path,
    prediction_headers,
    probe,
)
from service.http.openapi.served import Served
from service.tasks.media import MAX_RATE_HZ, MIN_RATE_HZ
from service.tasks.numbers import numbers_of
from service.tasks.schemas import (
    ANY,
    COUNT,
    NUMBER,
    TEXT,
    Schema,
    integer,
    list_of,
    members,
    one_of,
)

TAG = "clients"
VERSION = "1"
"""The one version of the one model."""

_OF_V2, _OF_V1 = "ProblemOfV2", "ProblemOfV1"
_HERE = ("not_found",)
_OCTETS = "application/octet-stream"
_NULL: Schema = {"type": "null"}
_OBJECT: Schema = {"type": ["object", "null"]}

SCHEMAS: dict[str, Described] = {
    _OF_V2: problem_schema(STRING),
    _OF_V1: problem_schema(
        members(
            message=STRING,
            type={"enum": ["invalid_request_error", "server_error"]},
            param=one_of(STRING, _NULL),
            code={"enum": [*ERRORS]},
        )
    ),
}
"""Refusals as these clients read them."""


def _place(served: Served, *, versioned: bool) -> tuple[Described, ...]:
    name = in_path("name", "The model.", {"enum": [served.settings.model_name]})
    version = in_path("version", "Its one version.", {"enum": [VERSION]})
    return (name, version) if versioned else (name,)


def _page(name: str, summary: str, schema: Schema, place: tuple[Described, ...] = ()) -> Operation:
    return Operation(
        name=name,
        tag=TAG,
        summary=summary,
        answers={200: Answer("What there is.", {JSON: schema})},
        refusals=_HERE if place else (),
        parameters=(REQUEST_ID, *place),
        problem=_OF_V1 if name.startswith("openai") else _OF_V2,
    )


# ---------------------------------------------------------------- Open Inference Protocol V2

_AXES = list_of({"type": "integer"}, 1)
_RATE = members(sampling_rate=integer(MIN_RATE_HZ, MAX_RATE_HZ))


def _server(_served: Served) -> Operation:
    about = members(name=STRING, version=STRING, extensions=list_of(STRING))
    return _page("v2_server", "The server", about)


def _model(served: Served, *, versioned: bool) -> Operation:
    about = members(
        name=STRING,
        versions=list_of(STRING),
        platform=STRING,
        inputs=list_of(
            members(
                name={"const": "inputs"},
                datatype={"enum": ["BYTES", *(kind.datatype for kind in numbers_of(served.task))]},
                shape=_AXES,
                parameters=_RATE,
                optional=("parameters",),
            )
        ),
        outputs=list_of(
            members(name={"const": "outputs"}, datatype={"const": "BYTES"}, shape=_AXES)
        ),
    )
    name = "v2_model_version" if versioned else "v2_model"
    return _page(name, "The model", about, _place(served, versioned=versioned))


def _health(word: str, says: str) -> Operation:
    made = probe(f"v2_{word}", f"Is it {word}?", says, {word: SWITCH})
    return _of_v2(made)


def _of_v2(made: Operation) -> Operation:
    return Operation(
        name=made.name, tag=TAG, summary=made.summary, says=made.says, answers=made.answers,
        refusals=made.refusals, parameters=made.parameters, problem=_OF_V2,
    )  # fmt: skip


def _model_ready(served: Served, *, versioned: bool) -> Operation:
    name = "v2_version_ready" if versioned else "v2_model_ready"
    content = {JSON: members(name=STRING, ready=SWITCH)}
    says = probe("", "", "", {})
    return Operation(
        name=name,
        tag=TAG,
        summary="Is the model ready?",
        says="As GET /readyz.",
        answers={
            status: Answer(answer.says, content, answer.headers)
            for status, answer in says.answers.items()
        },
        refusals=_HERE,
        parameters=(REQUEST_ID, *_place(served, versioned=versioned)),
        problem=_OF_V2,
    )


def _tensor(datatype: str, least: int, most: int) -> Schema:
    return members(
        name={"const": "inputs"},
        datatype={"const": datatype},
        shape=list_of({"type": "integer", "minimum": 1}, least, most),
        data=list_of(ANY, 1),
        parameters=_OBJECT,
        optional=("data", "parameters"),
    )


def _tensors(served: Served) -> Schema:
    """What the one input may be."""
    numbers = numbers_of(served.task)
    found = [_tensor("BYTES", 1, 2)]
    found += [_tensor(kind.datatype, len(kind.item), len(kind.shape)) for kind in numbers]
    return one_of(*found) if numbers else found[0]


def _infer(served: Served, *, versioned: bool) -> Operation:
    length = in_header(
        "Inference-Header-Content-Length",
        "Bytes of the JSON in front of the tensors, where there are any.",
        STRING,
    )
    body = members(
        id={"type": ["string", "null"], "maxLength": 1024},
        inputs=list_of(_tensors(served), 1, 1),
        outputs={"type": ["array", "null"], "maxItems": 1},
        parameters={**_OBJECT, "description": "those of the task, timeout in microseconds"},
        optional=("id", "outputs", "parameters"),
    )
    output = members(
        name={"const": "outputs"},
        datatype={"enum": ["BYTES", "FP32"]},
        shape=_AXES,
        data=list_of(one_of(STRING, NUMBER)),
        parameters={"type": "object"},
        optional=("data", "parameters"),
    )
    answer = members(
        model_name=STRING,
        model_version=STRING,
        id=STRING,
        outputs=list_of(output, 1, 1),
        optional=("id",),
    )
    return Operation(
        name="v2_infer_version" if versioned else "v2_infer",
        tag=TAG,
        summary="Infer",
        says="A tensor of n texts (or files) is answered with one of n answers, each the JSON that"
        " POST / answers; with the binary extension tensors follow the JSON as bytes. Tasks of"
        " sounds and images also take samples and pixels, see the model's inputs.",
        answers={200: Answer("The answers.", {JSON: answer, _OCTETS: ANY}, PREDICTED)},
        refusals=(*PREDICTION, *_HERE),
        parameters=(
            *prediction_headers(served), *_place(served, versioned=versioned), length,
        ),
        body={
            "description": "An inference request.",
            "required": True,
            "content": {JSON: {"schema": body}, _OCTETS: {"schema": ANY}},
        },
        keyed=True,
        problem=_OF_V2,
    )  # fmt: skip


# ---------------------------------------------------------------- OpenAI

_MODEL = members(id=STRING, object={"const": "model"}, created=COUNT, owned_by=STRING)


def _models(_served: Served) -> Operation:
    schema = members(object={"const": "list"}, data=list_of(_MODEL))
    return _page("openai_models", "The models: this one", schema)


def _one_model(served: Served) -> Operation:
    return _page("openai_model", "The model", _MODEL, _place(served, versioned=False))


def _embeddings(served: Served) -> Operation | None:
    if "pooling" not in served.task.parameters:
        return None
    body = members(
        model={**STRING, "description": "the model's name"},
        input=one_of(TEXT, list_of(TEXT, 1, served.items)),
        encoding_format={"enum": ["float", "base64", None]},
        dimensions={"type": ["integer", "null"], "description": "the model's own width"},
        user={"type": ["string", "null"]},
        optional=("encoding_format", "dimensions", "user"),
    )
    one = members(
        object={"const": "embedding"}, index=COUNT, embedding=one_of(list_of(NUMBER), STRING)
    )
    answer = members(
        object={"const": "list"},
        data=list_of(one, 1),
        model=STRING,
        usage=members(prompt_tokens=COUNT, total_tokens=COUNT),
    )
    return Operation(
        name="openai_embeddings",
        tag=TAG,
        summary="Embeddings",
        says="A vector for each text, as the model's folder says how.",
        answers={200: Answer("The vectors.", {JSON: answer}, PREDICTED)},
        refusals=(*PREDICTION, *_HERE),
        parameters=prediction_headers(served),
        body={
            "description": "Texts; no token numbers.",
            "required": True,
            "content": {JSON: {"schema": body}},
        },
        keyed=True,
        problem=_OF_V1,
    )


_V2 = "/v2/models/{name}"
_V2_VERSION = "/v2/models/{name}/versions/{version}"

OPERATIONS: dict[tuple[str, str], Callable[[Served], Operation | None]] = {
    (f"{_V2}/infer", "post"): lambda served: _infer(served, versioned=False),
    (f"{_V2_VERSION}/infer", "post"): lambda served: _infer(served, versioned=True),
    ("/v2", "get"): _server,
    ("/v2/health/live", "get"): lambda _: _health("live", "As GET /livez."),
    ("/v2/health/ready", "get"): lambda _: _health("ready", "As GET /readyz."),
    (_V2, "get"): lambda served: _model(served, versioned=False),
    (_V2_VERSION, "get"): lambda served: _model(served, versioned=True),
    (f"{_V2}/ready", "get"): lambda served: _model_ready(served, versioned=False),
    (f"{_V2_VERSION}/ready", "get"): lambda served: _model_ready(served, versioned=True),
    ("/v1/embeddings", "post"): _embeddings,
    ("/v1/models", "get"): _models,
    ("/v1/models/{name}", "get"): _one_model,
}
"""Rows of the table in ``operations``."""
