"""A small HTTP server on asyncio for tests of the load generator: what it answers is a function."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from service.bench.client import Address

ENOUGH_S = 120.0
"""Generous: nothing takes so long unless it is broken."""

SHORT = ("--rates", "20", "--seconds", "0.5", "--warmup-s", "0")
"""Flags of the shortest run that there is."""


@dataclass(slots=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int


Reply = Callable[[Asked], Awaitable[bytes]]


@dataclass(slots=True)
class Listening:
    """A stub that listens."""

    address: Address
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0


def answer(status: int, value: Any = None, *, headers: str = "") -> bytes:
    """A whole answer with a JSON body."""
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} X\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


Page = tuple[int, Any] | Callable[[], tuple[int, Any]]
"""Status and JSON value, or what gives them."""


def pages(**values: Page) -> Reply:
    """A server of pages; ``root`` is ``/``, and a prediction is answered with ``predict``."""

    async def reply(asked: Asked) -> bytes:
        name = "predict" if asked.method == "POST" else asked.path.strip("/") or "root"
        page = values.get(name, (404, {"code": "not_found"}))
        return answer(*(page() if callable(page) else page))

    return reply


@asynccontextmanager
async def stub(reply: Reply) -> AsyncGenerator[Listening]:
    """Listen on a free port; an empty reply closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here.connections += 1
        number = here.connections
        writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, path, _ = head[0].split(" ")
                pairs = (line.partition(": ") for line in head[1:] if line)
                headers = {name.lower(): value for name, _, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                asked = Asked(method, path, headers, body, number)
                here.asked.append(asked)
                said = await reply(asked)
                writer.write(said)
                await writer.drain()
                if not said or b"connection: close" in said.lower():
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    here = Listening(Address(host="127.0.0.1", port=port))
    try:
        yield here
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()


OK = answer(200, {"tokens": 1})
REFUSED = answer(503, {"code": "overloaded", "retryable": True}, headers="Retry-After: 1\r\n")

_T = TypeVar("_T")


def run(main: Callable[[], Awaitable[_T]]) -> _T:
    """Run on a loop of its own, with a generous limit."""

    async def limited() -> _T:
        return await asyncio.wait_for(main(), ENOUGH_S)

    return asyncio.run(limited())


READY: dict[str, Page] = {
    "readyz": (200, {"ready": True}),
    "root": (200, {"name": "seawall", "version": "9", "task": "synthetic", "model": "m"}),
    "status": (200, {}),
    "predict": (200, {"tokens": 1}),
}


@contextmanager
def serving(**values: Page) -> Iterator[tuple[str, Listening]]:
    """A stub of these pages on a thread of its own: its URL, and what it was asked."""
    started = threading.Event()
    found: list[Listening] = []
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def main() -> None:
        async with stub(pages(**{**READY, **values})) as here:
            found.append(here)
            started.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    started.wait(ENOUGH_S)
    try:
        yield f"http://127.0.0.1:{found[0].address.port}", found[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(ENOUGH_S)
        loop.close()
