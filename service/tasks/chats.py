"""Chats: an input that is a list of messages, each with a role and a content."""

from __future__ import annotations

from collections.abc import Callable

from service.core.errors import Refused, invalid
from service.tasks.parameter import Json
from service.tasks.schemas import Schema, list_of, members

MAX_MESSAGES = 256

BAD_CHATS = (
    ([{"role": "user"}], "a message has role and content"),
    ([{"role": "king", "content": "a"}], "a role is one of three"),
)
"""Inputs that are refused, with the reason."""

_ROLES = ("system", "user", "assistant")


def is_chat(value: Json) -> bool:
    """Whether it is meant as one: a list that begins with an object."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def a_chat(value: Json, pointer: str, content: Callable[[Json, str], Json]) -> list[Json]:
    """Its messages, of what :func:`is_chat`.

    Args:
        value: as it was sent.
        pointer: where.
        content: parses the content of one message.

    Raises:
        Refused: too many, or something in one of them.
    """
    if len(value) > MAX_MESSAGES:
        raise Refused(invalid(pointer, f"send at most {MAX_MESSAGES} messages"))
    chat = []
    for index, message in enumerate(value):
        here = f"{pointer}/{index}"
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            raise Refused(invalid(here, "send a message with 'role' and 'content'"))
        if message["role"] not in _ROLES:
            raise Refused(invalid(f"{here}/role", f"send one of {', '.join(_ROLES)}"))
        said = content(message["content"], f"{here}/content")
        chat.append({"role": message["role"], "content": said})
    return chat


def chat_schema(content: Schema) -> Schema:
    """Of a chat whose messages have such a content."""
    return list_of(members(role={"enum": [*_ROLES]}, content=content), 1, MAX_MESSAGES)
