"""text-to-audio: a text spoken, or a sound made after it.

The answer is a WAV of 16 bits in base64 beside its samples a second; whoever reads it as the hub's
own client does gets the WAV itself. Most models draw at random, so that the same text sounds a
little different each time. One text after the other: models differ in what a batch does to them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from service.tasks.base import Task
from service.tasks.checks import number, switch, table, whole
from service.tasks.generation import DEFAULT_NEW_TOKENS, steps
from service.tasks.parameter import Json

MAX_NEW_TOKENS = 4096
"""A minute and more of what such models make; an answer must fit one frame to the front."""

WAV = "audio/wav"


def _hub(answer: bytes, _text: str, _parameters: Mapping[str, Json]) -> bytes:
    return base64.b64decode(json.loads(answer)["audio"])


TASK = Task(
    name="text-to-audio",
    aliases=("text-to-speech",),
    media="text",
    example="The harbour wall was built of grey stone.",
    canary="It still stands.",
    way="speaking",
    own_head=True,
    parameters=table(
        switch("do_sample", "forward", ", with a model that generates"),
        whole("max_new_tokens", "forward", 1, MAX_NEW_TOKENS, f" (default {DEFAULT_NEW_TOKENS})"),
        number("temperature", "forward", 0, 100),
        whole("top_k", "forward", 1),
        number("top_p", "forward", 0, 1),
    ),
    bad_examples=(({"text": "a"}, "the input is a string"), ([["a"]], "no list of lists")),
    unit="characters / 4",
    work=steps,
    hub=_hub,
    hub_type=WAV,
)
