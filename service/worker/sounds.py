"""Sound as bytes becomes samples at the model's rate, and samples become a WAV.

Decoded by libsndfile inside the process: no program is started, and bytes are all that it sees, so
that a name or an address in them is a file of no known kind. Limits are read from the header before
anything is decoded, and held again while it is: a header may lie.

Laws
- Kinds of file are an allow-list, asked of the first bytes and then of the library.
- Blocks of a second are decoded, mixed to one channel and resampled, so that what is held is the
  answer at the model's rate and one block, whatever the file's own rate and channels are.
- A file that is cut off is refused, not taken for a shorter one.
- More channels are mixed by their mean, as the stock pipelines do; another rate is changed by the
  soxr resampler (the stock pipelines start ffmpeg for that, or want torchaudio).
"""

from __future__ import annotations

import base64
import io
import wave
from typing import Any

import numpy as np
import soundfile
import soxr

from service.tasks.media import MAX_RATE_HZ, MIN_RATE_HZ
from service.worker.interface import Foreign, Unsuitable

MAX_SOUND_S = 600
"""Ten minutes: 38 MB of samples at the usual 16 kHz, as much again in features."""

MAX_CHANNELS = 8
"""Of a film's sound, 7.1. Each costs the time of decoding it."""

MAX_LEVEL = 2.0**31
"""Full scale is 1; files of floating point may hold whole numbers of up to 32 bits instead."""

_UNKNOWN_FRAMES = 2**62
"""A header that does not say how long it is counts as endless."""

_FORMATS = frozenset({"WAV", "WAVEX", "FLAC", "OGG", "MP3"})
_SUBTYPES = frozenset({
    "PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW",
    "VORBIS", "OPUS", "MPEG_LAYER_III",
})  # fmt: skip

WHAT_TO_SEND = "send a sound as WAV, FLAC, OGG (Vorbis or Opus) or MP3"

_STREAMED_BYTES = 0x7FFFF000
"""A WAV that was written to a pipe says so much, or nothing, for a length that it cannot know."""

Samples = np.ndarray[Any, np.dtype[np.float32]]


def read_sound(data: bytes, rate_hz: int) -> Samples:
    """The samples of a sound, one channel at ``rate_hz``.

    Raises:
        Unsuitable: it is none of the known kinds, broken, too long, or has too many channels.
    """
    if not _looks_known(data):
        raise Unsuitable(WHAT_TO_SEND)
    if _is_cut_off(data):
        raise Unsuitable("send the whole file: this one ends before its header says")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            _check(file)
            samples = _decoded(file, rate_hz)
    except soundfile.SoundFileError as error:
        raise Unsuitable("send a whole file: this one is broken or cut off") from error
    if not len(samples):
        raise Unsuitable("send a sound that is not empty")
    if not np.isfinite(samples).all() or np.abs(samples).max() > MAX_LEVEL:
        raise Unsuitable("send samples that are numbers, from -1 to 1")
    return samples


def write_wav(samples: Foreign, rate_hz: int) -> str:
    """A WAV of 16 bits in base64.

    Args:
        samples: of shape (samples,) or (channels, samples), from -1 to 1; what is louder is cut.
        rate_hz: samples of a second.
    """
    channels = np.atleast_2d(np.asarray(samples, dtype=np.float32))
    whole = np.rint(np.clip(channels, -1, 1) * 32767).astype("<i2")
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(len(whole))
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(whole.T.tobytes())
    return base64.b64encode(written.getvalue()).decode()


def _looks_known(data: bytes) -> bool:
    if data[:4] == b"RIFF":
        return data[8:12] == b"WAVE"
    if data[:4] in {b"fLaC", b"OggS"} or data[:3] == b"ID3":
        return True
    # The first frame of an MP3: eleven bits set, then version, and layer III.
    return len(data) > 2 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2  # noqa: PLR2004


def _is_cut_off(data: bytes) -> bool:
    """Whether a WAV or OGG ends within what it announces; the library takes what is there."""
    if data[:4] == b"OggS":
        return _ends_within_a_page(data)
    if data[:4] != b"RIFF":
        return False
    at = 12
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"data":
            return 0 < size < _STREAMED_BYTES and at + 8 + size > len(data)
        at += 8 + size + size % 2
    return True


def _ends_within_a_page(data: bytes) -> bool:
    """By the last page: a head of 27 bytes, the number of its segments, their lengths, they."""
    at = data.rfind(b"OggS")
    count = data[at + 26] if at + 27 <= len(data) else len(data)
    lengths = data[at + 27 : at + 27 + count]
    last = bool(data[at + 5] & 4) if at + 6 <= len(data) else False
    return not last or len(lengths) < count or at + 27 + count + sum(lengths) > len(data)


def _check(file: Foreign) -> None:
    if file.format not in _FORMATS or file.subtype not in _SUBTYPES:
        raise Unsuitable(WHAT_TO_SEND)
    if file.channels > MAX_CHANNELS:
        raise Unsuitable(f"send a sound of at most {MAX_CHANNELS} channels", limit=MAX_CHANNELS)
    if not MIN_RATE_HZ <= file.samplerate <= MAX_RATE_HZ:
        raise Unsuitable(f"send a sound of {MIN_RATE_HZ} to {MAX_RATE_HZ} samples a second")
    if MAX_SOUND_S * file.samplerate < file.frames < _UNKNOWN_FRAMES:
        raise _too_long()


def _decoded(file: Foreign, rate_hz: int) -> Samples:
    change = soxr.ResampleStream(file.samplerate, rate_hz, 1, dtype="float32")
    same = file.samplerate == rate_hz
    parts: list[Samples] = []
    frames = 0
    # What is broken raises where it is met, or ends early, by the kind of file.
    while len(block := file.read(file.samplerate, dtype="float32", always_2d=True)):
        frames += len(block)
        if frames > MAX_SOUND_S * file.samplerate:
            raise _too_long()
        mono = block[:, 0] if file.channels == 1 else block.mean(axis=1)
        parts.append(mono if same else change.resample_chunk(mono))
    if frames < file.frames < _UNKNOWN_FRAMES:
        raise Unsuitable("send the whole file: this one ends before its header says")
    if frames and not same:
        parts.append(change.resample_chunk(np.zeros(0, np.float32), last=True))
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _too_long() -> Unsuitable:
    return Unsuitable(f"send a sound of at most {MAX_SOUND_S} s", limit=MAX_SOUND_S)
