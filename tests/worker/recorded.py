"""Sounds for tests: made here, always the same."""

from __future__ import annotations

import base64
import io
import wave
from typing import Any

import numpy as np

RATE_HZ = 16000


def samples(seconds: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A sound of such a length: tones that come and go, and a little noise."""
    chance = np.random.default_rng(round(seconds * 1000))
    times = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    tones = sum(
        np.sin(2 * np.pi * pitch * times) * (np.sin(7 * times + pitch) > 0)
        for pitch in chance.uniform(80, 3000, 4)
    )
    sound = 0.1 * tones + 0.05 * chance.standard_normal(len(times))
    whole = np.rint(np.clip(sound, -1, 1) * 32767)
    return np.asarray(whole / 32768, np.float32)


def wav(seconds: float) -> str:
    """The same as a file, in base64."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes((samples(seconds) * 32768).astype("<i2").tobytes())
    return base64.b64encode(written.getvalue()).decode()
