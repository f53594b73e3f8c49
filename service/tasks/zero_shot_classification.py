"""zero-shot-classification: which of the labels that come with the request fits a text best.

Each label makes a sentence of its own that goes through the model beside the text, and each of
them counts in the request's cost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from service.tasks.base import Json, Parameter, Reject, Task, Work
from service.tasks.checks import is_text, switch, table, texts
from service.tasks.schemas import SCORE, STRING, Schema, list_of, members, one_of

MAX_LABELS = 100
MAX_LABEL_CHARS = 200
MAX_TEMPLATE_CHARS = 500

_TEMPLATE = f"a text of up to {MAX_TEMPLATE_CHARS} characters with one {{}} for the label"


def _template(value: Json, _facts: Mapping[str, int]) -> str:
    # No other brace: a template is not a place to reach into an object from.
    if not is_text(value, MAX_TEMPLATE_CHARS) or value.count("{}") != 1:
        raise Reject(f"send {_TEMPLATE}")
    if "{" in value.replace("{}", "") or "}" in value.replace("{}", ""):
        raise Reject(f"send {_TEMPLATE}, and no other brace")
    return str(value)


_TEMPLATE_SCHEMA: Schema = {
    "type": "string", "maxLength": MAX_TEMPLATE_CHARS, "pattern": r"^[^{}]*\{\}[^{}]*$",
}  # fmt: skip


def _by_commas(text: str) -> list[str]:
    return [label.strip() for label in text.split(",") if label.strip()]


def _hub(answer: bytes, _text: str, _parameters: Mapping[str, Json]) -> bytes:
    found = json.loads(answer)
    pairs = zip(found["labels"], found["scores"], strict=True)
    return json.dumps([{"label": label, "score": score} for label, score in pairs]).encode()


TASK = Task(
    name="zero-shot-classification",
    media="text",
    example="The ferry leaves the harbour at noon.",
    canary="It rained all day.",
    example_parameters={"candidate_labels": ["travel", "cooking", "politics"]},
    canary_parameters={"candidate_labels": ["weather", "politics"]},
    parameters=table(
        texts(
            "candidate_labels", "prepare", "labels with commas between them",
            most=MAX_LABELS, chars=MAX_LABEL_CHARS, required=True, split=_by_commas,
        ),
        Parameter(
            "hypothesis_template", "prepare", _TEMPLATE, _template,
            schema=lambda _: _TEMPLATE_SCHEMA,
        ),
        switch("multi_label", "post", ": whether several labels may fit"),
    ),
    bad_examples=((5, "the input is a string"),),
    work=lambda parameters: Work(times=max(1, len(parameters.get("candidate_labels", ())))),
    needs_label="entail",
    hub=_hub,
    answer=one_of(
        members(sequence=STRING, labels=list_of(STRING), scores=list_of(SCORE)),
        list_of(members(label=STRING, score=SCORE)),
    ),
)  # fmt: skip
