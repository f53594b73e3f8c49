"""Members of a request's objects, wherever they stand."""

from __future__ import annotations

from collections.abc import Mapping

from service.core.errors import Refused, invalid
from service.tasks.parameter import Json


def only(value: Mapping[str, Json], known: frozenset[str], at: str) -> None:
    """Refuse members that are not known, unless they are ``null``.

    Raises:
        Refused: ``invalid_input``.
    """
    if any(given is not None for name, given in value.items() if name not in known):
        names = ", ".join(sorted(known))
        raise Refused(invalid(at, f"unknown member; known are: {names}"))


def object_of(value: Json, at: str) -> dict[str, Json]:
    """An object to take things from, empty for ``null``.

    Raises:
        Refused: ``invalid_input``.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refused(invalid(at, "send an object"))
    return dict(value)


def take_text_type(parameters: dict[str, Json], at: str) -> None:
    """Take out what some clients say of texts.

    Raises:
        Refused: ``invalid_input``: it is another kind of content.
    """
    if parameters.pop("content_type", None) not in (None, "str"):
        raise Refused(invalid(f"{at}/content_type", "send 'str', or leave it out"))
