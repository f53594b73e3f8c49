"""How late the event loop is: a timer that measures itself.

A loop that is blocked refuses slowly and times out falsely; nothing else shows it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

INTERVAL_S = 0.1


class LoopLag:
    """Measures the loop's lag every 100 ms.

    Args:
        observe: takes each lag in seconds.
        clock: seconds; not the loop's own time, which stands still within one turn.
    """

    def __init__(
        self, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._observe = observe
        self._clock = clock

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due = self._clock() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            self._observe(max(0.0, self._clock() - due))
