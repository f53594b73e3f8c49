"""What tasks that generate token by token have in common."""

from __future__ import annotations

from collections.abc import Mapping

from service.tasks.base import Work
from service.tasks.checks import texts
from service.tasks.parameter import Json, Parameter

DEFAULT_NEW_TOKENS = 256
"""The stock pipelines', where the model's own configuration names no other."""

MAX_STOPS = 8
MAX_STOP_CHARS = 64


def stops(name: str, stock: str = "") -> Parameter:
    """Texts that end the generation; ``stock`` is the library's name for it, if it has another."""
    return texts(
        name, "forward", "a text that ends the generation",
        most=MAX_STOPS, chars=MAX_STOP_CHARS, stock=stock,
    )  # fmt: skip


def steps(parameters: Mapping[str, Json]) -> Work:
    """As many as may be generated."""
    return Work(steps=parameters.get("max_new_tokens", DEFAULT_NEW_TOKENS))
