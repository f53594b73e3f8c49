"""How full was the queue, whatever the moment somebody looked?

A sampled gauge read 2 of 16 while a fifth of the requests was refused; an integral does not
depend on the scrape. Values hold from one ``update`` to the next (left rectangles).
"""

from __future__ import annotations

PEAK_DECAY_S = 60.0


class FillMeter:
    """Integrals of the queue's fill, and its decaying peak."""

    def __init__(self, now: float) -> None:
        self.fill_seconds = 0.0
        self.full_items_seconds = 0.0
        self.full_wait_seconds = 0.0
        self.ratio = 0.0
        self._full_items = False
        self._full_wait = False
        self._at = now
        self._peak = 0.0
        self._peak_at = now

    def update(
        self, now: float, *, depth: int, limit: int, wait_s: float, wait_cap_s: float
    ) -> None:
        """Account for the time since the last call, then take the new values.

        ``depth`` and ``limit`` are items, ``wait_s`` the predicted wait and ``wait_cap_s`` its cap
        (0 while there is none).
        """
        passed = max(0.0, now - self._at)
        self.fill_seconds += passed * self.ratio
        if self._full_items:
            self.full_items_seconds += passed
        if self._full_wait:
            self.full_wait_seconds += passed
        self._at = max(self._at, now)
        by_wait = wait_s / wait_cap_s if wait_cap_s > 0 else 0.0
        self.ratio = max(depth / limit, by_wait)
        self._full_items = depth >= limit
        self._full_wait = 0 < wait_cap_s < wait_s
        if depth >= self.peak(now):
            self._peak, self._peak_at = float(depth), now

    def peak(self, now: float) -> float:
        """The highest depth, falling to 0 over 60 s, so that no scrape misses a burst."""
        return max(0.0, self._peak * (1.0 - (now - self._peak_at) / PEAK_DECAY_S))
