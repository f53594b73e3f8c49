"""The door: refusals from the head alone, over real sockets; the long way is the measure."""

from __future__ import annotations

import json
import logging
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from service.core.errors import Problem, problem
from service.http.protocol import GuardedProtocol
from service.server import Process
from service.settings import Settings
from tests.front.http_served import FULL, Serve, dropped, ended, held, hurried, hurry, refused
from tests.front.http_stage import SecretError, Served, Stage, ask, eventually, serving
from tests.front.http_wire import Reply, Wire, chunked, head, request, wire

TEXT = "Content-Type: text/plain"
MINE = "X-Request-Id: mine"
TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACED = f"traceparent: 00-{TRACE}-b7ad6b7169203331-01"
ROUNDABOUT = "/?inside"
"""The path of a prediction that the door does not look at."""

REFUSALS = [
    problem("draining", retry_after_s=1.0),
    problem("model_loading", retry_after_s=7.2),
    problem("circuit_open", retry_after_s=3.0),
    problem("queue_full", retry_after_s=1.5),
    problem("overloaded", retry_after_s=2.5),
    problem("overloaded"),
]
"""Whatever the gate may say."""


def undated(reply: Reply) -> tuple[int, list[tuple[str, str]], bytes]:
    """All of an answer, its headers in order, but for the date."""
    headers = [(name, value) for name, value in reply.headers.items() if name != "date"]
    assert len(headers) == len(reply.headers) - 1
    return reply.status, headers, reply.body


def numbers(replies: list[Reply]) -> list[int]:
    """The requests that they answer, where each bears its number as its id."""
    return [int(reply.headers["x-request-id"]) for reply in replies]


def numbered(number: int, body: bytes = b"hello", path: str = "/") -> bytes:
    """A request that bears its number."""
    return request(body, f"X-Request-Id: {number:06}", path=path)


SIZE = len(numbered(0))


def say(stage: Stage, refusal: Problem | None = FULL) -> None:
    """From now on the gate says this."""
    stage.dispatcher.gate_says = refusal


# ---------------------------------------------------------------- the same answer, the same count


def test_answer_is_the_one_from_inside(serve: Serve) -> None:
    """Byte for byte but for the date, the door's refusal is the one that inside would write."""
    stage, served = serve()
    for refusal in REFUSALS:
        say(stage, refusal)
        came, asked = len(served.inside), stage.dispatcher.gates
        with wire(served.address) as client:
            outside = client.post(b"hello", MINE)
            assert (len(served.inside), stage.dispatcher.gates) == (came, asked + 1)
            inside = client.post(b"hello", MINE, path=ROUNDABOUT)
            assert len(served.inside) == came + 1
        refused(outside, 503, refusal.code)
        assert undated(outside) == undated(inside)
        alone = ask(stage.app, "hello", headers=[("X-Request-Id", "mine")])
        assert set(outside.headers) == {*alone.headers, "date"}
        assert (alone.status, alone.body) == (outside.status, outside.body)


@pytest.mark.parametrize("refusal", REFUSALS[:-1], ids=lambda refusal: refusal.code)
def test_one_end_each(refusal: Problem) -> None:
    """At the door as inside: one outcome, one sample, one line of the same kind, one wait told."""
    notes = []
    for path in ("/", ROUNDABOUT):
        stage = Stage()
        say(stage, refusal)
        with serving(stage) as served, wire(served.address) as client:
            reply = client.post(b"hello", MINE, TRACED, path=path)
            ended(stage, {refusal.code: 1})
            eventually(lambda: bool(stage.lines("request.done")), "it has no line")  # noqa: B023
            assert len(served.inside) == (path != "/")
        assert stage.samples == 1
        assert stage.value("retry_after_seconds_count") == 1
        assert stage.value("retry_after_seconds_sum") == int(reply.headers["retry-after"])
        accept = "application/openmetrics-text"
        assert f'# {{trace_id="{TRACE}"}}'.encode() in stage.metrics.render(accept)[0]
        (line,) = stage.lines("request.done")
        assert line.pop("total_ms") > 0
        notes.append(line)
        assert stage.lines("http.done") == []
    assert notes[0] == notes[1]
    assert (notes[0]["id"], notes[0]["trace_id"]) == ("mine", TRACE)
    assert (notes[0]["outcome"], notes[0]["status"]) == (refusal.code, 503)


def test_refusals_at_the_door_are_summed_up() -> None:
    """Of many refusals a second ten have a line, at the door or inside, the rest is a count."""
    stage = Stage(clock=lambda: 7.0)
    say(stage)
    with serving(stage) as served, wire(served.address) as client:
        for turn in range(25):
            assert client.post(b"hello", path="/" if turn % 5 else ROUNDABOUT).status == 503
        eventually(lambda: bool(stage.lines("admission.shed")), "the rest was not told")
        assert len(served.inside) == 5
    assert len(stage.lines("request.done")) == 10
    (told,) = stage.lines("admission.shed")
    assert (told["requests"], told["codes"]) == (15, {"queue_full": 15})
    assert stage.outcomes() == {"queue_full": 25}


def test_ids(serve: Serve) -> None:
    """A fit id comes back in header, body and log; any other is replaced, each time anew."""
    stage, served = serve()
    say(stage)
    unfit = ["X-Request-Id: a b", "X-Request-Id: " + "x" * 129, "X-Other: none"]
    with wire(served.address) as client:
        shown = [client.post(b"hello", line) for line in (MINE, *unfit, *unfit)]
        shown.append(client.post(b"hello", MINE, "X-Request-Id: yours"))
    for reply in shown:
        refused(reply, 503, "queue_full")
    ids = [reply.headers["x-request-id"] for reply in shown]
    assert ids[0] == "mine"
    assert [len(one) for one in ids[1:]] == [32] * 7
    assert len(set(ids)) == 8
    assert [line["id"] for line in stage.lines("request.done")] == ids
    assert served.inside == []


def test_who_is_let_in_is_asked_again(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The door lets in for a moment only: inside the gate has the last word."""
    stage, served = serve()
    answers = [None, FULL, None, None]
    monkeypatch.setattr(stage.dispatcher, "gate", lambda: answers.pop(0))
    with wire(served.address) as client:
        refused(client.post(b"hello"), 503, "queue_full")
        assert client.post(b"hello").status == 200
    assert served.inside == [("POST", "/")] * 2
    ended(stage, {"queue_full": 1, "ok": 1})


def test_no_door() -> None:
    """A server without a door refuses inside, and so does not answer otherwise."""
    stage = Stage()
    say(stage)
    stage.door = None
    with serving(stage) as served, wire(served.address) as client:
        refused(client.post(b"hello"), 503, "queue_full")
        assert served.inside == [("POST", "/")]


def test_which_servers_have_a_door() -> None:
    """The server of predictions has the door of its app; that of metrics alone has none."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = Process(Settings(), listener)
    doors = [
        getattr(server.config.http, "door", "not ours")
        for server in (process._server, process._metrics_server)
    ]
    assert doors == [process._app.door, None]


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("size", [0, 1, 700_000, 1_048_576])
def test_answer_comes_before_the_body(serve: Serve, size: int) -> None:
    """A head is enough; when its body has come too, the next request is served."""
    stage, served = serve()
    with wire(served.address) as client:
        for _ in range(2):
            say(stage)
            client.write(head(TEXT, f"Content-Length: {size}"))
            reply = client.reply()
            refused(reply, 503, "queue_full")
            assert "connection" not in reply.headers
            client.write(b"x" * size)
            say(stage, None)
            assert json.loads(client.post(b"next").body) == {"bytes": 4}
    assert served.inside == [("POST", "/")] * 2
    assert stage.dispatcher.gates == 2 * 3
    ended(stage, {"queue_full": 2, "ok": 2})
    assert stage.context.receiving_bytes == 0
    assert dropped(stage) == {}


def in_pieces(client: Wire, data: bytes, size: int) -> None:
    """Send so many bytes at a time."""
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for start in range(0, len(data), size):
        client.write(data[start : start + size])


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_body_is_no_request(serve: Serve, size: int) -> None:
    """What follows a refused head is its body, whatever it looks like and however it comes."""
    stage, served = serve()
    say(stage)
    evil = request(b"evil", "X-Request-Id: evil") * 3 + head(method="GET", path="/evil")
    with wire(served.address) as client:
        in_pieces(client, numbered(0, evil) + numbered(1, evil, "/nowhere"), size)
        assert numbers([client.reply(), client.reply()]) == [0, 1]
        assert client.post(b"next", "X-Request-Id: 2").headers["x-request-id"] == "2"
    assert served.inside == [("POST", "/nowhere")]
    assert stage.dispatcher.gates == 2
    ended(stage, {"queue_full": 2})


@pytest.mark.parametrize("size", [7, 1_000, 100_000])
def test_pipelined_refusals_are_answered_in_order(serve: Serve, size: int) -> None:
    """Of refused requests in one segment, or cut anywhere, each has its answer, in order."""
    stage, served = serve()
    say(stage)
    with wire(served.address) as client:
        in_pieces(client, b"".join(numbered(i, b"x" * (i % 5)) for i in range(50)), size)
        replies = [client.reply() for _ in range(50)]
    assert {reply.status for reply in replies} == {503}
    assert numbers(replies) == list(range(50))
    assert served.inside == []
    ended(stage, {"queue_full": 50})


def test_refusals_wait_for_what_is_inside(serve: Serve) -> None:
    """Refused and other requests in one segment are answered in the order in which they came."""
    stage, served = serve()
    say(stage)
    paths = ["/", "/nowhere", "/", "/", "/nowhere", "/nowhere", "/"] * 3
    with wire(served.address) as client:
        client.write(b"".join(numbered(i, path=path) for i, path in enumerate(paths)))
        replies = [client.reply() for _ in paths]
    assert [reply.status for reply in replies] == [503 if path == "/" else 404 for path in paths]
    assert numbers(replies) == list(range(len(paths)))
    ended(stage, {"queue_full": paths.count("/")})


def test_refusal_behind_a_running_request(serve: Serve) -> None:
    """A refusal does not overtake the answer that its connection still waits for."""
    stage, served = serve()
    with held(stage, served) as client:
        say(stage)
        client.write(numbered(1) + numbered(2))
        (connection,) = served.connections()
        eventually(lambda: len(connection.pipeline) == 2, "they were not read")
        served.do(stage.dispatcher.answer, stage.dispatcher.tickets[0])
        replies = [client.reply() for _ in range(3)]
        assert [reply.status for reply in replies] == [200, 503, 503]
        assert numbers(replies[1:]) == [1, 2]
        came = len(served.inside)
        assert numbers([client.post(b"hello", "X-Request-Id: 3")]) == [3]
        assert len(served.inside) == came  # at the door again
    ended(stage, {"ok": 1, "queue_full": 3})


def test_garbage_behind_a_refusal(serve: Serve) -> None:
    """What is no HTTP behind a refused request has its own answer and ends the connection."""
    stage, served = serve()
    say(stage)
    with wire(served.address) as client:
        client.write(numbered(0) + b"\x00\x01 garbage\r\n\r\n")
        replies = client.rest()
    assert not client.reset
    refused(replies[0], 503, "queue_full")
    refused(replies[1], 400, "malformed_request")
    assert len(replies) == 2
    assert dropped(stage) == {"bad_http": 1}


def test_upgrade_is_declined_at_the_door(serve: Serve) -> None:
    """An offer to upgrade changes nothing: refused from the head, and the body is its body."""
    stage, served = serve()
    say(stage)
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    with wire(served.address) as client:
        client.write(request(request(b"evil"), MINE, *offer) + numbered(1))
        assert client.reply().headers["x-request-id"] == "mine"
        assert numbers([client.reply()]) == [1]
    assert served.inside == []
    ended(stage, {"queue_full": 2})


# ---------------------------------------------------------------- what is odd goes inside

MOST = 20_000

ODD: dict[str, tuple[bytes, int, bool]] = {
    "chunked": (head(TEXT, "Transfer-Encoding: chunked") + chunked(b"hello"), 503, False),
    "too long": (request(b"x" * (MOST + 1)), 503, False),
    "too long and unsent": (head(TEXT, f"Content-Length: {MOST + 1}"), 503, True),
    "long number": (head(TEXT, f"Content-Length: {'0' * 5000}5") + b"hello", 503, False),
    "long number and unsent": (head(TEXT, f"Content-Length: {'0' * 5000}5"), 503, True),
    "old": (request(b"hello", "Connection: keep-alive").replace(b"/1.1", b"/1.0", 1), 503, True),
    "last": (request(b"hello", "Connection: close"), 503, True),
    "waits for 100": (head(TEXT, "Expect: 100-continue", "Content-Length: 5"), 503, True),
    "with a query": (request(b"hello", path="/?x=1"), 503, False),
    "with a host": (request(b"hello", path="http://here/"), 503, False),
    "GET": (head(method="GET"), 200, False),
    "HEAD": (head(method="GET", path="/livez"), 200, False),
    "PUT": (head("Content-Length: 0", method="PUT"), 405, False),
    "another path": (request(b"hello", path="/nowhere"), 404, False),
}
"""What is sent, the status, and whether the connection ends."""


@pytest.mark.parametrize("what", ODD)
def test_odd_requests_are_looked_at_inside(serve: Serve, what: str) -> None:
    """What is no ordinary prediction goes the long way and is answered as ever."""
    stage, served = serve(max_body_bytes=MOST)
    say(stage)
    sent, status, ends = ODD[what]
    with wire(served.address) as client:
        client.write(sent)
        reply = client.reply()
        assert reply.status == status
        assert len(served.inside) == 1
        assert (reply.headers.get("connection") == "close") == ends
        if ends:
            assert client.rest() == []
        else:
            refused(client.post(b"hello"), 503, "queue_full")
            assert len(served.inside) == 1  # the ordinary one was not let in
    if status == 503:
        refused(reply, 503, "queue_full")
    eventually(lambda: stage.value("connections") == 0, "it is still open")
    ended(stage, {"queue_full": (status == 503) + (not ends)})
    assert dropped(stage) == {}


def test_ordinary_again_behind_an_odd_one(serve: Serve) -> None:
    """What was odd about a request is not held against the next on its connection."""
    stage, served = serve()
    with wire(served.address) as client:
        client.write(head(TEXT, "Expect: 100-continue", "Content-Length: 5") + b"hello")
        assert client.reply().status == 200
        say(stage)
        refused(client.post(b"hello"), 503, "queue_full")
        assert served.inside == [("POST", "/")]
    ended(stage, {"ok": 1, "queue_full": 1})


@pytest.mark.parametrize("sign", ["closing", "draining"])
def test_going_away(serve: Serve, sign: str) -> None:
    """While the server goes away a refusal closes its connection, as every answer does."""
    stage, served = serve()
    say(stage, problem("draining", retry_after_s=1.0))
    with wire(served.address) as client:
        assert "connection" not in client.post(b"hello").headers
        setattr(stage.context if sign == "closing" else stage.dispatcher, sign, True)
        reply = client.post(b"hello")
        refused(reply, 503, "draining")
        assert reply.headers["connection"] == "close"
        assert client.rest() == []
    ended(stage, {"draining": 2})


def test_keys(serve: Serve, tmp_path: Path) -> None:
    """Without a key it is 401 however full it is, with one 503; both as inside."""
    path = tmp_path / "keys"
    path.write_text("one-key\nother-key\n")
    stage, served = serve(api_keys_file=str(path))
    say(stage)
    key, wrong = "Authorization: Bearer other-key", "Authorization: Bearer no-key"
    cases: list[tuple[list[str], int, str]] = [
        ([], 401, "unauthorized"),
        ([wrong], 401, "unauthorized"),
        ([key, key], 401, "unauthorized"),
        ([key], 503, "queue_full"),
    ]
    with wire(served.address) as client:
        for lines, status, code in cases:
            came = len(served.inside)
            outside = client.post(b"hello", MINE, *lines)
            assert len(served.inside) == came
            refused(outside, status, code)
            assert undated(outside) == undated(client.post(b"hello", MINE, *lines, path=ROUNDABOUT))
        say(stage, None)
        refused(client.post(b"hello"), 401, "unauthorized")
        assert client.post(b"hello", key).status == 200
    ended(stage, {"unauthorized": 7, "queue_full": 2, "ok": 1})


def test_bug_at_the_gate(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug of the gate is 500, one outcome and one line without its text; the connection lives."""
    stage, served = serve()

    def broken() -> Problem | None:
        raise SecretError("boom /srv/app/secret.py token=abc123")

    with wire(served.address) as client, monkeypatch.context() as patch:
        patch.setattr(stage.dispatcher, "gate", broken)
        reply = client.post(b"hello", MINE)
        refused(reply, 500, "internal_error")
        alone = ask(stage.app, "hello", headers=[("X-Request-Id", "mine")])
        assert (alone.status, alone.body) == (reply.status, reply.body)
        patch.undo()
        assert client.post(b"hello").status == 200
    ended(stage, {"internal_error": 2, "ok": 1})
    lines = stage.lines("internal.error")
    assert [(line["id"], line["error"].rpartition(".")[2]) for line in lines] == [
        ("mine", "SecretError")
    ] * 2
    told = reply.body.decode() + str(reply.headers) + stage.log_text + caplog.text
    for word in ("boom", "/srv", "abc123"):
        assert word not in told


# ---------------------------------------------------------------- time, memory, the end


def test_body_that_never_comes(serve: Serve) -> None:
    """A refused body may take the receive timeout, and bytes that trickle in do not lengthen it."""
    stage, served = serve(keep_alive_s=600)
    say(stage)
    with wire(served.address) as slow, hurried(served, 300) as silent:
        for client in (silent, slow):
            client.write(head(TEXT, "Content-Length: 1000000"))
            refused(client.reply(), 503, "queue_full")
        slow.socket.settimeout(0.02)
        for _ in range(2_000):
            try:
                slow.write(b"x")
                slow._read()
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break
            if slow.ended:
                break
        else:
            raise AssertionError("it went on for ever")
        assert silent.rest() == []
    eventually(lambda: stage.value("connections") == 0, "they are still open")
    ended(stage, {"queue_full": 2})
    assert dropped(stage) == {}


def test_refused_connections_idle_like_others(serve: Serve) -> None:
    """After a refusal and its body only keep-alive ends the connection, not the receive timeout."""
    stage, served = serve(keep_alive_s=2)
    say(stage)
    with wire(served.address) as client:
        for _ in range(3):
            client.write(head(TEXT, "Content-Length: 5"))
            refused(client.reply(), 503, "queue_full")
            (connection,) = served.connections()
            client.write(b"hello")
        eventually(lambda: connection._idle._since is not None, "it is not idle")
        assert not connection._timer.armed
        assert client.rest() == []
    assert dropped(stage) == {}


def test_client_that_leaves_while_idle(serve: Serve) -> None:
    """A connection that ends while it is idle leaves no timer."""
    stage, served = serve(keep_alive_s=600)
    say(stage)
    with wire(served.address) as client:
        refused(client.post(b"hello"), 503, "queue_full")
        (connection,) = served.connections()
        eventually(lambda: connection._idle._timer is not None, "it is not idle")
    eventually(lambda: stage.value("connections") == 0, "it is still open")
    assert connection._idle._timer is None


def test_client_that_reads_late(serve: Serve) -> None:
    """Whoever asks on and takes no answer is not read on; later it gets them all, in order."""
    stage, served = serve()
    say(stage)
    with wire(served.address) as client:
        connection, sent_bytes = flooded(client, served)
        assert connection.transport.get_write_buffer_size() < 2**18
        assert len(connection.pipeline) < 2**13
        begun = -(-sent_bytes // SIZE)
        came = numbers([client.reply() for _ in range(begun - 1)])
        client.write(numbered(begun - 1)[SIZE - (begun * SIZE - sent_bytes) :])
        assert [*came, *numbers([client.reply()])] == list(range(begun))
        assert client.post(b"hello").status == 503
        assert not connection._taking.armed
    ended(stage, {"queue_full": begun + 1})


def test_client_that_never_reads(serve: Serve) -> None:
    """Answers that nobody takes hold a connection no longer than the keep-alive time."""
    stage, served = serve(keep_alive_s=3, receive_timeout_ms=600_000)
    say(stage)
    with wire(served.address) as client:
        _, sent_bytes = flooded(client, served)
        eventually(lambda: stage.value("connections") == 0, "it is still open")
    assert set(stage.outcomes()) == {"queue_full"}
    assert stage.samples * SIZE <= sent_bytes


def test_client_that_leaves_its_answers(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A client that leaves behind thousands of refusals leaves no timer and is no error."""
    stage, served = serve()
    say(stage)
    with wire(served.address) as client:
        connection, sent_bytes = flooded(client, served)
    eventually(lambda: stage.value("connections") == 0, "it is still open")
    assert not connection._taking.armed
    eventually(lambda: not connection.tasks, "somebody waits on")
    assert set(stage.outcomes()) == {"queue_full"}
    assert stage.samples * SIZE <= sent_bytes
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


def flooded(client: Wire, served: Served) -> tuple[GuardedProtocol, int]:
    """A connection on which thousands of requests were sent and no answer taken; the bytes sent."""
    eventually(lambda: bool(served.connections()), "it was not accepted")
    (connection,) = served.connections()
    theirs = connection.transport.get_extra_info("socket")
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
    client.socket.setblocking(False)
    sent = b"".join(numbered(number) for number in range(40_000))
    sent_bytes = 0

    def full() -> bool:
        nonlocal sent_bytes
        with suppress(BlockingIOError):
            sent_bytes += client.socket.send(sent[sent_bytes:][:50_000])
        assert sent_bytes < len(sent) / 2, "all of it is read"
        paused = connection.flow.read_paused and connection.flow.write_paused
        return paused and sent_bytes > 3_000 * SIZE

    eventually(full, "it was never full")
    client.socket.settimeout(20)
    return connection, sent_bytes


@pytest.mark.parametrize("rest", [b"hello", b"hello" + request(b"late")], ids=["rest", "more"])
def test_stop_while_a_body_is_awaited(serve: Serve, rest: bytes) -> None:
    """At the end a refused client is told so, may finish its body, and nothing more."""
    stage, served = serve(keep_alive_s=600, receive_timeout_ms=600_000)
    say(stage)
    with wire(served.address) as client:
        client.write(head(TEXT, "Content-Length: 5"))
        refused(client.reply(), 503, "queue_full")
        (connection,) = served.connections()
        served.do(connection.shutdown)
        assert client.rest() == []
        assert stage.value("connections") == 1
        client.write(rest)
        eventually(lambda: stage.value("connections") == 0, "it is still open")
    ended(stage, {"queue_full": 1})
    assert served.inside == []


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_stop_waits_for_no_body(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    """A server ends although a refused client neither sends its body nor leaves."""
    stage = Stage(keep_alive_s=600)
    say(stage)
    with serving(stage, loop) as served:
        clients = [Wire(served.address) for _ in range(3)]
        eventually(lambda: len(served.connections()) == 3, "not all came")
        hurry(served, 300)
        for client in clients:
            client.write(head(TEXT, "Content-Length: 5"))
            refused(client.reply(), 503, "queue_full")
    assert stage.value("connections") == 0
    for client in clients:
        client.socket.close()
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("pipelined", [1, 200])
def test_client_gone_behind_its_head(
    serve: Serve, caplog: pytest.LogCaptureFixture, pipelined: int
) -> None:
    """A client that leaves without waiting for a refusal is no error and leaves nothing."""
    stage, served = serve()
    say(stage)
    for _ in range(20):
        with wire(served.address) as client:
            client.write(request(b"hello") * (pipelined - 1) + head(TEXT, "Content-Length: 5"))
    gone(stage, served)
    assert 20 <= stage.outcomes()["queue_full"] <= 20 * pipelined
    assert stage.samples == stage.outcomes()["queue_full"]
    assert served.inside == []
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert stage.lines("internal.error") == []


def gone(stage: Stage, served: Served) -> None:
    """Everybody leaves."""
    eventually(lambda: stage.outcomes().get("queue_full", 0) >= 20, "not all were answered")
    eventually(lambda: stage.value("connections") == 0, "a closed connection counts on")
    assert served.connections() == []
