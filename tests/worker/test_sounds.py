"""Sounds are decoded within limits that are read before anything is: kinds, length, rate, whole."""

from __future__ import annotations

import base64
import io
import math
import os
import struct
import subprocess
import sys
import wave
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from service.tasks.files import wav
from service.worker.interface import Unsuitable
from service.worker.sounds import MAX_CHANNELS, MAX_SOUND_S, read_sound, write_wav

RATE_HZ = 16000
KINDS = [
    ("WAV", "PCM_16"), ("WAV", "PCM_U8"), ("WAV", "PCM_24"), ("WAV", "FLOAT"), ("WAV", "ULAW"),
    ("WAVEX", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS"),
    ("MP3", "MPEG_LAYER_III"),
]  # fmt: skip


def tone(seconds: float, rate_hz: int = RATE_HZ) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A tone."""
    return np.asarray(0.3 * np.sin(np.arange(round(seconds * rate_hz)) * 0.05), np.float32)


def file(samples: Any, kind: str = "WAV", subtype: str | None = None, rate: int = RATE_HZ) -> bytes:
    """The samples as a file."""
    written = io.BytesIO()
    soundfile.write(written, samples, rate, format=kind, subtype=subtype)
    return written.getvalue()


def refusal(data: bytes) -> str:
    """Why it is refused."""
    with pytest.raises(Unsuitable) as caught:
        read_sound(data, RATE_HZ)
    assert caught.value.message.startswith("send ")
    return caught.value.message


@pytest.mark.parametrize("kind,subtype", KINDS)
def test_every_known_kind(kind: str, subtype: str) -> None:
    """Each kind of the list is heard as what it was made of, but for what it loses itself."""
    heard = read_sound(file(tone(1), kind, subtype), RATE_HZ)
    assert heard.dtype == np.float32
    assert len(heard) == RATE_HZ
    middle = slice(2000, 14000)
    if subtype == "OPUS":  # another phase
        assert np.std(heard[middle]) == pytest.approx(np.std(tone(1)), rel=0.1)
    else:
        limit = 0.1 if kind in {"OGG", "MP3"} else 0.02
        assert np.abs(heard - tone(1))[middle].max() < limit


@pytest.mark.parametrize("floating", [True, False])
def test_samples_come_back(floating: bool) -> None:
    """A WAV made of bare samples is heard as they are, number for number, at any rate."""
    whole = np.array([0, 1, -1, 32767, -32768], np.int16)
    samples = np.asarray(tone(0.1) * 3) if floating else whole
    data = wav(samples.tobytes(), RATE_HZ, floating=floating)
    right = samples if floating else np.asarray(whole / 32768, np.float32)
    assert np.array_equal(read_sound(data, RATE_HZ), right)
    with soundfile.SoundFile(io.BytesIO(wav(samples.tobytes(), 44_100, floating=floating))) as file:
        assert (file.samplerate, file.channels, file.frames) == (44_100, 1, len(samples))


@pytest.mark.parametrize("number", [math.nan, math.inf, 1e30])
def test_samples_that_are_none(number: float) -> None:
    """A number that is no sample is refused among good ones."""
    samples = np.array([0, number, 0], np.float32)
    assert "numbers" in refusal(wav(samples.tobytes(), RATE_HZ, floating=True))


def test_channels_are_mixed_by_their_mean() -> None:
    """Of two channels the mean is heard."""
    both = np.stack([tone(1), 0.5 * tone(1)], axis=1)
    assert np.allclose(read_sound(file(both, subtype="FLOAT"), RATE_HZ), 0.75 * tone(1))


@pytest.mark.parametrize("rate_hz", [8000, 22050, 44100, 48000, 96000])
def test_other_rates_are_changed(rate_hz: int) -> None:
    """A sound of another rate is heard as soxr makes it in one go, block by block."""
    samples = tone(2.5, rate_hz)
    heard = read_sound(file(samples, subtype="FLOAT", rate=rate_hz), RATE_HZ)
    right = soxr.resample(samples, rate_hz, RATE_HZ)
    assert abs(len(heard) - len(right)) <= 1
    shorter = min(len(heard), len(right))
    assert np.allclose(heard[:shorter], right[:shorter], atol=1e-5)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"R", b"http://127.0.0.1/a.wav", b"/etc/hostname", bytes(1000), b"RIFF" + bytes(60),
        b"#EXTM3U\nhttp://127.0.0.1/a.mp3\n", file(tone(1), "AIFF"), file(tone(1), "CAF"),
        file(tone(1), "AU"), file(tone(1), "WAV", "MS_ADPCM"), file(tone(1, 8000), "WAV", "GSM610"),
        b"\x89PNG\r\n\x1a\n" + bytes(50), b"\0asm" + bytes(50), b"ID3" + bytes(200),
    ],
    ids=lambda data: repr(data[:8]),
)  # fmt: skip
def test_other_kinds_are_refused(data: bytes) -> None:
    """What is no sound of the list is refused, and what was sent is not repeated."""
    message = refusal(data)
    assert "127" not in message
    assert "etc" not in message


@pytest.mark.parametrize("kind,subtype", KINDS)
@pytest.mark.parametrize("part", [0.9, 0.5, 0.1])
def test_cut_off(kind: str, subtype: str, part: float) -> None:
    """A file that ends too early is refused, not taken for a shorter one."""
    data = file(tone(3), kind, subtype)
    refusal(data[: round(part * len(data))])


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "MP3"])
def test_hours_are_refused_by_the_header(kind: str) -> None:
    """What is too long by its header is refused before a sample is decoded."""
    data = file(np.zeros((MAX_SOUND_S + 1) * 8000, np.int16), kind, rate=8000)
    assert str(MAX_SOUND_S) in refusal(data)


@pytest.mark.parametrize("frames", [0, 2**36 - 1, 16000])
def test_a_header_that_lies(frames: int) -> None:
    """A FLAC that says nothing, hours, or less of its length never gives more than the limit."""
    data = bytearray(file(np.zeros((MAX_SOUND_S + 1) * RATE_HZ, np.int16), "FLAC"))
    head = int.from_bytes(data[18:26], "big") >> 36 << 36
    data[18:26] = (head | frames).to_bytes(8, "big")
    try:
        assert len(read_sound(bytes(data), RATE_HZ)) <= MAX_SOUND_S * RATE_HZ
    except Unsuitable:
        assert frames != 16000


def test_a_wav_of_unknown_length_is_heard() -> None:
    """A program that wrote it to a pipe cannot know; what is there counts."""
    data = bytearray(file(tone(1)))
    at = data.index(b"data") + 4
    data[at : at + 4] = struct.pack("<I", 0xFFFFFFFF)
    assert len(read_sound(bytes(data), RATE_HZ)) == RATE_HZ


def test_too_many_channels_and_odd_rates() -> None:
    """Channels and rates have limits."""
    assert str(MAX_CHANNELS) in refusal(file(np.zeros((100, MAX_CHANNELS + 1)), subtype="PCM_16"))
    assert "samples a second" in refusal(file(tone(1), rate=1000))
    assert "samples a second" in refusal(file(tone(1), rate=400_000))


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38])
def test_samples_are_numbers(value: float) -> None:
    """A sample that is no number, or far from one of a sound, is refused."""
    samples = tone(1)
    samples[500] = value
    assert "numbers" in refusal(file(samples, subtype="FLOAT"))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_is_in_the_bytes(data: st.DataObject) -> None:
    """Any bytes give samples or a refusal of ours, never another exception."""
    kind, subtype = data.draw(st.sampled_from([k for k in KINDS if k[0] != "MP3"]))
    spoiled = bytearray(file(tone(0.2), kind, subtype))
    for _ in range(data.draw(st.integers(1, 8))):
        spoiled[data.draw(st.integers(4, len(spoiled) - 1))] = data.draw(st.integers(0, 255))
    try:
        heard = read_sound(bytes(spoiled), RATE_HZ)
    except Unsuitable:
        return
    assert heard.ndim == 1
    assert len(heard) <= MAX_SOUND_S * RATE_HZ
    assert np.isfinite(heard).all()


BOMB = """
import io, resource
import numpy as np, soundfile
from service.worker.interface import Unsuitable
from service.worker.sounds import read_sound
written = io.BytesIO()
with soundfile.SoundFile(written, "w", 24000, 8, format="FLAC") as file:
    for _ in range(601):
        file.write(np.zeros((24000, 8), np.int16))
data = written.getvalue()
cut = bytearray(data)
head = int.from_bytes(cut[18:26], "big") >> 36 << 36
cut[18:26] = head.to_bytes(8, "big")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for one in (data, bytes(cut)):
    try:
        read_sound(one, 16000)
    except Unsuitable as refusal:
        print(refusal.message)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_small_file_and_a_huge_sound() -> None:
    """Ten minutes of eight channels, 460 MB of samples, cost less than 200 MB to refuse."""
    done = subprocess.run(
        [sys.executable, "-c", BOMB], env=os.environ, capture_output=True, text=True, check=True
    )
    first, second, grown = done.stdout.splitlines()
    assert str(MAX_SOUND_S) in first
    assert second.startswith("send ")
    assert int(grown) < 200


def test_written_and_read_again() -> None:
    """A WAV of ours is read as the same samples, one channel or two; what is too loud is cut."""
    for samples in (
        tone(0.5),
        np.stack([tone(0.5), -tone(0.5)]),
        np.array([2.0, -2.0], np.float32),
    ):
        with wave.open(io.BytesIO(base64.b64decode(write_wav(samples, 24000)))) as written:
            assert written.getframerate() == 24000
            assert written.getnchannels() == np.atleast_2d(samples).shape[0]
            read = np.frombuffer(written.readframes(written.getnframes()), "<i2") / 32767
        right = np.clip(np.atleast_2d(samples), -1, 1).T.ravel()
        assert np.abs(read - right).max() < 1e-4
