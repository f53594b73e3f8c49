"""image-segmentation: the parts of an image, each with its label and its mask.

A mask is a PNG in base64, as large as the image and white where the part is. While masks are made,
each takes four bytes for a pixel of the image, hence the limit on pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.core.errors import FieldError
from service.tasks.base import Model, Task
from service.tasks.checks import at, choice, share, table
from service.tasks.examples import HARBOUR, NIGHT, NO_IMAGES
from service.tasks.media import an_image
from service.tasks.parameter import Json

_SUBTASKS = ("instance", "panoptic", "semantic")

MAX_PIXELS = 2**22
"""A photograph of four megapixels; a hundred masks of it take 1.6 GiB."""


def _fits(parameters: Mapping[str, Json], model: Model) -> FieldError | None:
    asked = parameters.get("subtask")
    able = [name for name in _SUBTASKS if f"post_process_{name}_segmentation" in model.abilities]
    if asked is None or asked in able:
        return None
    return at("subtask", f"send one of {', '.join(able)}: this model knows no other")


TASK = Task(
    name="image-segmentation",
    media="image",
    example=HARBOUR,
    canary=NIGHT,
    needs={"PIL": "vision"},
    also=("AutoModelForInstanceSegmentation", "AutoModelForUniversalSegmentation"),
    parse=an_image,
    max_pixels=MAX_PIXELS,
    parameters=table(
        choice("subtask", "prepare", _SUBTASKS, "; the default is what the model can do"),
        share("threshold", "post", ": least score of a part (default 0.9)"),
        share("mask_threshold", "post", ": from which score on a pixel belongs to it"),
        share("overlap_mask_area_threshold", "post", ": least share that overlaps leave of it"),
    ),
    bad_examples=NO_IMAGES,
    fits=_fits,
    unit="patches of 16 x 16 pixels",
)
