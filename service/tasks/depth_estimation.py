"""depth-estimation: how far away each pixel of an image is.

``predicted_depth`` is a matrix of numbers as large as the image, ``depth`` the same as a grey PNG
in base64. Written as JSON a number takes up to 23 bytes, and an answer must fit one frame to the
worker: hence the limit on pixels.
"""

from __future__ import annotations

from service.tasks.base import Task
from service.tasks.examples import HARBOUR, NIGHT, NO_IMAGES
from service.tasks.media import an_image

MAX_PIXELS = 2**21
"""23 bytes for each are 46 MiB; a frame has 64 MiB."""

TASK = Task(
    name="depth-estimation",
    media="image",
    example=HARBOUR,
    canary=NIGHT,
    needs={"PIL": "vision"},
    parse=an_image,
    max_pixels=MAX_PIXELS,
    bad_examples=NO_IMAGES,
    unit="patches of 16 x 16 pixels",
)
