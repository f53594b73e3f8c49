"""The breaker in its place: its timer, its canaries, what it tells log and metrics.

The state machine itself is ``core/breaker``. This room arms one timer for the next canary and says
when one is due; the pool sends it as soon as a worker is free, so a canary never waits behind
nothing and never runs beside a batch on the same worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from service.core.breaker import Breaker, BreakerState
from service.logs import get_log
from service.metrics import Metrics

_OPEN = BreakerState.OPEN  # asked on every arrival

_EVENTS = {
    BreakerState.OPEN: "breaker.opened",
    BreakerState.HALF_OPEN: "breaker.half_open",
    BreakerState.CLOSED: "breaker.closed",
}


class Circuit:
    """One breaker for the service.

    Args:
        breaker: the state machine.
        metrics: where transitions are counted.
        on_opened: called when it opens by failures, to answer what waits. When it opens because the
            last worker is lost, what waits may wait for its reload: the crew decides that.
        on_due: called when a canary is due, to send it if a worker is free.
    """

    def __init__(
        self,
        breaker: Breaker,
        metrics: Metrics,
        on_opened: Callable[[], None],
        on_due: Callable[[], None],
    ) -> None:
        self._breaker = breaker
        self._metrics = metrics
        self._on_opened = on_opened
        self._on_due = on_due
        self._timer: asyncio.TimerHandle | None = None
        self.due = False
        """Whether a canary should be sent by the next free worker."""

    @property
    def state(self) -> BreakerState:
        """Where the breaker is."""
        return self._breaker.state

    @property
    def open(self) -> bool:
        """Whether clients are refused."""
        return self._breaker.state is _OPEN

    @property
    def generation(self) -> int:
        """To be read when a batch starts and handed back with its result."""
        return self._breaker.generation

    @property
    def batch_limit(self) -> int | None:
        """Most items of a batch now, ``None`` for no bound."""
        return self._breaker.batch_limit

    @property
    def patience(self) -> int:
        """Confirmed failures in a row that open it."""
        return self._breaker.failures

    def retry_after_s(self, now: float) -> float:
        """Seconds until the next canary."""
        return self._breaker.retry_after_s(now)

    def good_batch(self, now: float, generation: int) -> None:
        """A batch of clients was answered."""
        self._moved(self._breaker.success(now, generation), now)

    def confirmed_failure(self, now: float, generation: int) -> None:
        """A batch failed and its canary too."""
        self._moved(self._breaker.failure(now, generation), now)

    def device_lost(self, now: float) -> None:
        """The last ready worker lost its device."""
        self._moved(self._breaker.device_lost(now), now, answer=False)

    def sick(self, now: float) -> None:
        """The only worker came up again and fails its self-test: as if its device were lost."""
        self._moved(self._breaker.device_lost(now), now)

    def worker_lost(self, now: float, generation: int) -> None:
        """The last ready worker died in a batch: that is a failure like a confirmed one."""
        self._moved(self._breaker.failure(now, generation), now, answer=False)

    def worker_ready(self, now: float) -> None:
        """A worker came up, and its canary was good."""
        if self._breaker.state is not BreakerState.CLOSED:
            self._moved(self._breaker.canary(now, ok=True), now)

    def probed(self, now: float, *, ok: bool) -> bool:
        """A canary that was due came back; whether its worker should be restarted."""
        self._moved(self._breaker.canary(now, ok=ok), now)
        if self._breaker.wants_restart:
            self._breaker.restarted()
            return True
        return False

    def sent(self, now: float) -> None:
        """The due canary went out."""
        self.due = False
        self._breaker.probe_sent(now)
        self._arm(now)

    def close(self) -> None:
        """Cancel the timer; nothing fires any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _moved(self, state: BreakerState | None, now: float, *, answer: bool = True) -> None:
        if state is None:
            return
        self._metrics.breaker_transition(state.value)
        level = "info" if state is BreakerState.CLOSED else "warning"
        getattr(get_log(), level)(_EVENTS[state], generation=self._breaker.generation)
        self.due = False
        self._arm(now)
        if state is BreakerState.OPEN and answer:
            self._on_opened()

    def _arm(self, now: float) -> None:
        self.close()
        at = self._breaker.next_probe()
        if at is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, at - now), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.due = True
        self._on_due()
