"""Pictures, sounds and films in a request: their bytes, and nothing that would have to be fetched.

=====================================  =========================================================
a medium comes as                      and is
=====================================  =========================================================
the body itself (``image/png``, …)     its bytes
a string in JSON                       base64, also in lines, or a ``data:`` URL with base64
an address, a path, anything else      a 422 that says what to send; nothing is opened
=====================================  =========================================================

Laws
- What an entry's ``parse`` returns holds a medium as ``bytes``; JSON has none, so that they are
  told from everything else.
- Bytes travel to the worker beside the text, in one piece, and a text of a client can never name a
  part of it.
- What is inside is for the worker to find out: this room decodes base64 and no format.
"""

from __future__ import annotations

import binascii
import json
import re
from typing import Any, Literal

from service.core.errors import Refused, invalid

Json = Any
"""A decoded JSON value, or ``bytes`` for a medium."""

Medium = Literal["text", "image", "audio", "video"]

MAX_PIXELS = 2**25
"""Of one image: an 8K frame. It takes 96 MiB as RGB, three times that while it is copied."""

MIN_RATE_HZ, MAX_RATE_HZ = 4_000, 192_000
"""Samples of a second: half of a telephone's, and the highest of sound cards."""

MARK = "\0"
"""Begins an input that travels as JSON, in a task whose inputs are not only texts."""

_PART = "\0"
"""The only member of the object that stands for a part of the bytes: where it begins and ends."""

_NAMES = {"image": "image", "audio": "sound", "video": "video"}
_DATA = re.compile(r"data:([^;,]*)((?:;[^;,]*)*);base64,", re.IGNORECASE)


def what_to_send(medium: Medium) -> str:
    """For messages."""
    return (
        f"send the bytes of the {_NAMES[medium]}, in base64 or as a data: URL; addresses and paths "
        "are never opened"
    )


def a_medium(value: Json, pointer: str, medium: Medium) -> bytes:
    """The bytes of one picture, sound or film.

    Args:
        value: the body's bytes, or the decoded JSON value.
        pointer: its JSON pointer, for the message.
        medium: which of them.

    Raises:
        Refused: ``invalid_input`` that names the pointer and says what to send.
    """
    refusal = Refused(invalid(pointer, what_to_send(medium)))
    if isinstance(value, bytes):
        if not value:
            raise refusal
        return value
    if not isinstance(value, str):
        raise refusal
    start = 0
    if value[:5].lower() == "data:":
        head = _DATA.match(value)
        if head is None:
            raise refusal
        kind = head[1].strip().lower()
        if kind not in {"", "application/octet-stream"} and not kind.startswith(f"{medium}/"):
            raise refusal
        start = head.end()
    text = value[start:] if start else value
    if text[-1:].isspace() or "\n" in text:  # as base64(1) writes it
        text = "".join(text.split())
    try:
        found = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # binascii.Error too
        raise refusal from None
    if not found:
        raise refusal
    return found


def an_image(value: Json, pointer: str) -> bytes:
    """An image: see :func:`a_medium`."""
    return a_medium(value, pointer, "image")


def a_sound(value: Json, pointer: str) -> bytes:
    """A sound: see :func:`a_medium`."""
    return a_medium(value, pointer, "audio")


def a_video(value: Json, pointer: str) -> bytes:
    """A film: see :func:`a_medium`."""
    return a_medium(value, pointer, "video")


def packed(value: Json) -> tuple[str, bytes]:
    """A parsed input of a media task as it travels: text, and the bytes beside it."""
    if isinstance(value, bytes):
        return "", value
    parts: list[bytes] = []
    end = 0

    def part(found: Json) -> Json:
        nonlocal end
        if not isinstance(found, bytes):
            raise TypeError("not JSON")
        start, end = end, end + len(found)
        parts.append(found)
        return {_PART: [start, end]}

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=part)
    return MARK + text, b"".join(parts)


def unpacked(text: str, media: bytes) -> Json:
    """The input that :func:`packed` has packed."""
    if not text.startswith(MARK):
        return media

    def part(found: dict[str, Any]) -> Json:
        if found.keys() != {_PART}:
            return found
        start, end = found[_PART]
        return media[start:end]

    return json.loads(text[len(MARK) :], object_hook=part)
