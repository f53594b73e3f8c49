"""When a connection reads, and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from functools import partial

from uvicorn.protocols.http.flow_control import FlowControl


class PatientFlow(FlowControl):
    """Reads nothing while pipelined requests wait: each chunk would bring many new ones.

    Args:
        transport: of the connection.
        waiting: the pipelined requests.
    """

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        """Read on, unless requests wait."""
        if not self._waiting:
            super().resume_reading()


class OneTimer:
    """At most one timer: arming it again replaces it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    @property
    def armed(self) -> bool:
        """Whether it will fire."""
        return self._timer is not None

    def arm(self, seconds: float, then: Callable[[], None]) -> None:
        """Call ``then`` after so many seconds, and nothing that was armed before."""
        self.disarm()
        self._timer = self._loop.call_later(seconds, self._fire, then)

    def disarm(self) -> None:
        """Call nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self, then: Callable[[], None]) -> None:
        self._timer = None
        then()


class IdleTimer:
    """Calls when a connection has been idle for so long.

    A connection that is used a hundred times a second becomes idle a hundred times a second. So the
    timer is not set anew each time: it runs on, and looks when it fires.

    Args:
        loop: its loop.
        seconds: how long is too long.
        then: what to call.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, then: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._then = then
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Idle from now on."""
        self._since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def end(self) -> None:
        """Not idle any more."""
        self._since = None

    def cancel(self) -> None:
        """Never call."""
        self._since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._since is None:
            return
        left_s = self._since + self._seconds - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._then()


class TakingTimer:
    """Calls when a client that is behind with its answers takes nothing for so long.

    Args:
        loop: its loop.
        seconds: how long is too long.
        left: bytes that wait to be taken.
        then: what to call.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        left: Callable[[], int],
        then: Callable[[], None],
    ) -> None:
        self._timer = OneTimer(loop)
        self._seconds = seconds
        self._left = left
        self._then = then

    @property
    def armed(self) -> bool:
        """Whether it watches."""
        return self._timer.armed

    def arm(self) -> None:
        """Watch from now on."""
        self._timer.arm(self._seconds, partial(self._look, self._left()))

    def disarm(self) -> None:
        """Watch no more."""
        self._timer.disarm()

    def _look(self, before: int) -> None:
        if self._left() < before:
            self.arm()  # slowly, but it takes them
        else:
            self._then()
