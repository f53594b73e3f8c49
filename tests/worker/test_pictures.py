"""Opening images: what is too large, damaged or of another format is refused, and costs nothing."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from service.tasks import TASKS
from service.tasks.files import png
from service.tasks.media import MAX_PIXELS
from service.worker.answers import encode_answer
from service.worker.interface import Unsuitable
from service.worker.opening import kept_bytes, opened
from service.worker.pictures import MAX_RATIO, MAX_SCANS, as_png, open_image
from tests.tools import ROOT
from tests.worker.images import MAKES, drawing, encoded
from tests.worker.served import pixels

TASK = TASKS["image-classification"]


def chunk(kind: bytes, data: bytes) -> bytes:
    """Of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def claimed(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG that says that it is so large."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def with_size(data: bytes, at: int, code: str, *size: int) -> bytes:
    """The same file, another size in its header."""
    packed = struct.pack(code, *size)
    return data[:at] + packed + data[at + len(packed) :]


PNG = encoded(drawing(60, 40))
GIF = encoded(drawing(60, 40).quantize(8), "GIF")
BMP = encoded(drawing(60, 40), "BMP")
JPEG = encoded(drawing(60, 40), "JPEG")
WEBP = encoded(drawing(60, 40), "WEBP")
FRAME = JPEG.index(b"\xff\xc0") + 5

HUGE = {
    "png": claimed(13_000, 13_000),
    "png, more than 32 bits": claimed(2**31 - 1, 2**31 - 1),
    "png, just over": claimed(MAX_PIXELS // 4096 + 1, 4096),
    "gif": with_size(GIF, 6, "<HH", 65_535, 65_535),
    "bmp": with_size(BMP, 18, "<ii", 50_000, 50_000),
    "bmp, negative": with_size(BMP, 18, "<ii", -5, 40),
    "jpeg": with_size(JPEG, FRAME, ">HH", 65_000, 65_000),
}
LINES = {"line": claimed(MAX_RATIO * 2 + 1, 2), "column": claimed(1, 20_000)}

DAMAGED = {
    "nothing": b"",
    "text": b"not an image",
    "png head": PNG[:8],
    "png, cut off": PNG[:-200],
    "png, half": PNG[: len(PNG) // 2],
    "png without data": claimed(60, 40),
    "png, other data": claimed(60, 40, b"not deflated"),
    "png, wrong sum": PNG[:40] + b"\0" + PNG[41:],
    "png of no size": claimed(0, 40),
    "gif, cut off": GIF[:-60],
    "bmp, cut off": BMP[:-500],
    "jpeg, cut off": JPEG[: len(JPEG) // 2],
    "jpeg without a picture": JPEG[:FRAME],
    "webp, cut off": WEBP[:-50],
}
FOREIGN = {
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><image href="/a"/></svg>',
    "eps": encoded(drawing(9, 9), "EPS"),
    "pdf": encoded(drawing(9, 9), "PDF"),
    "tiff": encoded(drawing(9, 9), "TIFF"),
    "ico": encoded(drawing(16, 16), "ICO"),
    "tga": encoded(drawing(9, 9), "TGA"),
    "ppm": encoded(drawing(9, 9), "PPM"),
    "icns": encoded(drawing(32, 32), "ICNS"),
    "jpeg 2000": encoded(drawing(9, 9), "JPEG2000"),
    "postscript": b"%!PS-Adobe-3.0\nshowpage\n",
    "wmf": b"\xd7\xcd\xc6\x9a" + bytes(80),
    "archive": b"PK\x03\x04" + bytes(80),
}


@pytest.mark.parametrize("level", [0, 9])
@pytest.mark.parametrize("size", [(1, 1), (7, 5), (60, 40), (300, 200)])
def test_pixels_come_back(size: tuple[int, int], level: int) -> None:
    """A PNG made of bare pixels is opened as they are, number for number."""
    picture = drawing(*size)
    opened = open_image(png(picture.tobytes(), *size, level), MAX_PIXELS)
    assert (opened.size, opened.tobytes()) == (size, picture.tobytes())


@pytest.mark.parametrize("name", HUGE)
def test_a_size_is_refused_by_its_header(name: str) -> None:
    """More pixels than the limit are refused before anything is decoded, and both are named."""
    with pytest.raises(Unsuitable) as caught:
        open_image(HUGE[name], MAX_PIXELS)
    assert caught.value.limit == MAX_PIXELS
    assert str(MAX_PIXELS) in caught.value.message


def test_a_task_may_take_less() -> None:
    """Where an answer is as large as the image, the image is smaller."""
    task = TASKS["depth-estimation"]
    assert task.max_pixels < MAX_PIXELS
    with pytest.raises(Unsuitable) as caught:
        opened(claimed(2048, 1025), task)
    assert caught.value.limit == task.max_pixels


@pytest.mark.parametrize("name", LINES)
def test_a_line_is_no_picture(name: str) -> None:
    """A long side that would grow without bound with the short one is refused."""
    with pytest.raises(Unsuitable, match="unsuitable") as caught:
        open_image(LINES[name], MAX_PIXELS)
    assert str(MAX_RATIO) in caught.value.message


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_the_clients(name: str) -> None:
    """What is cut off, empty or false is refused with a sentence of ours."""
    with pytest.raises(Unsuitable) as caught:
        open_image(DAMAGED[name], MAX_PIXELS)
    assert caught.value.message.startswith("send ")


@pytest.mark.parametrize("name", FOREIGN)
def test_other_formats_are_not_tried(name: str) -> None:
    """Formats whose readers run programs, or take any size, are refused like any other bytes."""
    with pytest.raises(Unsuitable) as caught:
        open_image(FOREIGN[name], MAX_PIXELS)
    assert "PNG, JPEG" in caught.value.message


def test_a_jpeg_of_endless_scans() -> None:
    """A JPEG that goes over its picture again and again is refused before it does."""
    data = encoded(drawing(60, 40), "JPEG", progressive=True)
    scan = data[data.rindex(b"\xff\xda") : -2]
    open_image(data, MAX_PIXELS)
    with pytest.raises(Unsuitable) as caught:
        open_image(data[:-2] + scan * (MAX_SCANS + 1) + data[-2:], MAX_PIXELS)
    assert caught.value.limit == MAX_SCANS


@pytest.mark.parametrize("make", MAKES, ids=range(len(MAKES)))
def test_as_the_stock_pipelines_open_it(make: str) -> None:
    """Turned as EXIF says, in RGB, the first frame: pixel by pixel what the library has."""
    from transformers.image_utils import load_image

    image = open_image(TASK.parse(make, ""), MAX_PIXELS)
    right = load_image(make)
    assert (image.size, image.mode) == (right.size, "RGB")
    assert image.tobytes() == right.tobytes()


def test_only_bytes_are_opened() -> None:
    """Nothing but bytes reaches a decoder; texts and numbers stay what they are."""
    value = {"question": "/etc/hostname", "image": PNG, "more": [PNG, "http://localhost", 5]}
    found = opened(value, TASK)
    assert (found["question"], found["more"][1:]) == ("/etc/hostname", ["http://localhost", 5])
    assert found["image"].size == found["more"][0].size == (60, 40)
    assert kept_bytes(found) == 2 * 60 * 40 * 3


def test_pictures_and_masks_become_png() -> None:
    """A picture in an answer is PNG in base64; so is a mask; a row of booleans stays one."""
    image = drawing(9, 7)
    assert (pixels(as_png(image)) == np.asarray(image)).all()
    mask = np.eye(4, dtype=bool)
    answer = encode_answer({"mask": mask, "row": mask[0], "image": image})
    assert answer.count(b'"iVBORw0KGgo') == 2
    assert b"[true,false,false,false]" in answer


def measured(program: str) -> int:
    """By how many MiB the most memory of a process grew while it ran the program."""
    code = f"""
import resource, sys
from service.tasks.media import MAX_PIXELS
from service.worker.interface import Unsuitable
from service.worker.pictures import open_image
from tests.worker.test_pictures import *
open_image(PNG, MAX_PIXELS)
def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = most()
{program}
print((most() - before) // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_bombs_take_no_memory() -> None:
    """Half a megabyte that is a huge picture, twenty times, costs no memory beyond the files."""
    assert (
        measured("""
import zlib
bomb = claimed(13_000, 13_000, zlib.compress(bytes(13_000 * 39_001), 1))
before = most()
for _ in range(20):
    for data in (bomb, *HUGE.values(), *LINES.values()):
        try:
            open_image(data, MAX_PIXELS)
        except Unsuitable:
            continue
        raise AssertionError
""")
        < 50
    )


def test_the_largest_picture_fits() -> None:
    """A picture at the limit is opened, turned and copied in four times its own size."""
    assert (
        measured("""
import io
from PIL import Image
written = io.BytesIO()
exif = Image.Exif()
exif[0x0112] = 6
Image.new("L", (8192, 4096)).save(written, "PNG", exif=exif, compress_level=1)
assert 8192 * 4096 == MAX_PIXELS
before = most()
assert open_image(written.getvalue(), MAX_PIXELS).size == (4096, 8192)
""")
        < 4 * 3 * MAX_PIXELS // 2**20
    )


def test_an_answer_is_not_a_picture_by_name() -> None:
    """What only looks like numbers is none: an unknown object is no JSON."""
    with pytest.raises(TypeError):
        encode_answer({"a": object()})
    assert encode_answer(np.float32(0.5)) == b"0.5"


def test_the_limit_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own limit, which warns, plays no part."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    made: Any = open_image(PNG, MAX_PIXELS)
    assert made.size == (60, 40)
