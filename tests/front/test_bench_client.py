"""The load generator's HTTP client: one answer or one reason for each request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from service.bench.client import NO_ANSWER, NOT_CONNECTED, Address, Client
from tests.front.bench_stub import OK, Asked, answer, run, stub


def test_connections_are_used_again() -> None:
    """Requests one after the other share one connection; ``Connection: close`` ends it."""

    async def main() -> list[int]:
        said = [OK, OK, answer(200, {}, headers="Connection: close\r\n"), OK]

        async def reply(asked: Asked) -> bytes:
            return said[len(here.asked) - 1]

        async with stub(reply) as here:
            client = Client(here.address, {})
            for _ in said:
                assert (await client.send(client.prediction(b"a", None))).ok
            client.close()
            return [asked.connection for asked in here.asked]

    assert run(main) == [1, 1, 1, 2]


@pytest.mark.parametrize("size", [1, 7, 4000])
def test_torn_answers(size: int) -> None:
    """An answer is whole however its bytes arrive, chunked bodies too."""
    body = b'{"code": "queue_full", "retryable": true}'
    said = (
        b"HTTP/1.1 503 X\r\nRetry-After: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        + b"0\r\n\r\n"
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for start in range(0, len(said), size):
            writer.write(said[start : start + size])
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            client = Client(Address("127.0.0.1", server.sockets[0].getsockname()[1]), {})
            found = await client.get("/x")
            client.close()
        assert (found.status, found.code, found.retry_after_s) == (503, "queue_full", 3.0)
        assert found.retryable
        assert found.body == body

    run(main)


@pytest.mark.parametrize("said", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Le"])
def test_no_answer(said: bytes) -> None:
    """A connection that ends without a whole answer is an outcome, not an exception."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            client = Client(Address("127.0.0.1", server.sockets[0].getsockname()[1]), {})
            found = await client.get("/")
            client.close()
        assert (found.status, found.code, found.retryable) == (0, NO_ANSWER, True)

    run(main)


def test_not_connected(tmp_path: Path) -> None:
    """Nobody who listens is an outcome too, over TCP and over a Unix socket."""

    async def main() -> None:
        for address in (Address("127.0.0.1", 9), Address(path=str(tmp_path / "none"))):
            found = await Client(address, {}).get("/")
            assert (found.status, found.code) == (0, NOT_CONNECTED)

    run(main)


def test_over_a_unix_socket(tmp_path: Path) -> None:
    """``unix:PATH`` is an address like any other."""
    path = str(tmp_path / "s")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"Host: localhost" in await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        writer.close()

    async def main() -> None:
        async with await asyncio.start_unix_server(serve, path):
            client = Client(Address.parse(f"unix:{path}"), {})
            assert (await client.get("/")).ok
            client.close()

    run(main)


@pytest.mark.parametrize(
    "url, authority, prefix",
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", ""),
        ("http://localhost", "localhost:80", ""),
        ("https://h.example/models/a/", "h.example:443", "/models/a"),
        ("http://[::1]:9", "[::1]:9", ""),
    ],
)
def test_addresses(url: str, authority: str, prefix: str) -> None:
    """Host, port and prefix come from the URL."""
    found = Address.parse(url)
    assert (found.authority, found.prefix, found.tls) == (authority, prefix, url[4] == "s")


@pytest.mark.parametrize(
    "url",
    ["", "unix:", "ftp://h", "h:80", "http://", "http://h:x", "http://h/\r\nX: y", "http://ü"],
)
def test_no_addresses(url: str) -> None:
    """What is no URL of a server is refused, before it could end up in a request."""
    with pytest.raises(ValueError, match=r"not a URL|[Pp]ort"):
        Address.parse(url)
