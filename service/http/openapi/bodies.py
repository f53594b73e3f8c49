"""What a prediction takes and answers, from the served task's entry and the limits in force."""

from __future__ import annotations

import re
from typing import Any

from service.core.errors import Refused
from service.http.openapi.answers import Described
from service.http.openapi.served import Served
from service.tasks.parameter import Json, Parameter
from service.tasks.schemas import BY_MEDIUM, TEXT, Schema, list_of, one_of

JSON = "application/json"
PLAIN = "text/plain"

RAW_MEDIA = {
    "image": ("image/*", "application/octet-stream"),
    "audio": ("audio/*", "application/octet-stream"),
    "video": ("video/*", "application/octet-stream"),
}
"""The media types under which the bytes of one input may be the whole body."""

NULL: Schema = {"type": "null"}
_LIKE_THE_FILE: Schema = {}
"""Bytes as they are: the media type says it all."""


def input_schema(served: Served) -> Schema:
    """One input, with what only the model decides where it is a text."""
    schema = served.task.input_schema
    return _text_schema(served) if schema == TEXT else schema


def _text_schema(served: Served) -> Schema:
    example = served.task.example
    schema: Described = dict(TEXT)
    if served.mask and isinstance(example, str) and "{mask}" in example:
        schema["pattern"] = re.escape(served.mask)
    if served.chars is not None:
        schema["maxLength"] = served.chars
    return schema


def inputs_schema(served: Served) -> Schema:
    """One input or a list of them."""
    one = input_schema(served)
    alone = {**one, "title": "one input"}
    # The characters of a list are counted together.
    in_list = {name: rule for name, rule in one.items() if name != "maxLength"}
    several = {**list_of(in_list, 1, served.items), "title": "a list of inputs"}
    return one_of(alone, several)


def parameters_schema(served: Served) -> Schema:
    """The parameters; ``null`` is as if absent."""
    known = served.task.parameters.values()
    schema: Described = {
        "type": "object",
        "properties": {one.name: _parameter(one, served) for one in known},
        "additionalProperties": False,
    }
    required = [one.name for one in known if one.required]
    if required:
        return {**schema, "required": required}
    return {**schema, "type": ["object", "null"]}


def _parameter(parameter: Parameter, served: Served) -> Schema:
    schema = parameter.schema(served.facts)
    if not parameter.required and schema:
        schema = one_of(schema, NULL)
    return {**schema, "description": parameter.describe}


def prediction_body(served: Served) -> Described:
    """The bodies that a prediction may have."""
    content = {JSON: _json_body(served)}
    if _takes_bare_text(served):
        text: Described = {"schema": _text_schema(served)}
        if isinstance(served.example, str):
            text["example"] = served.example
        content[PLAIN] = text
    for media in RAW_MEDIA.get(served.task.media, ()):
        content[media] = {"schema": _LIKE_THE_FILE}
    return {"description": _limits(served), "required": True, "content": content}


def prediction_answer(served: Served) -> Schema:
    """The answer: the pipeline's for one input, a list of those for a list."""
    one = served.task.answer
    if not one:
        return {}
    alone = {**one, "title": "for one input"}
    return one_of(alone, {**list_of(one, 1, served.items), "title": "for a list of inputs"})


def _json_body(served: Served) -> Described:
    task = served.task
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "inputs": inputs_schema(served),
            "parameters": parameters_schema(served),
            "stream": {"const": False, "description": "answers are not streamed"},
        },
        "required": ["inputs", *(["parameters"] if task.needs_parameters else [])],
        "additionalProperties": False,
    }
    made: Described = {"schema": schema}
    if served.example is not None:
        example: dict[str, Json] = {"inputs": served.example}
        if task.example_parameters:
            example["parameters"] = dict(task.example_parameters)
        made["example"] = example
    return made


def _takes_bare_text(served: Served) -> bool:
    if served.task.media not in BY_MEDIUM or served.task.needs_parameters:
        return False
    try:
        served.task.parse("a text", "")
    except Refused:
        return False
    return True


def _limits(served: Served) -> str:
    settings = served.settings
    parts = [f"At most {settings.max_body_bytes} bytes and {served.items} inputs"]
    if served.chars is not None and served.task.media in BY_MEDIUM:
        parts.append(f"{served.chars} characters in a request of one input")
    if most := served.facts.get("max_tokens"):
        parts.append(f"{most} tokens in one input")
    return "; ".join(parts) + "."
