"""A connection in memory: the real protocol and app, no socket, one loop for all of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import httptools
import uvicorn
from uvicorn.server import ServerState

from service.http.protocol import make_protocol
from tests.front.http_stage import Stage

TURNS = 200
"""More steps of the loop than any request takes here."""


_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class MemoryTransport(asyncio.Transport):
    """Keeps what is written; tells the protocol when it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.written = bytearray()
        self.paused = self.closed = False
        self._loop = loop
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.7", 4711) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Nothing: what was written is kept."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


class Answers:
    """Parses what was written: anything that is no HTTP raises.

    An answer to HEAD announces a body that does not come, which a parser that does not know the
    question takes for the next answer: ``strict`` is for streams without one.
    """

    def __init__(self, data: bytes, *, strict: bool) -> None:
        self.statuses: list[int] = []
        if not strict:
            self.statuses = [int(found) for found in _STATUS.findall(data)]
        elif data:
            self._parser = httptools.HttpResponseParser(self)
            self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.statuses.append(self._parser.get_status_code())


class House:
    """A server in memory. Everything that its loop could not handle is in ``bugs``."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.bugs: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.bugs.append(context))
        self.stage = Stage(max_body_bytes=4096)
        self._config = uvicorn.Config(
            self.stage.app,
            http=make_protocol(self.stage.settings, self.stage.metrics, self.stage.door),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        self._config.load()

    def close(self) -> None:
        """The loop ends."""
        self.loop.close()

    def converse(self, pieces: Sequence[bytes]) -> tuple[list[int], list[tuple[str, ...]]]:
        """Send pieces on one connection; the statuses answered, and the inputs let in."""
        return self.loop.run_until_complete(self._converse(pieces))

    async def _converse(self, pieces: Sequence[bytes]) -> tuple[list[int], list[tuple[str, ...]]]:
        state = ServerState()
        made: Any = self._config.http_protocol_class
        protocol = made(config=self._config, server_state=state, app_state={}, _loop=self.loop)
        transport = MemoryTransport(self.loop, protocol)
        self.stage.dispatcher.asks.clear()
        self.stage.dispatcher.tickets.clear()
        protocol.connection_made(transport)
        for piece in pieces:
            await self._settle(transport, state)
            if transport.closed:
                break
            protocol.data_received(piece)
        await self._settle(transport, state)
        asked = [one.inputs for one in self.stage.dispatcher.asks]
        transport.close()
        await asyncio.sleep(0)
        await self._settle(transport, state)
        assert not state.connections, "the connection is still counted"
        assert not self.bugs, self.bugs
        strict = b"HEAD" not in b"".join(pieces)
        return Answers(bytes(transport.written), strict=strict).statuses, asked

    async def _settle(self, transport: MemoryTransport, state: ServerState) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if not state.tasks and not transport.paused:
                return
        assert not state.tasks or not transport.closed, "a request outlived its connection"
