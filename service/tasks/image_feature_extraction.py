"""image-feature-extraction: a vector for each patch of an image, or one for all of it.

As the stock call gives it: a list of one list of vectors; with ``pool`` a list of one vector, from
models that have such a layer.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.core.errors import FieldError
from service.tasks.base import Model, Task
from service.tasks.checks import at, switch, table
from service.tasks.examples import HARBOUR, NIGHT, NO_IMAGES
from service.tasks.media import an_image
from service.tasks.parameter import Json


def _fits(parameters: Mapping[str, Json], model: Model) -> FieldError | None:
    if parameters.get("pool") and "pooler_output" not in model.abilities:
        return at("pool", "leave it out; this model has no layer that pools")
    return None


TASK = Task(
    name="image-feature-extraction",
    media="image",
    example=HARBOUR,
    canary=NIGHT,
    needs={"PIL": "vision"},
    parse=an_image,
    parameters=table(switch("pool", "post", ": one vector for the whole image (default false)")),
    bad_examples=NO_IMAGES,
    fits=_fits,
    unit="patches of 16 x 16 pixels",
)
