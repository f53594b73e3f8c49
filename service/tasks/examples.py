"""Example media, drawn here: small, always the same, and nobody's property."""

from __future__ import annotations

import base64
from collections.abc import Callable

from service.tasks import files
from service.tasks.media import Json

SIDE = 32
"""Pixels; every model scales what it gets."""


def png(colour: Callable[[int, int], tuple[int, int, int]], side: int = SIDE) -> bytes:
    """A square PNG; ``colour`` gives red, green and blue of a pixel by column and row."""
    pixels = bytes(part for y in range(side) for x in range(side) for part in colour(x, y))
    return files.png(pixels, side, side, level=9)


def _harbour(x: int, y: int) -> tuple[int, int, int]:
    """Sky, a wall with a beacon, water."""
    if y < SIDE // 2:
        return (250, 210, 60) if (x - 24) ** 2 + (y - 6) ** 2 < 10 else (120, 170, 230 - 2 * y)  # noqa: PLR2004
    if y < SIDE * 5 // 8:
        return 130, 130, 120 + 8 * (x % 2)
    return 20, 60 + y, 110 + 5 * ((x + y) % 4)


def _night(x: int, y: int) -> tuple[int, int, int]:
    """Dark, with a few lights."""
    return (230, 220, 150) if (x * 7 + y * 13) % 61 == 0 else (10, 12, 30 + y)


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


HARBOUR = _data_url("image/png", png(_harbour))
NIGHT = _data_url("image/png", png(_night))

NO_IMAGES: tuple[tuple[Json, str], ...] = (
    (5, "an image is a string"),
    ("http://localhost/a.png", "an address is never opened"),
    ("/a/path.png", "a path is never opened"),
    ("data:text/plain;base64,YQ==", "a text is no image"),
    ("data:image/png,a", "only base64 is taken"),
    ("", "an image has bytes"),
)
"""Bad examples of every task whose input is one image."""
