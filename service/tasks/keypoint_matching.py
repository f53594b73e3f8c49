"""keypoint-matching: which points of two images show the same.

An input is a list of two images; a list of inputs is a list of such lists. Points are in the
images' own pixels.
"""

from __future__ import annotations

from service.core.errors import Refused, invalid
from service.tasks.base import Task
from service.tasks.checks import share, table
from service.tasks.examples import HARBOUR, NIGHT
from service.tasks.media import an_image
from service.tasks.parameter import Json
from service.tasks.schemas import BYTES, list_of

_PAIR = 2


def _parse(value: Json, pointer: str) -> Json:
    if not isinstance(value, list) or len(value) != _PAIR:
        raise Refused(invalid(pointer, "send a list of two images, each in base64"))
    return [an_image(one, f"{pointer}/{index}") for index, one in enumerate(value)]


TASK = Task(
    name="keypoint-matching",
    media="image",
    example=[HARBOUR, NIGHT],
    canary=[NIGHT, NIGHT],
    way="alone",
    needs={"PIL": "vision"},
    structured=True,
    parse=_parse,
    schema=list_of(BYTES, _PAIR, _PAIR),
    is_one=lambda value: not isinstance(value, list) or not all(isinstance(x, list) for x in value),
    parameters=table(share("threshold", "post", ": least score (default 0)")),
    bad_examples=(
        (HARBOUR, "one image is no pair"),
        ([HARBOUR], "one image is no pair"),
        ([HARBOUR, "http://localhost/a.png"], "an address is never opened"),
        ([HARBOUR, "/a/path.png"], "a path is never opened"),
        ([HARBOUR, HARBOUR, HARBOUR], "three images are no pair"),
    ),
    unit="patches of 16 x 16 pixels",
)
