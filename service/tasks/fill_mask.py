"""fill-mask: the most likely words for each mask of a text.

One mask gives a flat list of ``top_k`` alternatives; two or more give a list of such lists, whose
sequences then hold the special tokens, exactly as the Transformers pipeline does.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.tasks.base import Task
from service.tasks.parameter import Json, Parameter, Reject
from service.tasks.schemas import (
    SCORE,
    STRING,
    Schema,
    integer,
    list_of,
    members,
    one_of,
    text,
)

MAX_TOP_K = 2**31 - 1
"""Bound while the vocabulary is not known yet; none is larger."""

MAX_TARGETS = 256
"""Most ``targets`` of one request: each may cost one tokeniser call."""

MAX_TARGET_CHARS = 128
"""Longest single target: a word, not a text."""


def _top_k(value: Json, facts: Mapping[str, int]) -> int:
    size = facts.get("vocab_size", 0)
    most = f"{size} (the vocabulary)" if size else "the size of the vocabulary"
    message = f"send an integer from 1 to {most}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise Reject(message)
    if not 1 <= value <= (size or MAX_TOP_K):
        raise Reject(message)
    return value


def _targets(value: Json, _facts: Mapping[str, int]) -> list[str]:
    message = (
        f"send a word or a list of 1 to {MAX_TARGETS} words, "
        f"each of 1 to {MAX_TARGET_CHARS} characters"
    )
    targets = [value] if isinstance(value, str) else value
    if not isinstance(targets, list) or not 1 <= len(targets) <= MAX_TARGETS:
        raise Reject(message)
    for target in targets:
        if not isinstance(target, str) or not target.strip() or len(target) > MAX_TARGET_CHARS:
            raise Reject(message)
        try:
            target.encode()
        except UnicodeEncodeError:
            raise Reject(message) from None
    return list(targets)


def _top_k_schema(facts: Mapping[str, int]) -> Schema:
    return integer(1, facts.get("vocab_size", 0) or MAX_TOP_K)


_WORD = text(MAX_TARGET_CHARS)
_TARGETS = one_of(_WORD, list_of(_WORD, 1, MAX_TARGETS))
_BEST = list_of(
    members(score=SCORE, token=integer(0, MAX_TOP_K), token_str=STRING, sequence=STRING)
)

FILL_MASK = TASK = Task(
    name="fill-mask",
    media="text",
    example="Paris is the {mask} of France.",
    canary="The opposite of black is {mask}.",
    parameters={
        "top_k": Parameter(
            "top_k", "post", "an integer from 1 to the size of the vocabulary (default 5)", _top_k,
            schema=_top_k_schema,
        ),
        "targets": Parameter(
            "targets", "post", f"a word or a list of up to {MAX_TARGETS} words to choose from",
            _targets, schema=lambda _: _TARGETS,
        ),
    },
    answer=one_of(_BEST, list_of(_BEST)),
    bad_examples=(("There is no mask here.", "the text needs at least one mask token"),),
)  # fmt: skip
