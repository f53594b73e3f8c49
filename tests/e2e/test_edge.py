"""What clients and proxies do at the edge, against the whole server on real sockets.

``test_hostile`` is about those who mean harm; here are those who are odd, leave, or only ask.
"""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import PATIENT
from tests.e2e.faulty import faulty
from tests.e2e.held import busy
from tests.e2e.server import LONG_S, OK, Server, scripted, wait_for
from tests.front.http_wire import Reply, Wire, chunked, head, request, wire

pytestmark = pytest.mark.e2e

MIB = 2**20
BODY_LIMIT = 256 * 1024
AT_ONCE = 20
JSON_BODY = json.dumps({"inputs": "one two three"}).encode()
TEXT = b"one two three"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server's batches are held."""
    return tmp_path_factory.mktemp("held")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """One server for all; at the end nothing has gone wrong in it."""
    flags = ("--model", "synthetic:cpu", "--max-body-bytes", str(BODY_LIMIT))
    with Server(command=faulty(folder, *PATIENT, *flags)) as server:
        server.predict("warm").raise_for_status()
        yield server
        server.wait_idle()
        assert server.predict("one two three").json()["tokens"] == 3
        assert all(line["level"] != "error" for line in server.lines)


def tokens(reply: Reply) -> int:
    """Of a right answer."""
    assert reply.status == 200, reply.body
    return int(json.loads(reply.body)["tokens"])


# ---------------------------------------------------------------- types and encodings


@pytest.mark.parametrize(
    "content_type, status",
    [
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ('application/json;charset="UTF-8"', 200),
        ("application/vnd.x+json", 200),
        ("", 200),
        ("image/png", 415),
    ],
)
def test_a_content_type_is_read_as_it_is_meant(
    server: Server, content_type: str, status: int
) -> None:
    """Parameters and case of a type change nothing, and JSON needs none."""
    names = [f"Content-Type: {content_type}"] if content_type else []
    with wire(("127.0.0.1", server.port)) as client:
        client.write(head(*names, f"Content-Length: {len(JSON_BODY)}") + JSON_BODY)
        reply = client.reply()
    assert reply.status == status
    assert status != 200 or tokens(reply) == 3


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd", "foo", "identity"])
def test_an_encoded_body_is_said_to_be_one(server: Server, encoding: str) -> None:
    """It is 415 that names no JSON; ``identity`` is none."""
    body = gzip.compress(TEXT) if encoding == "gzip" else TEXT
    with wire(("127.0.0.1", server.port)) as client:
        reply = client.post(body, f"Content-Encoding: {encoding}")
        assert reply.status == (200 if encoding == "identity" else 415)
        assert b"JSON" not in reply.body
        assert tokens(client.post(TEXT)) == 3


@pytest.mark.parametrize("way", ["length", "chunks"])
def test_an_offered_upgrade_loses_no_body(server: Server, way: str) -> None:
    """A client that offers HTTP/2 gets the answer to what it sent."""
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
             "HTTP2-Settings: AAMAAABkAAQAAP__")  # fmt: skip
    with wire(("127.0.0.1", server.port)) as client:
        if way == "length":
            client.write(request(TEXT, *offer))
        else:
            plain = "Content-Type: text/plain"
            client.write(
                head(*offer, plain, "Transfer-Encoding: chunked") + chunked(b"one two ", b"three")
            )
        assert tokens(client.reply()) == 3


# ---------------------------------------------------------------- memory


KINDS = {
    "deep nesting": request(b'{"inputs":' + b"[" * 120_000, "Content-Type: application/json"),
    "deep objects": request(b'{"a":' * 40_000, "Content-Type: application/json"),
    "many numbers": request(
        b'{"inputs":[' + b"0," * 120_000 + b"0]}", "Content-Type: application/json"
    ),
    "many names": request(
        b"{" + b",".join(b'"%d":0' % n for n in range(25_000)) + b"}",
        "Content-Type: application/json",
    ),
    "a gzip bomb": request(
        gzip.compress(bytes(100 * MIB), 9)[:BODY_LIMIT], "Content-Encoding: gzip"
    ),
    "a form of many fields": request(
        b"a=b&" * 60_000, "Content-Type: application/x-www-form-urlencoded"
    ),
    "many headers": head(*["a:b"] * 10_000),
    "large headers": head("X-Pad: " + "x" * MIB),
}


@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_each_kind_is_bounded(server: Server, kind: str) -> None:
    """Twenty at a time, five times over, hold no more than the limit of each of the twenty."""
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    peaks: list[int] = []
    statuses: list[int] = []

    def ask() -> None:
        for _ in range(5):
            with wire(("127.0.0.1", server.port)) as client:
                client.write(KINDS[kind])
                statuses.append(client.reply().status)
                peaks.append(process.memory_info().rss)

    threads = [threading.Thread(target=ask) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert len(statuses) == 5 * AT_ONCE
    assert set(statuses) <= {400, 413, 415, 422, 431}
    assert max(peaks) - before < 2 * AT_ONCE * BODY_LIMIT + 8 * MIB


def test_a_thousand_large_heads_leave_nothing(server: Server) -> None:
    """Of a megabyte in a header nothing is kept, at a probe and at a prediction, nor logged."""
    process = psutil.Process(server.pid)
    heads = [
        head("X-Pad: " + "y" * MIB, method=method, path=path)
        for method, path in (("GET", "/livez"), ("POST", "/"))
    ]

    def ask(times: int) -> None:
        for number in range(times):
            with wire(("127.0.0.1", server.port)) as client:
                try:
                    client.write(heads[number % 2])
                except OSError:
                    continue  # it has closed before all of it was sent
                assert {reply.status for reply in client.rest()} <= {431}

    ask(50)
    before = process.memory_info().rss
    ask(1000)
    assert process.memory_info().rss < before + 4 * MIB
    assert "yyyy" not in server.text


# ---------------------------------------------------------------- those who leave


@pytest.mark.parametrize("half", [False, True], ids=["close", "half-close"])
def test_whoever_leaves_costs_no_run(server: Server, folder: Path, *, half: bool) -> None:
    """Of twenty that leave while they wait none is run, and each is counted once."""
    gone, good = server.outcomes().get("client_gone", 0), server.scrape()[OK]
    with busy(server, folder) as holder:
        clients = [Wire(("127.0.0.1", server.port)) for _ in range(20)]
        for client in clients:
            client.write(request(TEXT))
        server.wait_depth(20)
        for client in clients:
            if half:
                client.socket.shutdown(socket.SHUT_WR)
            else:
                client.socket.close()
        wait_for(lambda: server.outcomes().get("client_gone", 0) == gone + 20, "them to be missed")
        assert server.metric("seawall_queue_depth") == 0
        for client in clients:
            client.socket.close()
    assert holder.result()[0].status == 200
    server.wait_idle()
    assert server.scrape()[OK] == good + 1


# ---------------------------------------------------------------- HEAD


def test_head_while_it_loads() -> None:
    """Probes by HEAD see what those by GET see, before the model is there."""
    with Server(command=scripted({"load": "never"}), ready=False) as server:
        compare(server, ready=503)


def test_head_while_it_drains() -> None:
    """The same while it drains: alive, and not ready."""
    with Server(command=scripted({}, "--drain-delay-ms", "60000")) as server:
        server.terminate()
        wait_for(lambda: server.get("/readyz").status_code == 503, "the drain to begin")
        compare(server, ready=503)


def test_head_while_it_is_ready(server: Server) -> None:
    """The same of a server that is ready."""
    compare(server, ready=200)


def compare(server: Server, *, ready: int) -> None:
    """Every address by HEAD and by GET, on one connection."""
    statuses = {"/livez": 200, "/readyz": ready, "/metrics": 200, "/": 200, "/none": 404}
    for path, status in statuses.items():
        bare = server.client.head(path)
        assert (bare.status_code, bare.content) == (status, b""), path
        assert server.get(path).status_code == status
