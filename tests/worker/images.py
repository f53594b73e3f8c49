"""Images of every make for tests: drawn here, always the same."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image


def drawing(width: int, height: int, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """Stripes and patches, another one for each seed."""
    chance = np.random.default_rng(seed)
    rough = chance.integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return Image.fromarray(rough).resize((width, height)).convert(mode)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of a file."""
    written = BytesIO()
    image.save(written, kind, **options)
    return written.getvalue()


def url(data: bytes, kind: str = "png") -> str:
    """A ``data:`` URL, as the stock pipelines take it too."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def turned(width: int, height: int, orientation: int) -> bytes:
    """A JPEG of a camera that was held upright or upside down."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(drawing(width, height, orientation), "JPEG", exif=exif)


def _makes() -> list[str]:
    palette = drawing(50, 40, 3).quantize(16)
    frames = [drawing(40, 40, seed).quantize(8) for seed in (4, 5)]
    deep = Image.fromarray((np.arange(48 * 40).reshape(40, 48) * 30).astype(np.uint16))
    return [
        url(encoded(drawing(60, 40))),
        url(encoded(drawing(40, 60, 1))),
        url(encoded(drawing(33, 97, 2, "L"))),
        url(encoded(palette, transparency=3)),
        url(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]), "gif"),
        url(encoded(drawing(60, 40, 6, "RGBA"))),
        url(encoded(drawing(60, 40, 7), "WEBP", lossless=True), "webp"),
        url(encoded(drawing(60, 40, 8), "BMP"), "bmp"),
        url(encoded(drawing(60, 40, 9), "JPEG", progressive=True), "jpeg"),
        url(turned(60, 40, 6), "jpeg"),
        url(turned(60, 40, 3), "jpeg"),
        url(encoded(drawing(60, 40, 10, "CMYK"), "JPEG"), "jpeg"),
        url(encoded(drawing(60, 40, 11, "1"))),
        url(encoded(deep)),
    ]


MAKES: list[str] = _makes()
"""Every format and mode that is served, of several shapes."""

PLAIN = [url(encoded(drawing(60, 40, seed))) for seed in range(20, 26)]
"""Of one shape."""
