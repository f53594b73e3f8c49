"""Frames on a byte stream: four bytes of length (big-endian) and that many bytes.

Laws
- A frame has at most :data:`MAX_FRAME` bytes, on both sides.
- What arrives in pieces comes out whole, in order, once.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_FRAME = 64 * 1024 * 1024
"""Largest frame in bytes: well over the largest body, well under what would hurt."""

_LENGTH_BYTES = 4


class WireError(Exception):
    """The other side broke the protocol; the message is ours and holds nothing it sent."""


def framed(body: bytes) -> bytes:
    """A body with its length in front.

    Raises:
        WireError: it is over :data:`MAX_FRAME`.
    """
    if len(body) > MAX_FRAME:
        raise WireError("frame too large")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


class Splitter:
    """Cuts a byte stream into frame bodies; feed it whatever arrived."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each complete frame body.

        Raises:
            WireError: a frame announces more than :data:`MAX_FRAME` bytes.
        """
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _LENGTH_BYTES:
                body = start + _LENGTH_BYTES
                length = int.from_bytes(self._buffer[start:body], "big")
                if length > MAX_FRAME:
                    raise WireError("frame too large")
                end = body + length
                if len(self._buffer) < end:
                    break
                yield bytes(self._buffer[body:end])
                start = end
        finally:
            del self._buffer[:start]
