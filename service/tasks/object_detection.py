"""object-detection: what stands where in an image, with scores; boxes in its own pixels."""

from __future__ import annotations

from service.tasks.base import Task
from service.tasks.checks import share, table
from service.tasks.examples import HARBOUR, NIGHT, NO_IMAGES
from service.tasks.media import an_image

TASK = Task(
    name="object-detection",
    media="image",
    example=HARBOUR,
    canary=NIGHT,
    needs={"PIL": "vision"},
    parse=an_image,
    parameters=table(share("threshold", "post", ": least score (default 0.5)")),
    bad_examples=NO_IMAGES,
    unit="patches of 16 x 16 pixels",
)
