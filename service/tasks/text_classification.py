"""text-classification: the labels of a text, or of a pair of texts, with their scores.

As the stock call does: without ``top_k`` a lone text gives a list of one label, a lone pair and
each member of a list give the label itself; with ``top_k`` everything gives a list of labels.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.core.errors import Refused, invalid
from service.tasks.base import Task, a_text
from service.tasks.checks import choice, switch, table, whole
from service.tasks.media import MARK
from service.tasks.parameter import Json
from service.tasks.schemas import NUMBER, STRING, TEXT, list_of, members, one_of

_PAIR = frozenset({"text", "text_pair"})


def _parse(value: Json, pointer: str) -> Json:
    if isinstance(value, str):
        return a_text(value, pointer)
    if not isinstance(value, dict) or value.keys() != _PAIR:
        raise Refused(invalid(pointer, "send a string, or an object with 'text' and 'text_pair'"))
    return {name: a_text(value[name], f"{pointer}/{name}") for name in ("text", "text_pair")}


def _is_bare(text: str, parameters: Mapping[str, Json]) -> bool:
    """Whether the stock call wraps the one label of this lone input."""
    return "top_k" not in parameters and not text.startswith(f"{MARK}{{")


def _lone(answer: bytes, text: str, parameters: Mapping[str, Json]) -> bytes:
    return b"[%b]" % answer if _is_bare(text, parameters) else answer


def _hub(answer: bytes, _text: str, parameters: Mapping[str, Json]) -> bytes:
    return b"[%b]" % answer if "top_k" in parameters else b"[[%b]]" % answer


# With function_to_apply none a score is any number.
_LABEL = members(label=STRING, score=NUMBER)

TASK = Task(
    name="text-classification",
    aliases=("sentiment-analysis",),
    media="text",
    example="The harbour looks lovely in the morning.",
    canary="It rained all day.",
    structured=True,
    parse=_parse,
    schema=one_of(TEXT, members(text=TEXT, text_pair=TEXT)),
    answer=one_of(_LABEL, list_of(_LABEL), list_of(list_of(_LABEL))),
    parameters=table(
        whole("top_k", "post", 1, note=": how many labels, the best first"),
        choice("function_to_apply", "post", ("softmax", "sigmoid", "none")),
        switch("truncation", "prepare", ": whether a text that is too long is cut"),
    ),
    bad_examples=(
        ({"text": "a"}, "a pair needs both texts"),
        ({"text": "a", "text_pair": 5}, "a text is a string"),
    ),
    lone=_lone,
    hub=_hub,
)
