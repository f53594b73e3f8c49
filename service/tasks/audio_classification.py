"""audio-classification: what a sound is, by the labels of the model."""

from __future__ import annotations

from service.tasks.base import Task
from service.tasks.checks import choice, table, whole
from service.tasks.media import a_sound
from service.tasks.tones import tone

NEEDS = {"soundfile": "audio", "soxr": "audio"}

TASK = Task(
    name="audio-classification",
    media="audio",
    example=tone(300),
    canary=tone(440),
    way="hearing",
    needs=NEEDS,
    own_head=True,
    parse=a_sound,
    parameters=table(
        whole("top_k", "post", 1, note=" (default: all labels)"),
        choice("function_to_apply", "post", ("softmax", "sigmoid", "none")),
    ),
    bad_examples=(
        (5, "no sound"),
        ({"array": [0.0], "sampling_rate": 16000}, "samples as numbers"),
        ("http://localhost/a.wav", "an address is never opened"),
    ),
    unit="hundredths of a second",
)
