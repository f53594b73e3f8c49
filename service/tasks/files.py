"""Files of samples and pixels, written here: what they hold is read back number for number.

The front has no library of sounds or images; a WAV is a head before the samples, and a PNG that is
not compressed is rows between checksums.
"""

from __future__ import annotations

import struct
import zlib

_RIFF = struct.Struct("<4sI4s4sIHHIIHH4sI")
_FMT_BYTES = 16
_WHOLE, _FLOATING = 1, 3
"""How a WAV calls its samples."""

_PNG = b"\x89PNG\r\n\x1a\n"
_RGB = 3


def wav(samples: bytes, rate_hz: int, *, floating: bool) -> bytes:
    """A WAV of one channel.

    Args:
        samples: little-endian; of 32 bits if ``floating``, else whole numbers of 16 bits.
        rate_hz: samples of a second.
        floating: which of them they are.
    """
    width, kind = (4, _FLOATING) if floating else (2, _WHOLE)
    head = _RIFF.pack(
        b"RIFF", _RIFF.size - 8 + len(samples), b"WAVE",
        b"fmt ", _FMT_BYTES, kind, 1, rate_hz, rate_hz * width, width, 8 * width,
        b"data", len(samples),
    )  # fmt: skip
    return head + samples


def png(pixels: bytes, width: int, height: int, level: int = 0) -> bytes:
    """A PNG of red, green and blue, a byte each.

    Args:
        pixels: row after row.
        width: pixels of a row.
        height: rows.
        level: how hard to press it, from 0 (not at all) to 9.
    """
    row = _RGB * width
    rows = b"".join(b"\0" + pixels[at : at + row] for at in range(0, row * height, row))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows, level))
    return _PNG + body + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(data, zlib.crc32(kind))
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
