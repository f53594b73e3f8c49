"""How bytes are thrown away, and how a connection ends.

See ``connection`` for the table of phases; here are the steps that lead to an end.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from service.http.protocol.flow import IdleTimer, OneTimer, PatientFlow, TakingTimer
from service.http.protocol.head import raw_answer
from service.http.protocol.parsing import ParsingProtocol

if TYPE_CHECKING:
    from service.core.errors import Problem
    from service.http.protocol.limits import ConnectionLimits
    from service.metrics import Metrics

LINGER_S = 1.0
"""How long a client has to take a last answer before the connection is closed under it."""

LINGER_BYTES = 2**20
"""How much it may still send meanwhile."""


class Phase(Enum):
    """What happens to the bytes that arrive."""

    OPEN = "open"
    REST = "rest"
    DEAF = "deaf"


OPEN, REST, DEAF = Phase
"""By name: an attribute of an enumeration costs a call in Python 3.11; these are asked often."""


class EndingProtocol(ParsingProtocol):
    """A connection that can end without losing an answer on its way."""

    limits: ClassVar[ConnectionLimits]
    metrics: ClassVar[Metrics]

    _timer: OneTimer
    """Of a head, of a rest, or of the end."""
    _idle: IdleTimer
    """Between two requests."""
    _taking: TakingTimer
    """While answers wait to be taken."""
    _phase = OPEN
    _spare_bytes = 0
    """So much more is thrown away."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected."""
        super().connection_made(transport)
        self._timer = OneTimer(self.loop)
        self._idle = IdleTimer(self.loop, self.timeout_keep_alive, self._close)
        self._taking = TakingTimer(
            self.loop, self.timeout_keep_alive, transport.get_write_buffer_size, self._close
        )
        self.flow = PatientFlow(transport, self.pipeline)

    def pause_writing(self) -> None:
        """The client is behind with its answers; for ever it may not be, even in mid-request."""
        super().pause_writing()
        self._taking.arm()

    def resume_writing(self) -> None:
        """It has taken most of them."""
        self._taking.disarm()
        super().resume_writing()

    def _say(self, refusal: Problem, status: int | None = None) -> None:
        """Answer what never became a request, and end the connection."""
        self.transport.write(raw_answer(refusal, self.server_state.default_headers, status))
        self._linger()

    def _linger(self) -> None:
        self._phase = DEAF
        self._spare_bytes = LINGER_BYTES
        self._timer.arm(LINGER_S, self._close)
        self.flow.resume_reading()
        self._half_close()

    def _discard(self, more: int) -> None:
        self._spare_bytes -= more
        if self._spare_bytes < 0:
            self._close()

    def _half_close(self) -> None:
        if not self.transport.is_closing() and self.transport.can_write_eof():
            self.transport.write_eof()

    def _close(self) -> None:
        self._timer.disarm()
        self._phase = DEAF
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # the client does not take its answer
        else:
            self.transport.close()
