"""document-question-answering: the place in a document, or the words, that answer a question.

An input is an object with ``question``, ``image`` and ``word_boxes``: the words of the document,
each with the corners of its box in thousandths of the page. Reading words out of the picture is not
served: it would start a program for each request. A model that reads the picture itself needs no
words, one that reads only words needs no picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from service.core.errors import FieldError, Refused, invalid
from service.tasks.base import Model, Task
from service.tasks.checks import at, choice, is_text, switch, table, whole
from service.tasks.examples import HARBOUR, NIGHT
from service.tasks.media import an_image
from service.tasks.parameter import Json, Parameter, Reject
from service.tasks.schemas import BYTES, Schema, integer, list_of, members, one_of, text

MAX_WORDS = 4096
MAX_WORD_CHARS = 200
MAX_QUESTION_CHARS = 500
MAX_ANSWERS = 100
PAGE = 1000
"""A page is so many units wide and high, whatever it is in pixels."""

_CORNERS = 4
_BOXES = (
    f"a list of 1 to {MAX_WORDS} pairs, each a word and the corners of its box [left, top, right, "
    f"bottom], whole numbers from 0 to {PAGE}"
)


def _is_box(value: Json) -> TypeGuard[list[int]]:
    if not isinstance(value, list) or len(value) != _CORNERS:
        return False
    if any(isinstance(one, bool) or not isinstance(one, int) for one in value):
        return False
    left, top, right, bottom = value
    return bool(0 <= left <= right <= PAGE and 0 <= top <= bottom <= PAGE)


def _are_boxes(value: Json) -> bool:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_WORDS:
        return False
    return all(
        isinstance(pair, list)
        and len(pair) == 2  # noqa: PLR2004 - a word and its box
        and is_text(pair[0], MAX_WORD_CHARS)
        and _is_box(pair[1])
        for pair in value
    )


def _word_boxes(value: Json, _facts: Mapping[str, int]) -> Json:
    if not _are_boxes(value):
        raise Reject(f"send {_BOXES}")
    return value


def _parse(value: Json, pointer: str) -> Json:
    known = {"question", "image", "word_boxes"}
    if not isinstance(value, dict) or "question" not in value or not value.keys() <= known:
        wanted = "send an object with 'question', and 'image' or 'word_boxes' or both"
        raise Refused(invalid(pointer, wanted))
    if not is_text(value["question"], MAX_QUESTION_CHARS):
        wanted = f"send a question of 1 to {MAX_QUESTION_CHARS} characters"
        raise Refused(invalid(f"{pointer}/question", wanted))
    found = {"question": value["question"]}
    if value.get("image") is not None:
        found["image"] = an_image(value["image"], f"{pointer}/image")
    if value.get("word_boxes") is not None:
        if not _are_boxes(value["word_boxes"]):
            raise Refused(invalid(f"{pointer}/word_boxes", f"send {_BOXES}"))
        found["word_boxes"] = value["word_boxes"]
    return found


def _fits(parameters: Mapping[str, Json], model: Model) -> FieldError | None:
    if model.max_tokens and parameters.get("max_seq_len", 0) > model.max_tokens:
        return at("max_seq_len", f"send an integer from 16 to {model.max_tokens}")
    return None


_NULL: Schema = {"type": "null"}

# That left lies left of right no schema says.
_BOX_SCHEMA = list_of(integer(0, PAGE), _CORNERS, _CORNERS)
_BOXES_SCHEMA: Schema = list_of(
    {
        "type": "array",
        "prefixItems": [text(MAX_WORD_CHARS), _BOX_SCHEMA],
        "minItems": 2,
        "maxItems": 2,
    },
    1,
    MAX_WORDS,
)

_WORDS = [["Harbour", [100, 100, 300, 140]], ["of", [310, 100, 350, 140]],
          ["Hamburg", [360, 100, 600, 140]], ["110", [100, 200, 180, 240]],
          ["berths", [190, 200, 330, 240]]]  # fmt: skip

TASK = Task(
    name="document-question-answering",
    media="image",
    example={"question": "How many berths?", "image": HARBOUR, "word_boxes": _WORDS},
    canary={"question": "Which harbour?", "image": NIGHT, "word_boxes": _WORDS[:3]},
    needs={"PIL": "vision"},
    structured=True,
    parse=_parse,
    schema=members(
        optional=("image", "word_boxes"),
        question=text(MAX_QUESTION_CHARS), image=one_of(BYTES, _NULL),
        word_boxes=one_of(_BOXES_SCHEMA, _NULL),
    ),
    inside=("word_boxes",),
    parameters=table(
        Parameter(
            "word_boxes", "prepare", _BOXES, _word_boxes, schema=lambda _: _BOXES_SCHEMA
        ),
        choice("padding", "prepare", ("do_not_pad", "longest", "max_length")),
        whole("doc_stride", "prepare", 0, note=": tokens that two pieces of a document share"),
        whole("max_seq_len", "prepare", 16, note=": tokens of a piece, with the question"),
        whole("top_k", "post", 1, MAX_ANSWERS, note=": how many answers (default 1)"),
        whole("max_answer_len", "post", 1, MAX_ANSWERS, note=": most words (default 15)"),
        switch("handle_impossible_answer", "post", " (default false)"),
    ),
    bad_examples=(
        ("text", "a document is an object"),
        ({"image": HARBOUR}, "a question is needed"),
        ({"image": HARBOUR, "question": " "}, "a question is not empty"),
        ({"image": "http://localhost/a.png", "question": "a"}, "an address is never opened"),
        ({"image": "/a/path.png", "question": "a"}, "a path is never opened"),
        ({"question": "a", "word_boxes": [["a", [0, 0, 1, 2000]]]}, "a box lies on the page"),
        ({"question": "a", "word_boxes": [["a", [9, 0, 1, 20]]]}, "left is left of right"),
        ({"question": "a", "word_boxes": []}, "a document has words"),
    ),
    fits=_fits,
)  # fmt: skip
