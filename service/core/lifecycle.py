"""Lifecycle: what the service is, derived from what its parts are; and when to give up.

::

    starting → loading → ready ⇄ open (breaker)       draining → stopped
                           ⇅
                       restarting                     failed

Laws
- The service's state is derived by :func:`service_state` each time it is asked, never stored: two
  copies of one truth would drift apart.
- Only READY takes traffic. A half-open breaker is ready; a full queue is no part of it.
- With no worker ready the breaker is not asked: the workers' story comes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import StrEnum

from service.core.breaker import BreakerState

BACKOFF_FIRST_S = 0.5
BACKOFF_MOST_S = 30.0


class ServiceState(StrEnum):
    """What the service is, as ``/status`` says it."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    OPEN = "open"
    RESTARTING = "restarting"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"


def service_state(
    worker_states: Sequence[str],
    breaker: BreakerState,
    *,
    ever_ready: bool,
    draining: bool,
    stopped: bool,
    failed: bool,
) -> ServiceState:
    """The one state that these facts make; the first that applies, in the order of the code.

    Args:
        worker_states: the state of each worker, as its label says it.
        breaker: the breaker's state.
        ever_ready: whether a worker was ever ready.
        draining: whether the drain has begun.
        stopped: whether the drain has ended.
        failed: whether the process has given up.
    """
    if failed:
        return ServiceState.FAILED
    if stopped:
        return ServiceState.STOPPED
    if draining:
        return ServiceState.DRAINING
    if "ready" in worker_states:
        return ServiceState.OPEN if breaker is BreakerState.OPEN else ServiceState.READY
    if ever_ready:
        return ServiceState.RESTARTING
    for state in (ServiceState.LOADING, ServiceState.RESTARTING):
        if state in worker_states:
            return state
    return ServiceState.STARTING


REASONS: Mapping[ServiceState, str] = {
    ServiceState.STARTING: "the first worker is being started",
    ServiceState.LOADING: "the model is being loaded",
    ServiceState.READY: "ready for traffic",
    ServiceState.OPEN: "the model fails its self-test and the breaker is open",
    ServiceState.RESTARTING: "no worker is ready; one is being restarted",
    ServiceState.DRAINING: "shutting down; finishing what is inside",
    ServiceState.STOPPED: "stopped",
    ServiceState.FAILED: "gave up; see the log for the reason",
}
"""Why traffic may or may not come, in plain words."""


def readiness(state: ServiceState) -> tuple[bool, str]:
    """Whether traffic may come, and the reason."""
    return state is ServiceState.READY, REASONS[state]


class CrashLoop:
    """Counts deaths of workers that did no good work in between."""

    def __init__(self, limit: int, window_s: float) -> None:
        """Give up after ``limit`` deaths inside ``window_s`` seconds."""
        self._deaths: deque[float] = deque(maxlen=max(1, limit))
        self._window_s = window_s

    def death(self, now: float) -> bool:
        """A worker died; True: give up, another restart would not help."""
        self._deaths.append(now)
        full = len(self._deaths) == self._deaths.maxlen
        return full and now - self._deaths[0] <= self._window_s

    def good_batch(self) -> None:
        """A batch of clients was answered: the deaths before it prove nothing any more."""
        self._deaths.clear()


def backoff_s(deaths_in_row: int) -> float:
    """Seconds to wait before the next start: none, then 0.5 doubling to 30."""
    if deaths_in_row <= 0:
        return 0.0
    doublings = min(deaths_in_row - 1, 16)
    return min(BACKOFF_FIRST_S * 2.0**doublings, BACKOFF_MOST_S)
