"""``seawall status``: what it asks, what it prints, and with which code it ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest

from service import cli

READY = {
    "state": "ready", "ready": True, "reason": "", "version": "9",
    "queue": {"depth": 3, "limit": 256, "fill_ratio": 0.123456},
    "breaker": {"state": "closed"}, "workers": [{"index": 0, "state": "ready"}],
}  # fmt: skip


class Stub:
    """A server with fixed answers by path."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        stub = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub.asked.append(self.path)
                code, value = stub.answers.get(self.path, (404, {"code": "not_found"}))
                body = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

            def address_string(self) -> str:
                return "stub"

        self.handler = Answering


@pytest.fixture
def stub() -> Iterator[tuple[Stub, str]]:
    """A stub and its URL."""
    made = Stub()
    with ThreadingHTTPServer(("127.0.0.1", 0), made.handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made, f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


def test_status_ready(stub: tuple[Stub, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A server that is ready is a few aligned lines, and code 0."""
    server_, url = stub
    server_.answers = {"/readyz": (200, {"ready": True}), "/status": (200, READY)}
    assert cli.main(["status", url]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "state      ready",
        "ready      yes",
        "reason     none",
        "queue      depth 3, limit 256, fill_ratio 0.1235",
        "breaker    state closed",
        "workers    index 0, state ready",
    ]


def test_status_not_ready(stub: tuple[Stub, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A server that is not ready says why, and the code is 1."""
    server_, url = stub
    reason = {"ready": False, "reason": "loading\x1b[31m"}
    server_.answers = {"/readyz": (503, reason), "/status": (200, {**READY, **reason})}
    assert cli.main(["status", url + "/"]) == 1
    out = capsys.readouterr().out
    assert "reason     'loading\\x1b[31m'" in out  # nothing that a terminal would obey
    assert server_.asked == ["/readyz", "/status"]


@pytest.mark.parametrize(
    "code, says",
    [
        (401, "/status needs an API key"),
        (404, "/status is not here: see metrics_bind"),
        (500, "/status answers 500"),
    ],
)
def test_status_without_details(
    code: int, says: str, stub: tuple[Stub, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Where ``/status`` is closed or elsewhere, readiness alone decides, and it says so."""
    server_, url = stub
    server_.answers = {
        "/readyz": (200, {"ready": True, "reason": ""}),
        "/status": (code, {"detail": "x"}),
    }
    assert cli.main(["status", url]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ready      yes", "reason     none", f"details    {says}",
    ]  # fmt: skip


def test_status_of_something_else(stub: tuple[Stub, str]) -> None:
    """A server that speaks no JSON is not ready, not a traceback."""
    server_, url = stub
    server_.answers = {"/readyz": (404, b"<html>"), "/status": (200, b"[1]")}
    assert cli.main(["status", url]) == 1


def test_status_on_a_metrics_address(stub: tuple[Stub, str]) -> None:
    """Where only ``/status`` is, it decides."""
    server_, url = stub
    server_.answers = {"/status": (200, READY)}
    assert cli.main(["status", url]) == 0
    server_.answers = {"/status": (200, {**READY, "ready": False})}
    assert cli.main(["status", url]) == 1


def test_status_over_a_unix_socket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``unix:PATH`` asks a server behind a Unix socket."""
    made = Stub()
    made.answers = {"/readyz": (200, {"ready": True}), "/status": (200, READY)}
    path = tmp_path / "s"
    with ThreadingUnixStreamServer(str(path), made.handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        assert cli.main(["status", f"unix:{path}"]) == 0
        listening.shutdown()
        thread.join()
    assert "state      ready" in capsys.readouterr().out


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "unix:no-such-socket", "http://a b:1"])
def test_status_of_nothing(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that cannot be reached is one line, and code 1."""
    assert cli.main(["status", url]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "seawall: nothing answers there; is the server running?\n"


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "http://", "http://h:x", "--foo"])
def test_status_of_no_url(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no URL is code 2 and says what one looks like."""
    assert cli.main(["status", url]) == 2
    assert "http://127.0.0.1:8000" in capsys.readouterr().err


def test_status_takes_one_url(capsys: pytest.CaptureFixture[str]) -> None:
    """Two URLs are one too many."""
    assert cli.main(["status", "a", "b"]) == 2
    assert "usage: seawall status [URL]" in capsys.readouterr().out
