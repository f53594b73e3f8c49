"""Refusals by load in the log: ten lines a second, the rest as one count.

A server under ten times its load refuses thousands of requests a second; a line for each would
cost more than the refusals (measured: 34 of 72 microseconds) and bury everything else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

LINES_A_SECOND = 10
WINDOW_S = 1.0


class ShedLog:
    """Decides which refusal gets its own line; reports the others by code, once a second.

    Args:
        log: where ``admission.shed`` goes.
        clock: seconds of the one clock.
    """

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._begun = float("-inf")
        self._lines = 0
        self._untold: Counter[str] = Counter()

    def may_log(self, code: str) -> bool:
        """Whether this refusal may have its line; if not, it is counted."""
        now = self._clock()
        if now - self._begun >= WINDOW_S:
            self._begun, self._lines = now, 0
        if self._lines < LINES_A_SECOND:
            self._lines += 1
            return True
        if not self._untold:
            # The timer, not the next refusal, tells the rest: there may be no next one.
            rest = max(0.0, self._begun + WINDOW_S - now)
            asyncio.get_running_loop().call_later(rest, self.tell)
        self._untold[code] += 1
        return False

    def tell(self) -> None:
        """Tell now what has not been told; at the end of the process no timer comes any more."""
        untold, self._untold = self._untold, Counter()
        if untold:
            self._log.info("admission.shed", requests=untold.total(), codes=dict(untold))
