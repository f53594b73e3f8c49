"""The breaker: one for the service; it stops traffic when the model itself fails.

::

             failures in a row, device lost              a good canary
    CLOSED ─────────────────────────────────▶ OPEN ─────────────────────▶ HALF_OPEN
       ▲                                       ▲                            │    │
       │                                       └────────────────────────────┘    │
       │                                  any failure, bad canary, device lost   │
       └─────────────────────────────────────────────────────────────────────────┘
                    two good batches of clients, or three good canaries

Laws
- :data:`TABLE` holds every state with every event; nothing else decides a transition.
- Only *confirmed* failures are told to it: a batch failed and then the canary failed too. Faults
  of clients, lateness, shedding, slowness and solved memory failures are never told.
- Open, it lets no client's request try: canaries do. Half-open is ready, with small batches.
- A result counts only if its batch began after the last opening: :attr:`Breaker.generation` is
  read when a batch starts and handed back with its result.
- It holds no permits, so none can be lost. While it is not closed a next probe is always armed,
  so a good model closes it with traffic or without: it cannot wedge.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

GOOD_BATCHES = 2
"""Good batches of clients that close a half-open breaker."""

GOOD_CANARIES = 3
"""Good canaries that close it when too few clients came."""

HALF_OPEN_ITEMS = 4
"""Most items in a batch while half-open: few clients pay if the model still fails."""

RESTART_CANARIES = 10
"""Bad canaries in a row after which a fresh worker is the better hope."""

_JITTER = 0.1
"""Probe times move by up to a tenth, so that replicas do not probe one shared cause in step."""

_GOLDEN = 0.6180339887498949
"""Fraction of the golden ratio: its multiples spread evenly over 0 to 1 (no randomness here)."""


class BreakerState(StrEnum):
    """Where the breaker is (the values of the ``state`` label)."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerEvent(StrEnum):
    """What can happen to it, after counting."""

    FAILURE = "failure"
    LAST_FAILURE = "last_failure"
    """A failure that makes enough of them in a row."""
    SUCCESS = "success"
    CANARY_GOOD = "canary_good"
    CANARY_BAD = "canary_bad"
    PROVEN = "proven"
    """The good batch or canary that makes enough of them while half-open."""
    DEVICE_LOST = "device_lost"


_C, _O, _H = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN

TABLE: Mapping[tuple[BreakerState, BreakerEvent], BreakerState] = {
    (_C, BreakerEvent.FAILURE): _C,
    (_C, BreakerEvent.LAST_FAILURE): _O,
    (_C, BreakerEvent.SUCCESS): _C,
    (_C, BreakerEvent.CANARY_GOOD): _C,
    (_C, BreakerEvent.CANARY_BAD): _C,  # counted: enough of them are LAST_FAILURE
    (_C, BreakerEvent.PROVEN): _C,
    (_C, BreakerEvent.DEVICE_LOST): _O,
    (_O, BreakerEvent.FAILURE): _O,
    (_O, BreakerEvent.LAST_FAILURE): _O,
    (_O, BreakerEvent.SUCCESS): _O,  # only a canary opens the way
    (_O, BreakerEvent.CANARY_GOOD): _H,
    (_O, BreakerEvent.CANARY_BAD): _O,
    (_O, BreakerEvent.PROVEN): _O,
    (_O, BreakerEvent.DEVICE_LOST): _O,
    (_H, BreakerEvent.FAILURE): _O,
    (_H, BreakerEvent.LAST_FAILURE): _O,
    (_H, BreakerEvent.SUCCESS): _H,
    (_H, BreakerEvent.CANARY_GOOD): _H,
    (_H, BreakerEvent.CANARY_BAD): _O,
    (_H, BreakerEvent.PROVEN): _C,
    (_H, BreakerEvent.DEVICE_LOST): _O,
}
"""State and event to next state: total, so that no event finds the breaker unprepared."""


class Breaker:
    """The state, its counts and the time of the next canary.

    Every method that may change the state returns the new state on a transition, else ``None``.

    Attributes:
        failures: confirmed failures in a row that open it.
        state: where it is.
        generation: rises with every opening; results of batches begun before are ignored.
        failures_in_row: confirmed failures and bad probes since the last good batch.
        bad_canaries: canaries that failed in a row since the last restart or good one.
    """

    def __init__(self, *, failures: int = 5, probe_s: float = 1.0, phase: float = 0.0) -> None:
        """Start closed.

        Args:
            failures: confirmed failures in a row that open it.
            probe_s: seconds between canaries while it is not closed.
            phase: where this replica's jitter begins, 0 to 1.
        """
        self.state = BreakerState.CLOSED
        self.generation = 0
        self.failures_in_row = 0
        self.bad_canaries = 0
        self.failures = max(1, failures)
        self._probe_s = probe_s
        self._phase = phase
        self._probes = 0
        self._good_batches = 0
        self._good_canaries = 0
        self._next_probe: float | None = None

    def failure(self, now: float, generation: int) -> BreakerState | None:
        """A confirmed failure: a batch and then its canary failed, or a worker was lost in one."""
        if generation != self.generation:
            return None
        return self._step(now, self._count_failure(BreakerEvent.FAILURE))

    def success(self, now: float, generation: int) -> BreakerState | None:
        """A batch of clients was answered."""
        if generation != self.generation:
            return None
        self.failures_in_row = 0
        self._good_batches += 1
        proven = self.state is BreakerState.HALF_OPEN and self._good_batches >= GOOD_BATCHES
        return self._step(now, BreakerEvent.PROVEN if proven else BreakerEvent.SUCCESS)

    def canary(self, now: float, *, ok: bool) -> BreakerState | None:
        """A probe came back; a worker that has just become ready counts as a good one.

        The canary that follows a failed batch is not told here: if bad it is :meth:`failure`.
        """
        if not ok:
            self.bad_canaries += 1
            return self._step(now, self._count_failure(BreakerEvent.CANARY_BAD))
        self.bad_canaries = 0
        self._good_canaries += 1
        proven = self.state is BreakerState.HALF_OPEN and self._good_canaries >= GOOD_CANARIES
        return self._step(now, BreakerEvent.PROVEN if proven else BreakerEvent.CANARY_GOOD)

    def device_lost(self, now: float) -> BreakerState | None:
        """The last ready worker lost its device."""
        return self._step(now, BreakerEvent.DEVICE_LOST)

    def next_probe(self) -> float | None:
        """When the next canary is due; ``None`` while closed."""
        return self._next_probe

    def probe_sent(self, now: float) -> None:
        """A canary went out, or could not because no worker is free: arm the next one.

        It is armed whether or not an answer comes, so a lost answer cannot stop the probing.
        """
        if self.state is not BreakerState.CLOSED:
            self._arm(now)

    @property
    def wants_restart(self) -> bool:
        """Ten canaries failed in a row: restart the worker. Cleared by :meth:`restarted`."""
        return self.state is not BreakerState.CLOSED and self.bad_canaries >= RESTART_CANARIES

    def restarted(self) -> None:
        """A worker was restarted for it: count canaries anew."""
        self.bad_canaries = 0

    @property
    def batch_limit(self) -> int | None:
        """Most items in a batch now; ``None`` for no limit of its own."""
        return HALF_OPEN_ITEMS if self.state is BreakerState.HALF_OPEN else None

    def retry_after_s(self, now: float) -> float:
        """Seconds until the next canary, 0 if it is due or the breaker is closed."""
        return 0.0 if self._next_probe is None else max(0.0, self._next_probe - now)

    def _count_failure(self, event: BreakerEvent) -> BreakerEvent:
        self.failures_in_row += 1
        enough = self.failures_in_row >= self.failures
        return BreakerEvent.LAST_FAILURE if enough else event

    def _step(self, now: float, event: BreakerEvent) -> BreakerState | None:
        before, self.state = self.state, TABLE[self.state, event]
        if self.state is before:
            return None
        self._good_batches = self._good_canaries = 0
        if self.state is BreakerState.OPEN:
            self.generation += 1
            self._arm(now)
        elif self.state is BreakerState.HALF_OPEN:
            self._arm(now)
        else:
            self.failures_in_row = self.bad_canaries = 0
            self._next_probe = None
        return self.state

    def _arm(self, now: float) -> None:
        self._probes += 1
        spread = (self._phase + self._probes * _GOLDEN) % 1.0
        self._next_probe = now + self._probe_s * (1.0 - _JITTER + 2.0 * _JITTER * spread)
