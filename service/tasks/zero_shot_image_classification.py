"""zero-shot-image-classification: which of the labels that come with the request fits an image."""

from __future__ import annotations

from service.tasks.base import Task
from service.tasks.checks import table
from service.tasks.examples import HARBOUR, NIGHT, NO_IMAGES
from service.tasks.labels import candidate_labels, template
from service.tasks.media import an_image

TASK = Task(
    name="zero-shot-image-classification",
    media="image",
    example=HARBOUR,
    canary=NIGHT,
    example_parameters={"candidate_labels": ["a harbour", "a kitchen", "a forest"]},
    canary_parameters={"candidate_labels": ["day", "night"]},
    needs={"PIL": "vision"},
    parse=an_image,
    parameters=table(candidate_labels(), template()),
    bad_examples=NO_IMAGES,
    unit="patches of 16 x 16 pixels",
)
