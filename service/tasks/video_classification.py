"""video-classification: what happens in a film, by the labels of the model."""

from __future__ import annotations

from collections.abc import Mapping

from service.core.errors import FieldError
from service.tasks.base import Task
from service.tasks.checks import at, choice, table, whole
from service.tasks.film import FILM
from service.tasks.media import a_video
from service.tasks.parameter import Json

MAX_FRAMES = 1024
"""That are decoded to find those that a model looks at: 40 s of a film, a second or two of work."""

MAX_LOOKED_AT = 128
MAX_EVERY = 64


def _together(parameters: Mapping[str, Json]) -> FieldError | None:
    # What a model looks at by itself is held against its own number by the worker.
    frames = parameters.get("num_frames", 1) * parameters.get("frame_sampling_rate", 1)
    if frames > MAX_FRAMES:
        return at("num_frames", f"send at most {MAX_FRAMES} / frame_sampling_rate")
    return None


TASK = Task(
    name="video-classification",
    media="video",
    example=FILM,
    canary=FILM,
    way="watching",
    needs={"av": "vision", "PIL": "vision"},
    own_head=True,
    parse=a_video,
    parameters=table(
        whole("num_frames", "prepare", 1, MAX_LOOKED_AT, ", with a model that takes any number"),
        whole("frame_sampling_rate", "prepare", 1, MAX_EVERY, ": every so many frames"),
        whole("top_k", "post", 1, note=": how many labels (default 5)"),
        choice("function_to_apply", "post", ("softmax", "sigmoid", "none")),
    ),
    bad_examples=((5, "no film"), ("http://localhost/a.mp4", "an address is never opened")),
    unit="patches of 16 x 16 pixels",
    together=_together,
)
