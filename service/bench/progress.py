"""What the person at the terminal sees while a phase runs: a bar, or one line where nobody looks.

On stderr, so that the report on stdout stays whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TextIO

from service.bench.record import Tally

STEP_S = 0.25
WIDTH = 24


class Progress:
    """Shows phases on a stream.

    Args:
        stream: where; a bar if it is a terminal, else one line for each phase.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar = stream.isatty()

    @asynccontextmanager
    async def phase(self, label: str, seconds: float) -> AsyncGenerator[Tally]:
        """Show a phase while it runs; whoever runs it counts in the tally."""
        tally = Tally()
        start = time.monotonic()
        drawing = asyncio.create_task(self._draw(label, seconds, tally, start))
        try:
            yield tally
        finally:
            drawing.cancel()
            with suppress(asyncio.CancelledError):
                await drawing
            took_s = time.monotonic() - start
            end = "\r\033[K" if self._bar else ""
            self._write(f"{end}{label}: {_counts(tally)} in {took_s:.1f} s\n")

    async def _draw(self, label: str, seconds: float, tally: Tally, start: float) -> None:
        while self._bar:
            done_s = min(time.monotonic() - start, seconds)
            filled = round(WIDTH * done_s / seconds) if seconds > 0 else WIDTH
            bar = "#" * filled + "." * (WIDTH - filled)
            line = f"{label} [{bar}] {done_s:.0f}/{seconds:.0f} s  {_counts(tally)}"
            self._write(f"\r\033[K{line}")
            await asyncio.sleep(STEP_S)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _counts(tally: Tally) -> str:
    return f"{tally.sent} sent, {tally.ok} ok, {tally.refused} refused, {tally.failed} failed"
