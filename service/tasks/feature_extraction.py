"""feature-extraction: a vector for each token of a text, or one for the whole text.

The answer of one text is a list of one list of vectors, as the stock call gives it, and it never
holds the vectors of padding. With ``pooling``, which the stock call does not know, the tokens'
vectors become one: a flat list, a hundredth of the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.core.errors import FieldError
from service.tasks.base import Task
from service.tasks.checks import at, choice, switch, table
from service.tasks.parameter import Json
from service.tasks.schemas import NUMBER, list_of, one_of

NO_POOLING, AS_THE_MODEL = "none", "model"

POOLINGS = (NO_POOLING, AS_THE_MODEL, "mean", "cls", "max", "last")
"""How the vectors of a text's tokens become one; ``model``: as the model's folder says."""


def _vector(parameters: Mapping[str, Json]) -> bool:
    return bool(parameters.get("pooling", NO_POOLING) != NO_POOLING)


def _together(parameters: Mapping[str, Json]) -> FieldError | None:
    if "normalize" in parameters and not _vector(parameters):
        return at("normalize", "send it together with a pooling")
    return None


TASK = Task(
    name="feature-extraction",
    media="text",
    example="The harbour wall was built of grey stone.",
    canary="It still stands.",
    parameters=table(
        switch("truncation", "prepare", ": whether a text that is too long is cut"),
        choice("pooling", "post", POOLINGS, ": how tokens' vectors become one (default none)"),
        switch("normalize", "post", ": whether that one has the length 1 (default: as pooled)"),
    ),
    bad_examples=((5, "the input is a string"),),
    # What a model adds on top of its vectors is not part of the answer.
    spare_weights=("pooler.",),
    wide_answers=True,
    together=_together,
    vector=_vector,
    answer=one_of(list_of(list_of(list_of(NUMBER)), 1, 1), list_of(NUMBER)),
)
