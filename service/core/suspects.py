"""Suspects: inputs that were running when a worker was killed.

::

    unknown ──killed with others──▶ SUSPECT ──killed alone, twice in all──▶ POISONED
       ▲                               │                                       │
       └───────────── ten minutes without another kill ◀──────────────────────┘

A suspect runs alone, so that it takes no neighbour with it and so that the next kill is evidence.
An input whose lone run killed a worker twice is poisoned and refused.

Laws
- Only keyed hashes are held, never an input; bounded in number and in time.
- When the book is full the one whose last kill is oldest falls out.
"""

from __future__ import annotations

from collections.abc import Sequence

POISONED_AFTER = 2
"""Lone kills that make an input poisoned: one may have been chance."""


class Suspects:
    """The book of suspects, by keyed hash of input and parameters.

    Args:
        ttl_s: seconds for which each is remembered after its last kill.
        most: how many are remembered at once.
    """

    def __init__(self, ttl_s: float = 600.0, most: int = 1024) -> None:
        self._ttl_s = ttl_s
        self._most = most
        self._seen: dict[bytes, tuple[float, int]] = {}
        """Fingerprint to time of its last kill and number of lone kills, oldest first."""

    def __len__(self) -> int:
        return len(self._seen)

    def killed(self, fingerprints: Sequence[bytes], now: float) -> None:
        """A worker was killed while it ran these together; one fingerprint: it ran alone.

        The caller leaves out kills that are no evidence (a stray SIGKILL).
        """
        lone = len(fingerprints) == 1
        for fingerprint in fingerprints:
            kills = self._lone_kills(fingerprint, now) or 0
            self._seen.pop(fingerprint, None)
            self._seen[fingerprint] = (now, kills + lone)
        while self._seen:
            oldest = next(iter(self._seen))
            if len(self._seen) <= self._most and now - self._seen[oldest][0] < self._ttl_s:
                break
            del self._seen[oldest]

    def is_suspect(self, fingerprint: bytes, now: float) -> bool:
        """Whether it must run alone."""
        return self._lone_kills(fingerprint, now) is not None

    def is_poisoned(self, fingerprint: bytes, now: float) -> bool:
        """Whether it is refused: its lone run killed a worker twice."""
        return (self._lone_kills(fingerprint, now) or 0) >= POISONED_AFTER

    def _lone_kills(self, fingerprint: bytes, now: float) -> int | None:
        seen = self._seen.get(fingerprint)
        return seen[1] if seen is not None and now - seen[0] < self._ttl_s else None
