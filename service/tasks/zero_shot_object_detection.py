"""zero-shot-object-detection: where in an image the things stand that come with the request.

Each label goes through the model beside the image, and each of them counts in the request's cost.
"""

from __future__ import annotations

from service.tasks.base import Task, Work
from service.tasks.checks import share, table, whole
from service.tasks.examples import HARBOUR, NIGHT, NO_IMAGES
from service.tasks.labels import candidate_labels
from service.tasks.media import an_image

TASK = Task(
    name="zero-shot-object-detection",
    media="image",
    example=HARBOUR,
    canary=NIGHT,
    example_parameters={"candidate_labels": ["a beacon", "a wall"]},
    canary_parameters={"candidate_labels": ["a light"]},
    needs={"PIL": "vision"},
    parse=an_image,
    inside=("candidate_labels",),
    parameters=table(
        candidate_labels(),
        share("threshold", "post", ": least score (default 0.1)"),
        whole("top_k", "post", 1, note=": how many boxes, the best first"),
    ),
    bad_examples=NO_IMAGES,
    work=lambda parameters: Work(times=max(1, len(parameters.get("candidate_labels", ())))),
    unit="patches of 16 x 16 pixels",
)
