"""token-classification: which tokens of a text are names of what.

A text that is longer than the model takes is refused, unless ``stride`` says that it may be cut
into pieces that overlap by so many tokens; then the text may be as long as a request may.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.core.errors import FieldError
from service.tasks.base import Model, Task
from service.tasks.checks import at, choice, table, texts, whole
from service.tasks.parameter import Json
from service.tasks.schemas import COUNT, SCORE, STRING, list_of, members, one_of

_STRATEGIES = ("none", "simple", "first", "average", "max")
_OF_WORDS = frozenset({"first", "average", "max"})

MAX_LABELS = 64
MAX_LABEL_CHARS = 64


def _together(parameters: Mapping[str, Json]) -> FieldError | None:
    if "stride" in parameters and parameters.get("aggregation_strategy", "none") == "none":
        return at("stride", "send an aggregation_strategy other than none with it")
    return None


def _fits(parameters: Mapping[str, Json], model: Model) -> FieldError | None:
    if not model.fast_tokenizer and parameters.get("aggregation_strategy") in _OF_WORDS:
        return at(
            "aggregation_strategy", "send none or simple; this model's tokenizer knows no words"
        )
    if "stride" not in parameters:
        return None
    if not model.fast_tokenizer:
        return at("stride", "leave it out; this model's tokenizer cannot cut a text into pieces")
    # At half of a piece each token is read twice at most: what a text costs stays in proportion.
    most = max(0, (model.max_tokens - model.special_tokens) // 2)
    if parameters["stride"] > most:
        return at("stride", f"send an integer from 0 to {most}")
    return None


_PLACE = one_of(COUNT, {"type": "null"})
_TOKEN = members(entity=STRING, score=SCORE, index=COUNT, word=STRING, start=_PLACE, end=_PLACE)
_GROUP = members(entity_group=STRING, score=SCORE, word=STRING, start=_PLACE, end=_PLACE)

TASK = Task(
    name="token-classification",
    aliases=("ner",),
    media="text",
    example="Anna lives in Berlin and works for the harbour of Hamburg.",
    canary="Paris is in France.",
    parameters=table(
        choice("aggregation_strategy", "post", _STRATEGIES, "; the default is none"),
        texts("ignore_labels", "post", "a label", most=MAX_LABELS, chars=MAX_LABEL_CHARS, least=0),
        whole("stride", "prepare", 0, note=", at most half of what the model takes"),
    ),
    bad_examples=(({"text": "a"}, "the input is a string"),),
    cutting=("stride",),
    together=_together,
    fits=_fits,
    answer=list_of(one_of(_TOKEN, _GROUP)),
)
