"""When a connection reads, and the one thing it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized

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
