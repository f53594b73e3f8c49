"""automatic-speech-recognition: what is said in a sound.

A sound that is longer than the model hears at once is refused, unless ``chunk_length_s`` says that
it may be cut into pieces that overlap; each piece counts in the request's cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from service.core.errors import FieldError
from service.tasks.audio_classification import NEEDS
from service.tasks.base import Task
from service.tasks.checks import at, choice, switch, table, text, whole
from service.tasks.generation import DEFAULT_NEW_TOKENS, steps
from service.tasks.media import a_sound
from service.tasks.parameter import Json, Parameter, Reject
from service.tasks.schemas import Schema, list_of, one_of
from service.tasks.tones import tone

MAX_CHUNK_S = 30
"""A window of Whisper; others are not proved with more at once."""

MIN_CHUNK_S = 1

MAX_BEAMS = 10
MAX_WORD_CHARS = 32

_CHUNK = f"a number of seconds from {MIN_CHUNK_S} to {MAX_CHUNK_S}"
_STRIDE = (
    "a number of seconds or a list of two, together at most half of chunk_length_s"
    " (default: a sixth on each side)"
)
_TIMES = 'true, false, "word" or "char", by what the model can'


_SIDE: Schema = {"type": "number", "minimum": 0, "maximum": MAX_CHUNK_S}


def _chunk(value: Json, _facts: Mapping[str, int]) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Reject(f"send {_CHUNK}")
    if not MIN_CHUNK_S <= value <= MAX_CHUNK_S:
        raise Reject(f"send {_CHUNK}")
    return float(value)


def _stride(value: Json, _facts: Mapping[str, int]) -> list[float]:
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2:  # noqa: PLR2004 - left and right
        raise Reject(f"send {_STRIDE}")
    for part in pair:
        if isinstance(part, bool) or not isinstance(part, int | float) or not math.isfinite(part):
            raise Reject(f"send {_STRIDE}")
        if not 0 <= part <= MAX_CHUNK_S:
            raise Reject(f"send {_STRIDE}")
    return [float(part) for part in pair]


def _times(value: Json, _facts: Mapping[str, int]) -> Json:
    if not isinstance(value, bool) and value not in ("word", "char"):
        raise Reject(f"send {_TIMES}")
    return value


def _together(parameters: Mapping[str, Json]) -> FieldError | None:
    stride = parameters.get("stride_length_s")
    if stride is None:
        return None
    if "chunk_length_s" not in parameters:
        return at("stride_length_s", "send chunk_length_s with it")
    # So no second is heard more than twice: what a sound costs stays in proportion to it.
    if 2 * sum(stride) > parameters["chunk_length_s"]:
        return at("stride_length_s", f"send {_STRIDE}")
    return None


TASK = Task(
    name="automatic-speech-recognition",
    media="audio",
    example=tone(300),
    canary=tone(440),
    way="listening",
    needs=NEEDS,
    parse=a_sound,
    parameters=table(
        Parameter(
            "chunk_length_s", "prepare", _CHUNK, _chunk,
            schema=lambda _: {"type": "number", "minimum": MIN_CHUNK_S, "maximum": MAX_CHUNK_S},
        ),
        Parameter(
            "stride_length_s", "prepare", _STRIDE, _stride,
            schema=lambda _: one_of(_SIDE, list_of(_SIDE, 2, 2)),
        ),
        Parameter(
            "return_timestamps", "forward", _TIMES, _times,
            schema=lambda _: {"enum": [True, False, "word", "char"]},
        ),
        switch("return_language", "forward", ", with a model that tells languages apart"),
        whole("max_new_tokens", "forward", 1, note=f" (default {DEFAULT_NEW_TOKENS})"),
        whole("num_beams", "forward", 1, MAX_BEAMS),
        text("language", "forward", "a language that the model knows", chars=MAX_WORD_CHARS),
        choice("task", "forward", ("transcribe", "translate")),
    ),
    bad_examples=(
        (5, "no sound"),
        ({"raw": [0.0], "sampling_rate": 16000}, "samples as numbers"),
        ("http://localhost/a.wav", "an address is never opened"),
    ),
    unit="hundredths of a second",
    together=_together,
    work=steps,
)  # fmt: skip
