"""Counting in portions: a note now, the histograms sixty-four at a time.

One observation takes 2 us in a loop and 10 us alone, when the library's code and data have left the
processor's caches (measured: a fifth of the cost of a refusal). So the hot path only appends.

Laws
- Nothing is lost or counted twice: a portion is counted when it is full, and at every scrape
  before anything is read.
- A portion is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from prometheus_client import Metric
from prometheus_client.registry import Collector

MOST = 64

T = TypeVar("T")


class Portion(Generic[T]):
    """Notes that are not counted yet.

    Args:
        count: counts one.
    """

    def __init__(self, count: Callable[[T], None]) -> None:
        self._count = count
        self._notes: list[T] = []

    def add(self, note: T) -> None:
        """Take a note."""
        self._notes.append(note)
        if len(self._notes) >= MOST:
            self.count()

    def count(self) -> None:
        """Count all of them."""
        notes, self._notes = self._notes, []
        for note in notes:
            self._count(note)


class Untold(Collector):
    """Registered before everything else: it has no series, and makes all others whole."""

    def __init__(self, *portions: Portion[Any]) -> None:
        self._portions = portions

    def collect(self) -> Iterable[Metric]:
        """Count what is left."""
        for portion in self._portions:
            portion.count()
        return ()
