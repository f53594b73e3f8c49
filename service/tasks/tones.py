"""A short sound for examples and self-tests, made here: no file of sound is in the package."""

from __future__ import annotations

import base64
import io
import math
import wave

RATE_HZ = 4000
SECONDS = 1.0


def tone(pitch_hz: float) -> str:
    """A second of one rising tone, as WAV of 8 bits in base64: 5 KB."""
    frames = bytearray()
    for index in range(round(RATE_HZ * SECONDS)):
        at_s = index / RATE_HZ
        frames.append(128 + round(60 * math.sin(2 * math.pi * pitch_hz * (1 + at_s / 4) * at_s)))
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(RATE_HZ)
        file.writeframes(bytes(frames))
    return base64.b64encode(written.getvalue()).decode()
