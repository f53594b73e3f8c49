"""HTTP/1.1 over as many connections as there are requests under way.

Our own, on the parser and the loop that the server uses anyway. At 1500 requests a second on two
cores that generator, server and worker share, it takes 126 us of CPU for each, a general client
290, and the share of a core between them is in every figure: the p99 of refusals was 12 ms with
this one and over 26 with the other. It can do just this: send bytes, read one answer, keep the
connection.

Laws
- Every request ends: with an answer, or with status 0 and the reason in ``code``.
- A connection is used by one request at a time, the latest idle one first.
- An idle connection that the server might be about to close is not used again.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, cast
from urllib.parse import urlsplit

import httptools

IDLE_S = 20.0
"""Servers keep idle connections for a minute or more; proxies, some of them, for half of that."""

NO_ANSWER, NOT_CONNECTED = "no_answer", "not_connected"
"""Ends that only the client sees."""

_CODE = re.compile(rb'"code"\s*:\s*"([a-z_]{1,40})"')
_RETRYABLE = re.compile(rb'"retryable"\s*:\s*true')
_OK = 200


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is: a host and port, perhaps with TLS, or a Unix socket."""

    host: str = ""
    port: int = 0
    tls: bool = False
    path: str = ""
    prefix: str = ""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read ``http://host:port/prefix``, ``https://…`` or ``unix:PATH``.

        Raises:
            ValueError: it is neither.
        """
        if url.startswith("unix:") and len(url) > len("unix:"):
            return cls(path=url.removeprefix("unix:"))
        parts = urlsplit(url)
        default = {"http": 80, "https": 443}.get(parts.scheme)
        if default is None or not parts.hostname or not url.isascii() or not url.isprintable():
            raise ValueError("not a URL of a server")
        return cls(
            host=parts.hostname,
            port=parts.port or default,
            tls=parts.scheme == "https",
            prefix=parts.path.rstrip("/"),
        )

    @property
    def authority(self) -> str:
        """The value of ``Host``."""
        if self.path:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer; status 0 if there was none, with the reason as ``code``."""

    status: int
    code: str
    body: bytes = b""
    retry_after_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it is an answer to the question."""
        return self.status == _OK

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return not self.status or (not self.ok and _RETRYABLE.search(self.body) is not None)


class _Connection(asyncio.Protocol):
    """One connection: idle, or busy with one request whose answer ``_waiter`` gets."""

    def __init__(self, lost: Callable[[_Connection], None]) -> None:
        self.idle_since = 0.0
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Answer] | None = None
        self._body = b""
        self._retry_after_s = 0.0

    @property
    def usable(self) -> bool:
        """Whether another request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, data: bytes) -> asyncio.Future[Answer]:
        """Send a request; the future has its answer, and never an exception."""
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            waiter.set_result(Answer(0, NO_ANSWER))
            return waiter
        self._waiter = waiter
        self._body, self._retry_after_s = b"", 0.0
        self._transport.write(data)
        return waiter

    def close(self) -> None:
        """Close at once; a request under way has no answer."""
        if self._transport is not None:
            self._transport.abort()

    def _end(self, answer: Answer) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)

    # -- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has a class of its own

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._end(Answer(0, NO_ANSWER))
        self._lost(self)

    # -- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == len(b"retry-after") and name.lower() == b"retry-after":
            with suppress(ValueError):
                self._retry_after_s = float(value)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status == _OK:
            code = "ok"
        else:
            found = _CODE.search(self._body)
            code = found[1].decode() if found else f"http_{status}"
        if not self._parser.should_keep_alive():
            self.close()
        self._end(Answer(status, code, self._body, self._retry_after_s))


class Client:
    """Sends requests, each on a connection of its own.

    Args:
        address: of the server.
        headers: sent with every request.
    """

    def __init__(self, address: Address, headers: dict[str, str]) -> None:
        self._address = address
        self._tls = ssl.create_default_context() if address.tls else None
        named = {"Host": address.authority, **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()

    async def get(self, path: str) -> Answer:
        """GET a page."""
        head = f"GET {self._address.prefix}{path} HTTP/1.1\r\n{self._head}\r\n"
        return await self.send(head.encode())

    def prediction(self, text: bytes, deadline_s: float | None) -> bytes:
        """The bytes of a request for a prediction of a text."""
        due = "" if deadline_s is None else f"X-Request-Timeout-Ms: {round(deadline_s * 1000)}\r\n"
        head = (
            f"POST {self._address.prefix}/ HTTP/1.1\r\n{self._head}"
            f"Content-Type: text/plain; charset=utf-8\r\n{due}Content-Length: {len(text)}\r\n\r\n"
        )
        return head.encode() + text

    async def send(self, request: bytes) -> Answer:
        """Send a request and wait for its answer, however long it takes."""
        connection = self._take()
        if connection is None:
            try:
                connection = await self._connect()
            except OSError:  # ssl.SSLError is one too
                return Answer(0, NOT_CONNECTED)
        answer = await connection.send(request)
        if connection.usable:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Close every connection; what is under way ends without an answer."""
        for connection in list(self._open):
            connection.close()
        self._idle.clear()

    def _take(self) -> _Connection | None:
        oldest = time.monotonic() - IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since > oldest:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        where = self._address
        make = self._make
        if where.path:
            _, connection = await loop.create_unix_connection(make, where.path)
        else:
            _, connection = await loop.create_connection(
                make, where.host, where.port, ssl=self._tls
            )
        return connection

    def _make(self) -> _Connection:
        connection = _Connection(self._open.discard)
        self._open.add(connection)
        return connection
