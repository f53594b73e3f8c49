"""Images: from bytes to a picture that the stock pipelines take, and from a picture to PNG.

Laws
- The size is read from the header; nothing is decoded before it is known to be small enough. A
  small file can claim, and be, a huge picture.
- Only the formats of :data:`FORMATS` are tried: what reads SVG, EPS and PDF runs programs, and a
  TIFF's tiles may claim any size.
- Whatever is wrong with a file is the input's own fault: foreign decoders raise anything.
- As the stock ``load_image`` has it: turned as EXIF says, then RGB; of a GIF the first frame.
"""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

from PIL import Image, ImageOps

from service.worker.interface import Unsuitable

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")

MAX_RATIO = 64
"""Of the long side to the short one. Many models want the short side at a length of their own:
a line of one pixel would become a picture of gigabytes."""

MAX_SCANS = 64
"""Of a JPEG; a progressive one has ten. Each goes over the whole picture, however short it is."""

_SCAN = b"\xff\xda"
"""Stands in a JPEG only where a scan begins, and in embedded previews."""

_WHAT = f"send an image as {', '.join(FORMATS)}"


def open_image(data: bytes, max_pixels: int) -> Image.Image:
    """The picture, decoded.

    Raises:
        Unsuitable: not an image of these formats, damaged, or too large.
    """
    # Our own limit is asked first and is smaller; the library's warns or raises as it likes.
    Image.MAX_IMAGE_PIXELS = None
    try:
        image = Image.open(BytesIO(data), formats=FORMATS)
    except MemoryError:
        raise
    except Exception as error:
        # Foreign decoders raise anything, and all of it means this.
        raise Unsuitable(f"{_WHAT}; these bytes are none of them, or damaged") from error
    with image:
        _check(image.size, max_pixels)
        if image.format in {"JPEG", "MPO"} and data.count(_SCAN) > MAX_SCANS:
            raise Unsuitable(f"send a JPEG of at most {MAX_SCANS} scans", limit=MAX_SCANS)
        try:
            image.load()
            return ImageOps.exif_transpose(image).convert("RGB")
        except MemoryError:
            raise  # no fault of the file: it is small enough
        except Exception as error:
            # As above.
            raise Unsuitable("send the whole image; this one is cut off or damaged") from error


def _check(size: tuple[int, int], max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels:
        raise Unsuitable(
            f"the image has {width} x {height} pixels; send one of at most {max_pixels}",
            limit=max_pixels,
        )
    if max(size) > MAX_RATIO * min(size):
        message = f"send an image whose long side is at most {MAX_RATIO} times its short side"
        raise Unsuitable(message, limit=MAX_RATIO)


def as_png(picture: Any) -> str:  # noqa: ANN401 - of a library that may be absent
    """A picture as PNG in base64.

    Args:
        picture: a Pillow image, or a matrix of booleans: a mask, white where it is true.
    """
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    written = BytesIO()
    image.save(written, "PNG")
    return base64.b64encode(written.getvalue()).decode("ascii")
