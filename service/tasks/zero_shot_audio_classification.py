"""zero-shot-audio-classification: which of the given labels fits a sound best.

The labels are read once for a whole batch: sounds of one batch agree in them.
"""

from __future__ import annotations

from service.tasks.audio_classification import NEEDS
from service.tasks.base import Task
from service.tasks.checks import table, texts
from service.tasks.media import a_sound
from service.tasks.tones import tone
from service.tasks.zero_shot_classification import (
    MAX_LABEL_CHARS,
    MAX_LABELS,
    TEMPLATE,
    by_commas,
)

_LABELS = {"candidate_labels": ["a dog", "a bell"]}

TASK = Task(
    name="zero-shot-audio-classification",
    media="audio",
    example=tone(300),
    canary=tone(440),
    example_parameters=_LABELS,
    canary_parameters=_LABELS,
    way="hearing",
    needs=NEEDS,
    parse=a_sound,
    parameters=table(
        texts(
            "candidate_labels", "prepare", "labels with commas between them",
            most=MAX_LABELS, chars=MAX_LABEL_CHARS, required=True, split=by_commas,
        ),
        TEMPLATE,
    ),
    bad_examples=((5, "no sound"), ("http://localhost/a.wav", "an address is never opened")),
    unit="hundredths of a second",
)  # fmt: skip
