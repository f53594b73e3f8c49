"""zero-shot-audio-classification: which of the given labels fits a sound best.

The labels are read once for a whole batch: sounds of one batch agree in them.
"""

from __future__ import annotations

from service.tasks.audio_classification import NEEDS
from service.tasks.base import Task
from service.tasks.checks import table
from service.tasks.labels import candidate_labels, template
from service.tasks.media import a_sound
from service.tasks.tones import tone

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
    parameters=table(candidate_labels(), template()),
    bad_examples=((5, "no sound"), ("http://localhost/a.wav", "an address is never opened")),
    unit="hundredths of a second",
)
