"""What a client does about a failure that may pass: nothing, come back at once, or wait.

============  =====================================================================
kind          comes back
============  =====================================================================
none          never
immediate     at once, three times: the worst that a client library does
backoff       three times, after a random part of 0.1, 0.2 and 0.4 s (full jitter)
retry-after   as backoff, but not before one to two times what ``Retry-After`` said
============  =====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

MOST_RETRIES = 3
BASE_S = 0.1


class RetryKind(StrEnum):
    """How clients retry."""

    NONE = "none"
    IMMEDIATE = "immediate"
    BACKOFF = "backoff"
    RETRY_AFTER = "retry-after"


@dataclass(frozen=True, slots=True)
class Retries:
    """The clients' rule.

    Args:
        kind: see the table above.
    """

    kind: RetryKind = RetryKind.NONE

    def pause_s(
        self, attempt: int, *, retryable: bool, retry_after_s: float, chance: Random
    ) -> float | None:
        """Seconds until the next attempt, ``None`` for none.

        Args:
            attempt: how many have been made.
            retryable: whether the failure may pass.
            retry_after_s: what the server said, 0 for nothing.
            chance: for the jitter.
        """
        if self.kind is RetryKind.NONE or not retryable or attempt > MOST_RETRIES:
            return None
        if self.kind is RetryKind.IMMEDIATE:
            return 0.0
        pause = BASE_S * (1 << (attempt - 1)) * chance.random()
        if self.kind is RetryKind.RETRY_AFTER:
            pause = max(pause, retry_after_s * (1.0 + chance.random()))
        return pause
