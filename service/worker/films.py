"""Films: the frames that a model asks for, decoded from bytes in memory.

Decoded by FFmpeg's libraries inside the process (PyAV); no program is started. Those libraries read
playlists, and open what a playlist names: so the container is told from the first bytes and forced,
and no protocol is allowed beside the bytes at hand.

Laws
- Containers and codecs are allow-lists.
- The size of a frame is read from the header and looked at again with each frame: a film may change
  it on its way.
- No more frames are decoded than the last one that is wanted, and never more than
  :data:`MAX_FRAMES`; how long the film is beyond that costs nothing.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import av
import numpy as np

from service.tasks.video_classification import MAX_FRAMES
from service.worker.interface import Unsuitable

MAX_FRAME_PIXELS = 2**22
"""More than a film of 2560 x 1440; 12 MiB as colours. A model that looks at 64 frames holds 64."""

MAX_PIXELS = 2**27
"""Of all frames that are kept, 384 MiB as colours."""

_CODECS = frozenset({"h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg"})

WHAT_TO_SEND = "send a film as MP4, MOV, WebM, Matroska or AVI, not in an unusual codec"

_OPTIONS = {
    "protocol_whitelist": "none",
    "enable_drefs": "0",
    "use_absolute_path": "0",
    "max_streams": "16",
}

Frames = np.ndarray[Any, np.dtype[np.uint8]]


def read_frames(data: bytes, wanted: Sequence[int]) -> Frames:
    """The frames at these indices, of shape (frames, height, width, 3).

    Args:
        data: the file.
        wanted: indices from the beginning, rising; one may stand there more than once.

    Raises:
        Unsuitable: it is none of the known kinds, broken, too short or too large.
    """
    try:
        found = dict(_decoded(data, frozenset(wanted)))
    except (av.FFmpegError, ValueError, IndexError) as error:
        raise Unsuitable("send a whole film: this one is broken or cut off") from error
    if len(found) < len(set(wanted)):
        raise Unsuitable(
            f"send a film of at least {max(wanted) + 1} frames, or fewer num_frames",
            limit=max(wanted) + 1,
        )
    if len({frame.shape for frame in found.values()}) > 1:
        raise Unsuitable("send a film whose frames have one size")
    # As the stock pipeline: a frame that is wanted twice is there once.
    return np.stack([found[index] for index in sorted(found)])


def _decoded(data: bytes, wanted: frozenset[int]) -> Iterator[tuple[int, Frames]]:
    kind = _container(data)
    if kind is None:
        raise Unsuitable(WHAT_TO_SEND)
    last = min(max(wanted), MAX_FRAMES - 1)
    with av.open(io.BytesIO(data), "r", kind, container_options=dict(_OPTIONS)) as file:
        if not file.streams.video:
            raise Unsuitable(WHAT_TO_SEND)
        stream = file.streams.video[0]
        codec = stream.codec_context
        if codec.codec.canonical_name not in _CODECS:
            raise Unsuitable(WHAT_TO_SEND)
        _check(codec.width, codec.height, len(wanted))
        codec.thread_count = 1
        codec.options = {"max_pixels": str(MAX_FRAME_PIXELS)}
        for index, frame in enumerate(file.decode(stream)):
            if index > last:
                return
            if index in wanted:
                _check(frame.width, frame.height, len(wanted))
                yield index, np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)


def _container(data: bytes) -> str | None:
    if data[4:8] in {b"ftyp", b"moov", b"mdat", b"wide", b"free"}:
        return "mov"
    if data[:4] == b"\x1aE\xdf\xa3":
        return "matroska"
    if data[:4] == b"RIFF" and data[8:12] == b"AVI ":
        return "avi"
    return None


def _check(width: int, height: int, frames: int) -> None:
    if not width or not height:
        raise Unsuitable("send a whole film: this one is broken or cut off")
    most = min(MAX_FRAME_PIXELS, MAX_PIXELS // max(1, frames))
    if width * height > most:
        raise Unsuitable(f"send a film whose frames have at most {most} pixels", limit=most)
