"""zero-shot-classification: which of the labels that come with the request fits a text best.

Each label makes a sentence of its own that goes through the model beside the text, and each of
them counts in the request's cost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from service.tasks.base import Task, Work
from service.tasks.checks import switch, table
from service.tasks.labels import candidate_labels, template
from service.tasks.parameter import Json
from service.tasks.schemas import SCORE, STRING, list_of, members, one_of


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
        candidate_labels(),
        template(),
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
