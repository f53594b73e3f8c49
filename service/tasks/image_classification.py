"""image-classification: the labels of an image with their scores, the best first."""

from __future__ import annotations

from service.tasks.base import Task
from service.tasks.checks import choice, table, whole
from service.tasks.examples import HARBOUR, NIGHT, NO_IMAGES
from service.tasks.media import an_image

TASK = Task(
    name="image-classification",
    media="image",
    example=HARBOUR,
    canary=NIGHT,
    needs={"PIL": "vision"},
    parse=an_image,
    parameters=table(
        whole("top_k", "post", 1, note=": how many labels (default 5)"),
        choice("function_to_apply", "post", ("softmax", "sigmoid", "none")),
    ),
    bad_examples=NO_IMAGES,
    unit="patches of 16 x 16 pixels",
)
