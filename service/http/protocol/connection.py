"""One connection: which bytes are parsed, which are thrown away, and when it ends.

==========  ==================================================================================
phase       what arrives
==========  ==================================================================================
``OPEN``    is parsed; requests run one after another, pipelined ones wait their turn
``REST``    the answer is out and its request's body is not whole: the rest is parsed and thrown
            away
``DEAF``    is thrown away unparsed: nothing after this point is a request
==========  ==================================================================================

==========  ===========================================  ==========  ==========================
in          event                                        to          and
==========  ===========================================  ==========  ==========================
``OPEN``    answer out before the body is whole          ``REST``    timer: the receive deadline
``OPEN``    refused from its head (``door``)             ``REST``    the same
``OPEN``    bad HTTP, head too large or too slow, too    ``DEAF``    problem+json, half-close,
            many connections; no answer is due                       timer: ``LINGER_S``
``OPEN``    the same while an answer is due              ``DEAF``    the answer still goes out
``REST``    body whole                                   ``OPEN``    keep-alive armed, or closed
``REST``    more than ``max_body_bytes``, or too late    closed
any         no answer is taken for the keep-alive time   closed
``DEAF``    more than ``LINGER_BYTES``, or too late      closed
==========  ===========================================  ==========  ==========================

Laws
- An answer never closes a connection with unread body behind it: the system would reset it and
  the client would lose the answer. Where the rest will not be read to its end, the answer says
  ``Connection: close``.
- A head has the receive timeout from accept, or from the first byte after a pause; a body has the
  same from its head on (``http/body`` says 408).
- While pipelined requests wait, nothing more is read.
- Whoever waits in a request of this connection is told when the connection ends.
"""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar

from service.core.errors import problem
from service.http.body import MALFORMED, is_more
from service.http.peers import NOBODY, Peers, peer_of
from service.http.protocol.ending import DEAF, LINGER_BYTES, LINGER_S, OPEN, REST, EndingProtocol
from service.http.protocol.head import HEAD_BYTES, HEAD_LINES, answer_bytes

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from service.http.door import Door

MOMENT_S = 0.001
"""For a head that is there: a loop that was held up hears its timers first, then its sockets."""


class GuardedProtocol(EndingProtocol):
    """One connection; ``limits.make_protocol`` makes the class of a server."""

    door: ClassVar[Door | None] = None
    peers: ClassVar[Peers]

    peer = NOBODY

    _running: RequestResponseCycle | None = None
    _broken: RequestResponseCycle | None = None
    """The request whose body can never be whole."""
    _last = False
    """The connection ends with this answer, once the body is read."""
    _body_until = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected."""
        super().connection_made(transport)
        self.metrics.connection_opened()
        self.peer = peer_of(self.client[0]) if self.client else NOBODY
        theirs, most = self.peers.enter(self.peer), self.limits.max_connections
        over = max(len(self.connections) - most, theirs - self.limits.most_of(self.peer))
        if over <= 0:
            self._timer.arm(self.limits.receive_timeout_s, self._head_is_late)
            return
        self.metrics.connection_dropped("too_many")
        if over > most // 8 + 1:
            transport.abort()  # to say so holds a descriptor for a moment: only so many
        else:
            self._say(problem("queue_full", "Too many connections are open at present."))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: everybody in it is told."""
        self._timer.disarm()
        self._taking.disarm()
        self._idle.cancel()
        self.metrics.connection_closed()
        self.peers.leave(self.peer)
        waiting = list(reversed(self.pipeline))
        self.pipeline.clear()
        super().connection_lost(exc)  # tells only the newest request
        for cycle in (self._running, *(cycle for cycle, _ in waiting)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        for cycle, app in waiting:  # their headers are complete: each has its one outcome
            self._start_asgi_task(cycle, app)

    def shutdown(self) -> None:
        """The server ends: finish what runs, and nothing more."""
        if self._phase is OPEN:
            super().shutdown()
        elif self._phase is REST:
            self._last = True
            self._half_close()

    def data_received(self, data: bytes) -> None:
        """Bytes."""
        self._idle.end()
        if self._phase is DEAF:
            self._discard(len(data))
        elif not self.feed(data):
            self._stop_parsing()
        elif self._timer.armed:
            pass
        elif self._phase is REST:  # of a request that was turned away just now
            self._timer.arm(self.limits.receive_timeout_s, self._close)
        elif self._phase is OPEN:
            blank = not self.head.heard and not self._answer_is_due()
            if self.head.open or blank:  # a part of a head, or blank lines before it
                self._timer.arm(self.limits.receive_timeout_s, self._head_is_late)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._idle.end()  # pipelined behind a body that was thrown away
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head is complete, in time."""
        self._timer.disarm()
        super().on_headers_complete()

    def turned_away(self) -> bool:
        """Refuse the request from its head, if nothing about it or before it is unusual."""
        door = self.door
        if (
            door is None
            or self._phase is not OPEN
            or self._answer_is_due()
            or self._last
            or self.flow.write_paused  # whoever does not take answers waits for them inside
            or self.expect_100_continue
            or self.parser.get_http_version() != "1.1"
            or not self.parser.should_keep_alive()
        ):
            return False
        refusal = door.refusal(self.parser.get_method(), self.url, self.headers, self.peer)
        if refusal is None:
            return False
        self.transport.write(answer_bytes(*refusal, self.server_state.default_headers))
        self._phase = REST
        self._spare_bytes = self.limits.max_body_bytes
        return True

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        if self._phase is REST:
            self.head.heard = True
            self._discard(len(body))
        elif self._phase is OPEN and self._newest() is not None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A body is whole."""
        if self._phase is REST:
            self.head.heard = True
            self._timer.disarm()
            self._phase = OPEN
            if (cycle := self._newest()) is not None:
                cycle.more_body = False
            self._go_on()
        elif self._phase is OPEN and self._newest() is not None:
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        self._body_until = self.loop.time() + self.limits.receive_timeout_s
        super()._start_asgi_task(cycle, partial(self._run, cycle, app))  # type: ignore[arg-type]

    async def _run(
        self, cycle: RequestResponseCycle, app: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> None:
        async def hear() -> Message:
            message = await receive()
            broken = cycle is self._broken
            return {"type": "http.disconnect", MALFORMED: True} if broken else message

        async def say(message: Message) -> None:
            if message["type"] == "http.response.start":
                if cycle.more_body and not self._rest_will_come(cycle):
                    cycle.keep_alive = False
            elif not (cycle.keep_alive or message.get("more_body")) and (
                cycle.more_body or self._phase is DEAF
            ):
                cycle.keep_alive = True  # else the parent closes, whatever is unread
                self._last = True
            await send(message)

        await app(scope, hear, say)

    def _rest_will_come(self, cycle: RequestResponseCycle) -> bool:
        if cycle.waiting_for_100_continue or self.loop.time() >= self._body_until:
            return False  # a client that was not asked for its body may never send it
        lengths = [value for name, value in cycle.scope["headers"] if name == b"content-length"]
        return not any(is_more(value, self.limits.max_body_bytes) for value in lengths)

    def on_response_complete(self) -> None:
        """An answer is out: the next request, the rest of this one, or the end."""
        cycle = self._running
        if self.transport.is_closing():
            super().on_response_complete()
            self._timer.arm(self.limits.receive_timeout_s, self._close)  # even if it is never taken
        elif self._phase is DEAF and self._last:
            self._linger()
        elif cycle is not None and cycle.more_body:
            self._phase = REST
            self._spare_bytes = self.limits.max_body_bytes
            cycle.body.clear()
            self._timer.arm(max(self._body_until - self.loop.time(), LINGER_S), self._close)
            self.flow.resume_reading()
            if self._last:
                self._half_close()
        else:
            self._go_on()

    def _go_on(self) -> None:
        if self._last:
            self._close()
        elif self.pipeline:
            super().on_response_complete()
        else:  # as the parent does, but for its timer
            self.server_state.total_requests += 1
            self.flow.resume_reading()
            self._idle.begin()

    def _head_is_late(self) -> None:
        self._timer.arm(MOMENT_S, self._head_is_missing)

    def _head_is_missing(self) -> None:
        if self._answer_is_due():
            self._deafen()
            return
        self.metrics.connection_dropped("header_timeout")
        if self.head.open:
            self._say(problem("request_timeout", "The headers did not arrive in time."))
        else:
            self._close()

    def _stop_parsing(self) -> None:
        self.metrics.connection_dropped("header_too_large" if self.head.too_large else "bad_http")
        if self._phase is not OPEN:
            self._close()
        elif self._answer_is_due():
            self._deafen()
        elif self.head.too_large:
            detail = f"A head may have at most {HEAD_BYTES} bytes and {HEAD_LINES} headers."
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._say(problem("malformed_request", detail, limit=HEAD_BYTES), status)
        else:
            self._say(problem("malformed_request", "This is no valid HTTP/1.1 request."))

    def _newest(self) -> RequestResponseCycle | None:
        return self.cycle

    def _answer_is_due(self) -> bool:
        cycle = self._newest()
        return cycle is not None and not cycle.response_complete

    def _deafen(self) -> None:
        """Nothing more is a request; those that run still get their answers."""
        self._timer.disarm()
        self._phase = DEAF
        self._spare_bytes = LINGER_BYTES
        self.cycle.keep_alive = False
        if self.cycle.more_body:
            self._broken = self.cycle
            self.cycle.message_event.set()
