"""The connection: real sockets, a real uvicorn, the scripted dispatcher behind it."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from service.core.errors import Problem
from tests.front.http_served import (
    FULL,
    Serve,
    dropped,
    ended,
    flood,
    held,
    hurried,
    hurry,
    refused,
)
from tests.front.http_stage import eventually
from tests.front.http_wire import Wire, chunked, head, request, wire

# ---------------------------------------------------------------- early answers


@pytest.mark.parametrize("size", [1, 10_000, 700_000])
def test_early_answer_keeps_the_connection(serve: Serve, size: int) -> None:
    """A refusal before the body is read leaves a connection on which the next request works."""
    stage, served = serve()
    stage.dispatcher.gate_says = FULL
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", f"Content-Length: {size}"))
        reply = client.reply()
        refused(reply, 503, "queue_full")
        assert reply.headers["retry-after"] == "3"
        assert "connection" not in reply.headers
        client.write(b"x" * size)
        stage.dispatcher.gate_says = None
        assert client.post(b"next").status == 200
    ended(stage, {"queue_full": 1, "ok": 1})


def test_early_answer_before_chunks(serve: Serve) -> None:
    """Chunks that follow an early answer are thrown away, and the next request is whole."""
    stage, served = serve()
    stage.dispatcher.gate_says = FULL
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", "Transfer-Encoding: chunked"))
        refused(client.reply(), 503, "queue_full")
        stage.dispatcher.gate_says = None
        client.write(chunked(b"a" * 50_000, b"b" * 50_000, trailer=b"X-Late: 1\r\n"))
        client.write(request(b"next"))
        assert json.loads(client.reply().body) == {"bytes": 4}


def test_next_request_in_the_same_segment_as_the_rest(serve: Serve) -> None:
    """The end of a thrown-away body and the next requests may come in one piece."""
    stage, served = serve()
    stage.dispatcher.gate_says = FULL
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", "Content-Length: 5"))
        refused(client.reply(), 503, "queue_full")
        stage.dispatcher.gate_says = None
        stage.dispatcher.mode = "hold"
        client.write(b"12345" + request(b"one") + request(b"three"))
        eventually(lambda: bool(stage.dispatcher.tickets), "it was not admitted")
        (connection,) = served.connections()
        assert connection._idle._since is None  # or it would end the running request
        stage.dispatcher.mode = "answer"
        served.do(stage.dispatcher.answer, stage.dispatcher.tickets[0])
        assert [json.loads(client.reply().body)["bytes"] for _ in range(2)] == [3, 5]


def test_early_answer_behind_a_full_buffer(serve: Serve) -> None:
    """A body that had filled the buffer before the answer is thrown away like any other."""
    _, served = serve()
    with wire(served.address) as client:
        client.write(request(b"x" * 900_000, path="/nowhere"))
        refused(client.reply(), 404, "not_found")
        assert client.post(b"next").status == 200


def test_pause_behind_a_thrown_away_body(serve: Serve) -> None:
    """After the rest is read the connection is idle like any other: only keep-alive ends it."""
    stage, served = serve(keep_alive_s=1)
    stage.dispatcher.gate_says = FULL
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", "Content-Length: 5"))
        refused(client.reply(), 503, "queue_full")
        hurry(served, 200)
        client.write(b"12345")
        assert client.rest() == []
    assert dropped(stage) == {}


def test_early_answer_to_an_endless_body_ends_the_connection(serve: Serve) -> None:
    """What goes on behind an early answer is cut off after ``max_body_bytes``."""
    stage, served = serve(max_body_bytes=65_536, receive_timeout_ms=600_000)
    stage.dispatcher.gate_says = FULL
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", "Transfer-Encoding: chunked"))
        refused(client.reply(), 503, "queue_full")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            flood(client, b"1000\r\n" + b"x" * 4096 + b"\r\n")
    ended(stage, {"queue_full": 1})


def test_early_answer_to_a_body_that_stops(serve: Serve) -> None:
    """A body that never ends after an early answer holds the connection no longer than allowed."""
    stage, served = serve()
    stage.dispatcher.gate_says = FULL
    with hurried(served, 300) as client:
        client.write(head("Content-Type: text/plain", "Content-Length: 10") + b"123")
        refused(client.reply(), 503, "queue_full")
        assert client.rest() == []
    ended(stage, {"queue_full": 1})


def test_early_answer_to_a_body_that_breaks(serve: Serve) -> None:
    """Broken framing behind an early answer ends the connection without a second answer."""
    stage, served = serve(receive_timeout_ms=600_000)
    stage.dispatcher.gate_says = FULL
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", "Transfer-Encoding: chunked"))
        refused(client.reply(), 503, "queue_full")
        client.write(b"no chunk\r\n")
        assert client.rest() == []
    ended(stage, {"queue_full": 1})
    assert dropped(stage) == {"bad_http": 1}


def test_too_large_by_declaration(serve: Serve) -> None:
    """10 GB announced is 413 at once, and the answer says that the connection ends."""
    stage, served = serve(receive_timeout_ms=600_000)
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", "Content-Length: 10737418240"))
        reply = client.reply()
        refused(reply, 413, "payload_too_large")
        assert json.loads(reply.body)["limit"] == 1_048_576
        assert reply.headers["connection"] == "close"
        assert client.rest() == []
    assert stage.dispatcher.asks == []


def test_too_large_as_it_comes(serve: Serve) -> None:
    """A chunked body is 413 at the byte that passes the limit."""
    stage, served = serve(max_body_bytes=10_000)
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", "Transfer-Encoding: chunked"))
        client.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n1\r\nx\r\n")
        refused(client.reply(), 413, "payload_too_large")
        client.write(b"0\r\n\r\n")
        assert client.post(b"next").status == 200
    assert stage.context.receiving_bytes == 0


def test_last_answer_survives_unread_body(serve: Serve) -> None:
    """With ``Connection: close`` the whole rest is taken before the connection closes."""
    stage, served = serve()
    stage.dispatcher.gate_says = FULL
    with wire(served.address) as client:
        client.write(
            head("Content-Type: text/plain", "Connection: close", "Content-Length: 900000")
        )
        client.write(b"x" * 900_000)
        replies = client.rest()
    assert [reply.status for reply in replies] == [503]


def test_expect_continue(serve: Serve) -> None:
    """A body that waits for 100 is asked for; a refusal closes, since it may never come."""
    stage, served = serve()
    lines = ("Content-Type: text/plain", "Expect: 100-continue", "Content-Length: 4")
    with wire(served.address) as client:
        client.write(head(*lines))
        assert client.socket.recv(100).startswith(b"HTTP/1.1 100")
        client.write(b"body")
        assert client.reply().status == 200
        stage.dispatcher.gate_says = FULL
        client.write(head(*lines))
        reply = client.reply()
        refused(reply, 503, "queue_full")
        assert reply.headers["connection"] == "close"
        assert client.rest() == []


def test_thirty_posts_on_one_connection(serve: Serve) -> None:
    """Good and bad requests in turn on one connection: each gets its own answer, none a stray."""
    stage, served = serve(max_body_bytes=20_000, max_chars=20_000)
    text, big = b"x" * 10_000, b"x" * 30_000
    kinds: list[tuple[bytes, int]] = [
        (request(text), 200),
        (request(big), 413),
        (request(text, path="/nowhere"), 404),
        (request(text, "Content-Type: image/png"), 415),
        (request(text, "Content-Type: application/json"), 400),
    ]
    client = Wire(served.address)
    for turn in range(30):
        sent, status = kinds[turn % len(kinds)]
        client.write(sent)
        reply = client.reply()
        assert reply.status == status
        if reply.headers.get("connection") == "close":
            assert client.rest() == []
            client.socket.close()
            client = Wire(served.address)
    client.socket.close()
    assert dropped(stage) == {}
    ended(
        stage,
        {
            "ok": 6,
            "payload_too_large": 6,
            "unsupported_media_type": 6,
            "malformed_request": 6,
        },
    )


# ---------------------------------------------------------------- upgrades

H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")


def test_upgrade_with_length(serve: Serve) -> None:
    """An offer of h2c is declined and the body arrives; so do the requests behind it."""
    _, served = serve()
    with wire(served.address) as client:
        client.write(request(b"a body", *H2C) + request(b"other", *H2C) + request(b"x"))
        assert [json.loads(client.reply().body) for _ in range(3)] == [
            {"bytes": 6}, {"bytes": 5}, {"bytes": 1},
        ]  # fmt: skip


def test_upgrade_in_pieces_and_chunks(serve: Serve) -> None:
    """The same with a chunked body that comes a byte at a time, without the offer and with it."""
    _, served = serve()
    for offer in ((), H2C):
        sent = head("Content-Type: text/plain", "Transfer-Encoding: chunked", *offer)
        with wire(served.address) as client:
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in sent + chunked(b"four", b"teen"):
                client.write(bytes([byte]))
            assert json.loads(client.reply().body) == {"bytes": 8}


def test_websockets_are_declined(serve: Serve) -> None:
    """A websocket's handshake is answered as the plain GET that it is."""
    _, served = serve()
    with wire(served.address) as client:
        lines = (
            "Connection: keep-alive, Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
        )
        client.write(head(*lines, method="GET"))
        assert json.loads(client.reply().body)["name"] == "seawall"
        client.write(head("Connection: Upgrade", "Upgrade: h2c", method="GET", path="/livez"))
        assert client.reply().status == 200


# ---------------------------------------------------------------- time


def test_silent_connection_ends(serve: Serve) -> None:
    """A connection that says nothing is closed without a word, and counted."""
    stage, served = serve(receive_timeout_ms=200)
    with wire(served.address) as client:
        assert client.rest() == []
    assert dropped(stage) == {"header_timeout": 1}


@pytest.mark.parametrize("new", [True, False], ids=["new", "kept alive"])
def test_slow_head_ends(serve: Serve, new: bool) -> None:
    """Bytes that trickle in do not lengthen the time for a head; 408, closed, counted."""
    stage, served = serve(**({"receive_timeout_ms": 1500} if new else {}))
    with wire(served.address) if new else hurried(served, 400) as client:
        client.socket.settimeout(0.02)
        for byte in (head("X-Pad: " + "x" * 10_000))[:2_000]:
            client.write(bytes([byte]))
            try:
                client._read()
            except TimeoutError:
                continue
            break
        client.socket.settimeout(20)
        replies = client.rest()
    refused(replies[0], 408, "request_timeout")
    assert len(replies) == 1
    assert dropped(stage) == {"header_timeout": 1}


def test_a_head_that_came_in_time_is_read(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was held up for longer than a head may take reads what has come meanwhile."""
    stage, served = serve()
    begun, written = threading.Event(), threading.Event()
    with hurried(served, 50) as client:
        (connection,) = served.connections()

        def held_up() -> Problem:
            connection._timer.arm(0.05, connection._head_is_late)
            begun.set()
            written.wait(60)
            time.sleep(0.1)
            return FULL

        monkeypatch.setattr(stage.dispatcher, "gate", held_up)
        with wire(served.address) as other:
            other.write(request(b"hello"))
            assert begun.wait(60)
            client.write(head(method="GET", path="/livez"))
            written.set()
            assert client.reply().status == 200
            refused(other.reply(), 503, "queue_full")


def test_blank_lines_are_no_head(serve: Serve) -> None:
    """Blank lines between requests buy no time."""
    stage, served = serve()
    with hurried(served, 200) as client:
        client.write(b"\r\n\r\n")
        assert client.rest() == []
    assert dropped(stage) == {"header_timeout": 1}


def test_slow_head_behind_a_running_request(serve: Serve) -> None:
    """Half a pipelined head does not cost the request before it its answer."""
    stage, served = serve()
    with held(stage, served) as client:
        hurry(served, 200)
        client.write(head()[:20])
        eventually(
            lambda: any(c._phase.value == "deaf" for c in served.connections()), "never late"
        )
        served.do(stage.dispatcher.answer, stage.dispatcher.tickets[0])
        assert [reply.status for reply in client.rest()] == [200]
    assert dropped(stage) == {}


def test_body_that_stops(serve: Serve) -> None:
    """A body that does not come in time is 408, and the connection closes."""
    stage, served = serve(receive_timeout_ms=1500)
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", "Content-Length: 10") + b"123")
        replies = client.rest()
    refused(replies[0], 408, "request_timeout")
    assert replies[0].headers["connection"] == "close"
    ended(stage, {"request_timeout": 1})
    assert stage.context.receiving_bytes == 0


def test_pause_between_requests_is_no_slow_head(serve: Serve) -> None:
    """An idle connection outlives the receive timeout; only the keep-alive time ends it."""
    stage, served = serve(keep_alive_s=1)
    began = time.monotonic()
    with hurried(served, 100) as client:
        assert client.rest() == []
        assert time.monotonic() - began > 0.5
    assert dropped(stage) == {}


def test_answer_that_nobody_takes(serve: Serve) -> None:
    """A client that never reads its answer does not hold the connection for ever."""
    stage, served = serve(keep_alive_s=1)
    with held(stage, served) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ticket = stage.dispatcher.tickets[0]
        served.do(stage.dispatcher.run, ticket)
        served.do(ticket.answer, ticket.items[0], b'"' + b"x" * 20_000_000 + b'"', 0.0, 1)
        eventually(lambda: stage.value("connections") == 0, "it is still open")


# ---------------------------------------------------------------- heads


LARGE_HEADS = {
    "huge": head("X-Pad: " + "x" * 1_000_000),
    "just over": head("X-Pad: " + "x" * 70_000),
    "unfinished": head("X-Pad: " + "x" * 1_000_000)[:-10],
    "many": head(*[f"X-Pad-{i}: {i}" for i in range(5_000)]),
    "many small ones": head(*["a:b"] * 256),
    "target": head(path="/" + "x" * 100_000),
    "probe": head("X-Pad: " + "x" * 1_000_000, method="GET", path="/livez"),
}


def test_head_too_large(serve: Serve) -> None:
    """A head over 64 KiB, or of over 256 headers, is 431 and the end of the connection."""
    stage, served = serve()
    for sent in LARGE_HEADS.values():
        with wire(served.address) as client:
            client.write(sent)
            (reply,) = client.rest()
        refused(reply, 431, "malformed_request")
        assert reply.headers["connection"] == "close"
        assert json.loads(reply.body)["limit"] == 65_536
    assert dropped(stage) == {"header_too_large": len(LARGE_HEADS)}
    assert "xxxx" not in stage.log_text


def test_head_of_allowed_size(serve: Serve) -> None:
    """A head just under the limit is served, in one piece or in many."""
    _, served = serve()
    sent = head("X-Pad: " + "x" * 62_000, *["a:b"] * 254, method="GET", path="/livez")
    with wire(served.address) as client:
        client.write(sent)
        assert client.reply().status == 200
        for start in range(0, len(sent), 5_000):
            client.write(sent[start : start + 5_000])
        assert client.reply().status == 200


@pytest.mark.parametrize("what", ["trailer", "extension", "trailers"])
def test_endless_framing(serve: Serve, what: str) -> None:
    """A trailer or chunk extension without end is refused, not collected."""
    stage, served = serve(receive_timeout_ms=600_000)
    begun = {
        "trailer": b"4\r\nbody\r\n0\r\nX-Late: ",
        "extension": b"4;x=",
        "trailers": b"4\r\nbody\r\n0\r\n",
    }[what]
    more = b"X-Late: 1\r\n" * 500 if what == "trailers" else b"x" * 5_000
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", "Transfer-Encoding: chunked") + begun)
        client.socket.settimeout(0.01)
        for _ in range(40):
            client.write(more)
            try:
                client._read()
            except TimeoutError:
                continue
            break
        client.socket.settimeout(20)
        refused(client.reply(), 400, "malformed_request")
        assert client.rest() == []
    ended(stage, {"malformed_request": 1})
    assert dropped(stage) == {"header_too_large": 1}


def test_trailers_are_no_headers(serve: Serve) -> None:
    """What stands behind a body changes nothing of its request."""
    stage, served = serve()
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", "Transfer-Encoding: chunked"))
        client.write(chunked(b"x", trailer=b"X-Request-Timeout-Ms: bad\r\nX-Request-Id: late\r\n"))
        reply = client.reply()
    assert reply.status == 200
    assert reply.headers["x-request-id"] != "late"
    assert stage.dispatcher.asks[0].timeout_s is None


BAD_HTTP = (
    b"SECRET-7731 / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /SECRET-7731\xff HTTP/1.1\r\n\r\n",
    b"CONNECT SECRET-7731:1 HTTP/1.1\r\nHost: here\r\n\r\n",
    b"CONNECT / HTTP/1.1\r\nHost: here\r\n\r\n",
    head("Content-Length: 3", "Transfer-Encoding: chunked"),
    head("Content-Length: 3", "Content-Length: 4"),
    head("Content-Length: -1"),
    head("Content-Length: 99999999999999999999999"),
    head("X Bad: SECRET-7731"),
    head("X-Folded: a\r\n SECRET-7731"),
    head("X-Control: \x01SECRET-7731"),
)


def test_bad_http(serve: Serve) -> None:
    """What is no HTTP is 400 problem+json and the end of the connection, and tells nothing back."""
    stage, served = serve()
    for sent in BAD_HTTP:
        with wire(served.address) as client:
            client.write(sent)
            (reply,) = client.rest()
        refused(reply, 400, "malformed_request")
        assert reply.headers["connection"] == "close"
        assert b"SECRET-7731" not in reply.body
    assert "SECRET-7731" not in stage.log_text
    assert dropped(stage) == {"bad_http": len(BAD_HTTP)}


def test_broken_chunk(serve: Serve) -> None:
    """A body whose framing breaks is 400 and one outcome, never an answer from half a body."""
    stage, served = serve()
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", "Transfer-Encoding: chunked"))
        client.write(b"4\r\nbody\r\nSECRET-7731\r\n")
        replies = client.rest()
    refused(replies[0], 400, "malformed_request")
    assert len(replies) == 1
    ended(stage, {"malformed_request": 1})
    assert stage.dispatcher.asks == []


def test_garbage_behind_a_request(serve: Serve) -> None:
    """Garbage behind a whole request ends the connection after its answer, not before."""
    stage, served = serve()
    with held(stage, served) as client:
        client.write(b"\x00\x01\x02 garbage\r\n\r\n")
        eventually(lambda: dropped(stage) == {"bad_http": 1}, "it was not noticed")
        (connection,) = served.connections()
        served.do(connection.flow.pause_reading)
        client.write(b"more of it")
        served.do(stage.dispatcher.answer, stage.dispatcher.tickets[0])
        replies = client.rest()
    assert not client.reset
    assert [reply.status for reply in replies] == [200]
    assert replies[0].headers["connection"] == "close"


# ---------------------------------------------------------------- pipelining, many, gone


def test_pipelined_requests(serve: Serve) -> None:
    """Requests sent in one piece are answered in order, refusals among them."""
    _, served = serve()
    with wire(served.address) as client:
        client.write(
            request(b"a")
            + head(method="GET", path="/livez")
            + request(b"x", path="/nowhere")
            + request(b"bb")
            + head("Connection: close", method="GET", path="/livez")
            + request(b"never read")
        )
        assert [reply.status for reply in client.rest()] == [200, 200, 404, 200, 200]


def test_pipelined_flood_is_not_collected(serve: Serve) -> None:
    """While requests wait in a connection nothing more of it is read."""
    stage, served = serve()
    with held(stage, served) as client:
        one = head(method="GET", path="/livez")
        client.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            flood(client, one * 200)
        (connection,) = served.connections()
        assert 0 < len(connection.pipeline) * len(one) < 2**20
        client.socket.settimeout(20)
        served.do(stage.dispatcher.answer, stage.dispatcher.tickets[0])
        assert [client.reply().status for _ in range(20_000)] == [200] * 20_000
        assert len(connection.pipeline) * len(one) < 2**20


@pytest.mark.parametrize("half", [False, True], ids=["close", "half-close"])
def test_client_gone(serve: Serve, half: bool) -> None:
    """A client that leaves, or closes its sending side, gives its place back and gets nothing."""
    stage, served = serve()
    with held(stage, served) as client:
        if half:
            client.socket.shutdown(socket.SHUT_WR)
            assert client.rest() == []
        else:
            client.socket.close()
        ended(stage, {"client_gone": 1})
    assert stage.dispatcher.left == ["prepare"]
    eventually(lambda: stage.value("client_gone_total", stage="prepare") == 1, "at no stage")


def test_client_gone_while_sending(serve: Serve) -> None:
    """A client that leaves in mid-body is counted once, at its stage."""
    stage, served = serve()
    with wire(served.address) as client:
        client.write(head("Content-Type: text/plain", "Content-Length: 10") + b"123")
    ended(stage, {"client_gone": 1})
    eventually(lambda: stage.value("client_gone_total", stage="receive") == 1, "at no stage")
    assert stage.value("requests_in_flight", stage="receiving") == 0


def test_pipelined_requests_of_a_client_that_is_gone(serve: Serve) -> None:
    """Every request with complete headers ends in one outcome, those that never began too."""
    stage, served = serve()
    with held(stage, served) as client:
        client.write(request(b"second") + request(b"third"))
        (connection,) = served.connections()
        eventually(lambda: len(connection.pipeline) == 2, "they were not read")
        served.do(connection.transport.abort)
        ended(stage, {"client_gone": 3})
    assert len(stage.dispatcher.tickets) == 1


def test_too_many_connections(serve: Serve) -> None:
    """A connection over the bound is told so and closed; with room again the next one is served."""
    stage, served = serve(max_connections=2)
    with wire(served.address) as first:
        assert first.post(b"one").status == 200
        with wire(served.address) as second:
            assert second.post(b"two").status == 200
            with wire(served.address) as third:
                third.write(request(b"three"))
                replies = third.rest()
            refused(replies[0], 503, "queue_full")
            assert replies[0].headers["retry-after"] == "1"
            assert replies[0].headers["x-envoy-ratelimited"] == "true"
            assert dropped(stage) == {"too_many": 1}
        eventually(lambda: stage.value("connections") == 1, "a closed connection counts on")
        with wire(served.address) as fourth:
            assert fourth.post(b"four").status == 200
    eventually(lambda: stage.value("connections") == 0, "a closed connection counts on")
    ended(stage, {"ok": 3})


def test_far_too_many_connections(serve: Serve) -> None:
    """Far over the bound connections are cut without a word: telling holds descriptors too."""
    stage, served = serve(max_connections=8)
    clients = [Wire(served.address) for _ in range(40)]
    try:
        eventually(lambda: dropped(stage) == {"too_many": 32}, "not all came")
        assert all(not client.rest() for client in clients[12:])
    finally:
        for client in clients:
            client.socket.close()


def test_requests_share_nothing_on_a_connection(serve: Serve) -> None:
    """A request's id is its own, also behind a large body on the same connection."""
    stage, served = serve()
    with wire(served.address) as client:
        first = client.post(b"x" * 200_000, "X-Request-ID: one", "Content-Type: application/json")
        later = [client.post(b"x") for _ in range(2)] + [client.post(b"")]
    assert first.headers["x-request-id"] == "one"
    ids = [reply.headers["x-request-id"] for reply in later]
    assert len({"one", *ids}) == 4
    eventually(lambda: len(stage.lines("request.done")) == 4, "not all have a line")
    assert [line["id"] for line in stage.lines("request.done")] == ["one", *ids]


def test_no_server_header(serve: Serve) -> None:
    """No answer says what software made it, whoever wrote the answer."""
    _, served = serve()
    with wire(served.address) as client:
        assert "server" not in client.post(b"x").headers
        client.write(b"bad\r\n\r\n")
        assert "server" not in client.reply().headers


def test_stop_ends_idle_and_unread_connections(serve: Serve) -> None:
    """At the end idle connections close and a half-read body does not hold the server."""
    stage, served = serve(keep_alive_s=600, receive_timeout_ms=600_000)
    stage.dispatcher.gate_says = FULL
    with wire(served.address) as unread, wire(served.address) as idle:
        unread.write(head("Content-Type: text/plain", "Content-Length: 10"))
        refused(unread.reply(), 503, "queue_full")
        assert idle.post(b"x").status == 503
        for connection in served.connections():
            served.do(connection.shutdown)
        assert idle.rest() == []
        assert unread.rest() == []
