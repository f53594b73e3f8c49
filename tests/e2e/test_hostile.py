"""Hostile, slow and broken clients against a real server: they get a 4xx and cost nothing.

One server for all of them, so that each test also shows that the ones before left nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import PATIENT
from tests.e2e.faulty import faulty
from tests.e2e.held import busy
from tests.e2e.load import Call
from tests.e2e.server import LONG_S, Server, wait_for
from tests.front.http_wire import Reply, Wire, head, request, wire

pytestmark = pytest.mark.e2e

MIB = 2**20
BODY_LIMIT = 256 * 1024
RECEIVE_S = 5.0
GRACE_S = 4.0
"""A bad connection is closed within the receive timeout and so much more."""

BESIDE_S = RECEIVE_S + 4.0
"""How long those who behave ask beside them."""

FLAGS = (
    "--model", "synthetic:cpu", "--receive-timeout-ms", str(round(RECEIVE_S * 1000)),
    "--max-body-bytes", str(BODY_LIMIT), "--queue-limit", "8",
)  # fmt: skip
JSON = "Content-Type: application/json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server's batches are held."""
    return tmp_path_factory.mktemp("held")


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Server]:
    """A server with a short receive timeout and a low body limit."""
    with Server(command=faulty(folder, *PATIENT, *FLAGS)) as server:
        server.predict("warm").raise_for_status()
        yield server


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    """The same, and after the test it is as it was: no connection, no descriptor, no error."""
    wait_for(lambda: open_connections(shared) == 1, "other connections to end")
    before = psutil.Process(shared.pid).num_fds()
    yield shared
    wait_for(lambda: open_connections(shared) == 1, "connections to end")
    wait_for(lambda: psutil.Process(shared.pid).num_fds() <= before, "descriptors to come back")
    assert shared.predict("one two three").json() == {"tokens": 3, "batch": 1}
    outcomes = shared.outcomes()
    assert not {"internal_error", "model_error", "worker_lost"} & set(outcomes), outcomes
    assert not shared.event("internal.error")
    assert all(line["level"] != "error" for line in shared.lines)


def open_connections(server: Server) -> int:
    """Open ones, that of the question among them."""
    return int(server.metric("seawall_connections"))


@contextmanager
def watched_memory(server: Server) -> Iterator[Callable[[], int]]:
    """How many bytes the front's memory has grown at most, so far."""
    process = psutil.Process(server.pid)
    start, peak, stop = process.memory_info().rss, [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            peak[0] = max(peak[0], process.memory_info().rss - start)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: peak[0]
    finally:
        stop.set()
        thread.join(LONG_S)


# ---------------------------------------------------------------- bodies and heads


DEEP = b"[" * 100_000
HOSTILE: dict[str, tuple[bytes, set[int]]] = {
    "10 GB announced": (head("Content-Length: 10737418240"), {413}),
    "a length of a thousand digits": (head("Content-Length: " + "9" * 1000), {400, 413}),
    "a negative length": (head("Content-Length: -5"), {400}),
    "a length that is a word": (head("Content-Length: five"), {400}),
    "two lengths": (head("Content-Length: 5", "Content-Length: 6") + b"hello", {400}),
    "the same length twice": (head("Content-Length: 5", "Content-Length: 5") + b"hello", {400}),
    "a list of lengths": (head("Content-Length: 5, 5") + b"hello", {400}),
    "length and chunks": (
        head("Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n", {400}
    ),
    "chunks and length": (
        head("Transfer-Encoding: chunked", "Content-Length: 5") + b"0\r\n\r\n", {400}
    ),
    "an unknown transfer": (head("Transfer-Encoding: gzip") + b"x", {400}),
    "chunked, then not": (head("Transfer-Encoding: chunked, identity") + b"0\r\n\r\n", {400}),
    "a chunk of no size": (head("Transfer-Encoding: chunked") + b"xyz\r\n", {400}),
    "a chunk of a huge size": (head("Transfer-Encoding: chunked") + b"f" * 17 + b"\r\n", {400}),
    "a gzip bomb": (
        request(gzip.compress(bytes(100 * MIB), 9)[:BODY_LIMIT], "Content-Encoding: gzip", JSON),
        {415},
    ),
    "a gzip bomb that says nothing": (
        request(gzip.compress(bytes(100 * MIB), 9)[:BODY_LIMIT], JSON), {400}
    ),
    "two encodings": (request(b"x", "Content-Encoding: identity, gzip"), {415}),
    "brackets": (request(DEEP, JSON), {400}),
    "deep inputs": (request(b'{"inputs":' + DEEP + b"]" * 100_000 + b"}", JSON), {400}),
    "deep objects": (request(b'{"a":' * 40_000 + b"1" + b"}" * 40_000, JSON), {400}),
    "deep parameters": (
        request(b'{"inputs":"a","parameters":' + b'{"b":' * 40_000 + b"1" + b"}" * 40_001, JSON),
        {400},
    ),
    "a hundred thousand items": (
        request(b'{"inputs":[' + b"0," * 100_000 + b"0]}", JSON), {413}
    ),
    "a megabyte of headers": (head("X-Pad: " + "x" * MIB), {431}),
    "10,000 headers": (head(*["a:b"] * 10_000), {431}),
    "a megabyte of target": (head(path="/" + "x" * MIB), {431}),
    "a lone surrogate": (request(b'{"inputs":"a \\ud800 b"}', JSON), {400, 422}),
    "a surrogate in UTF-8": (request(b'{"inputs":"a \xed\xa0\x80 b"}', JSON), {400}),
    "a huge number": (request(b'{"inputs":1e999}', JSON), {400, 422}),
    "a number of 100,000 digits": (request(b'{"inputs":' + b"9" * 100_000 + b"}", JSON), {400}),
    "not a number": (request(b'{"inputs":NaN}', JSON), {400, 422}),
    "no UTF-8": (request(b"\xff\xfe\xfa"), {400}),
    "a zero in a header": (head("X-A: a\x00b"), {400}),
    "a folded header": (b"POST / HTTP/1.1\r\nHost: here\r\nX-A: a\r\n b\r\n\r\n", {400}),
    "a space before the colon": (head("Content-Length : 5") + b"hello", {400}),
    "bare line feeds in a header": (b"POST / HTTP/1.1\r\nX-A: a\nX-B: b\r\n\r\n", {400}),
    "no method that there is": (b"BREW / HTTP/1.1\r\nHost: here\r\n\r\n", {400}),
    "HTTP 9": (b"POST / HTTP/9.9\r\nHost: here\r\n\r\n", {400}),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200, {400}),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400}),
    "a tunnel": (head(method="CONNECT", path="127.0.0.1:22"), {400}),
    "another method": (head(method="DELETE"), {405}),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_hostile_is_refused(server: Server, what: str) -> None:
    """A documented 4xx; the next request is right, on this connection or a new one."""
    sent, statuses = HOSTILE[what]
    with wire(("127.0.0.1", server.port)) as client:
        client.write(sent)
        reply = client.reply()
        check(reply, statuses)
        if reply.headers.get("connection") == "close":
            client.rest()
            assert not client.reset or "too large" in what
        else:
            good(client.post(b"one two three"))
    with wire(("127.0.0.1", server.port)) as other:
        good(other.post(b"one two three"))


def check(reply: Reply, statuses: set[int]) -> None:
    """One of these, as a problem whose page exists."""
    problem = json.loads(reply.body)
    assert reply.status in statuses, problem
    assert problem["status"] == reply.status
    assert reply.headers["content-type"] == "application/problem+json"
    assert problem["code"] not in {"internal_error", "model_error"}


def good(reply: Reply) -> None:
    """The right answer."""
    assert (reply.status, json.loads(reply.body)["tokens"]) == (200, 3)


@pytest.mark.parametrize("connections", [20])
def test_memory_is_bounded_by_the_limit(server: Server, connections: int) -> None:
    """Of twenty bodies without end no more is held than twenty times the limit, and a little."""
    piece = b"%x\r\n" % 65536 + b"0" * 65536 + b"\r\n"
    begin = head("Transfer-Encoding: chunked", "Content-Type: text/plain")
    replies: list[list[Reply]] = []

    def flood() -> None:
        with wire(("127.0.0.1", server.port)) as client:
            client.write(begin)
            try:
                for _ in range(20_000):  # more than a gigabyte
                    client.write(piece)
            except OSError:
                pass
            else:
                raise AssertionError("it took all of it")
            replies.append(client.rest())

    with watched_memory(server) as grown:
        threads = [threading.Thread(target=flood) for _ in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
        assert len(replies) == connections
        assert grown() < 2 * BODY_LIMIT * connections + 8 * MIB
    answers = [reply.status for one in replies for reply in one]
    assert set(answers) <= {413}
    assert server.outcomes()["payload_too_large"] >= connections


def test_announced_bodies_are_refused_at_once(server: Server) -> None:
    """Twenty times 10 GB announced at a time: 413 before anything of it has come."""
    with watched_memory(server) as grown:
        wires = [Wire(("127.0.0.1", server.port)) for _ in range(20)]
        for client in wires:
            client.write(HOSTILE["10 GB announced"][0])
        for client in wires:
            check(client.reply(), {413})
            client.socket.close()
        assert grown() < 8 * MIB


# ---------------------------------------------------------------- slow, silent, half-open


FIRST_WORDS = {
    "silent": b"",
    "half a head": b"POST / HTTP/1.1\r\nHost: here\r\nX-",
    "half a body": head("Content-Length: 100") + b"half of it",
    "a byte every two seconds": head("X-Slow: " + "x" * 100),
    "half-open": b"POST / HTTP/1.1\r\n",
}


class Bad:
    """One bad connection: what it sends, and how long the server bears it."""

    def __init__(self, kind: str, port: int) -> None:
        self.kind = kind
        self.lasted_s = -1.0
        self._port = port

    async def live(self) -> None:
        """Until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        began = time.monotonic()
        saying = asyncio.create_task(self._say(writer))
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass
        self.lasted_s = time.monotonic() - began
        saying.cancel()
        writer.close()

    async def _say(self, writer: asyncio.StreamWriter) -> None:
        words = FIRST_WORDS[self.kind]
        if self.kind != "a byte every two seconds":
            writer.write(words)
            if self.kind == "half-open":
                writer.write_eof()
            return
        for byte in words:
            writer.write(bytes([byte]))
            await asyncio.sleep(2.0)


async def valid_requests(port: int, seconds: float) -> list[tuple[int, float]]:
    """One a second, each on a connection of its own: status and latency."""
    found = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(b"one two three", "Connection: close"))
        answer = await reader.read()
        writer.close()
        found.append((int(answer.split()[1]), time.monotonic() - began))
        await asyncio.sleep(max(0.0, began + 1.0 - time.monotonic()))
    return found


async def lag(worst: list[float]) -> None:
    """How late this very process is, at worst: the machine's own noise."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.05)
        worst[0] = max(worst[0], time.monotonic() - before - 0.05)


@pytest.mark.slow
def test_six_hundred_bad_connections(server: Server) -> None:
    """All are closed in time; who behaves notices nothing; descriptors and memory come back."""
    memory = psutil.Process(server.pid).memory_info().rss
    kinds = list(FIRST_WORDS)
    bad = [Bad(kinds[number % len(kinds)], server.port) for number in range(600)]
    worst = [0.0]

    async def play() -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
        alone = await valid_requests(server.port, 3.0)
        noise = asyncio.create_task(lag(worst))
        beside = asyncio.create_task(valid_requests(server.port, BESIDE_S))
        await asyncio.wait_for(asyncio.gather(*(one.live() for one in bad)), LONG_S)
        noise.cancel()
        return alone, await beside

    alone, beside = asyncio.run(play())
    assert [status for status, _ in alone + beside] == [200] * (len(alone) + len(beside))
    usual, now = (statistics.median(s for _, s in some) for some in (alone, beside))
    assert now < usual + 0.25 + worst[0]
    late = [
        (one.kind, one.lasted_s) for one in bad if one.lasted_s > RECEIVE_S + GRACE_S + worst[0]
    ]
    assert not late
    early = [one.kind for one in bad if one.lasted_s < RECEIVE_S / 2]
    assert set(early) <= {"half-open"}, "the server gave up on clients that still had time"
    wait_for(lambda: open_connections(server) == 1, "all of them to be closed")
    assert psutil.Process(server.pid).memory_info().rss < memory + 32 * MIB


# ---------------------------------------------------------------- shares, and who may come


def test_a_client_that_fills_the_queue_makes_room_for_another(server: Server, folder: Path) -> None:
    """With all places taken from one address another's request gets one, and is answered.

    That each request of the flood claims to come from somebody else helps nothing.
    """
    refused = server.outcomes().get("queue_full", 0)
    names = [{"X-Forwarded-For": f"192.0.2.{number}"} for number in range(8)]
    with wire(("127.0.0.1", server.port), "127.0.0.2") as other:
        with busy(server, folder) as holder:
            flood = server.send(*(Call("one two three", name) for name in names))
            server.wait_depth(8)
            other.write(request(b"one two three"))
            wait_for(lambda: server.outcomes().get("queue_full", 0) > refused, "room for it")
        good(other.reply())
    assert holder.result()[0].status == 200
    assert sorted(answer.code for answer in flood.result()) == ["ok"] * 7 + ["queue_full"]


def test_a_server_open_to_all_says_so(shared: Server) -> None:
    """Bound beyond loopback without keys there is a warning at the start, else none."""
    command = (
        sys.executable, "-m", "service", "serve", "--bind", "0.0.0.0:0", "--log-format", "json",
        "--model", "synthetic:cpu",
    )  # fmt: skip
    with Server(command=command, ready=False) as server:
        assert server.wait_event("server.open")["level"] == "warning"
    assert shared.event("server.open") is None
