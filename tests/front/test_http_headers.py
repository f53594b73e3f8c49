"""What every answer says, and does not say, by default: software, caches, other sites."""

from __future__ import annotations

import pytest

from service.core.errors import problem
from tests.front.http_served import FULL, Serve
from tests.front.http_stage import Stage, ask
from tests.front.http_wire import head, request, wire

GOOD = request(b"hello")
ASKED = {
    "prediction": GOOD,
    "bad prediction": request(b"hello", "Content-Type: image/png"),
    "root": head(method="GET"),
    "page": head("Accept: text/html", method="GET"),
    "probe": head(method="GET", path="/readyz"),
    "metrics": head(method="GET", path="/metrics"),
    "status": head(method="GET", path="/status"),
    "error page": head(method="GET", path="/errors/queue_full"),
    "unknown": head(method="GET", path="/none"),
    "script": head(method="GET", path="/site/page.js"),
    "no HTTP": b"\x00\r\n\r\n",
    "too large a head": head("X-Pad: " + "x" * 70_000, method="GET"),
}
FOREIGN = ("Origin: https://elsewhere.example", "Access-Control-Request-Method: POST")


@pytest.mark.parametrize("what", ASKED)
def test_every_answer_is_discreet(serve: Serve, what: str) -> None:
    """No software is named, no other site is let in, and a cache is told what it may keep."""
    _, served = serve()
    with wire(served.address) as client:
        client.write(ASKED[what])
        headers = client.reply().headers
    assert headers["cache-control"] in {"no-store", "no-cache"}
    assert "server" not in headers
    assert "x-powered-by" not in headers
    assert not [name for name in headers if name.startswith("access-control-")]


def test_refusal_at_the_door_is_discreet(serve: Serve) -> None:
    """What the door refuses no cache keeps either."""
    stage, served = serve()
    stage.dispatcher.gate_says = FULL
    with wire(served.address) as client:
        assert client.post(b"hello").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/none"])
def test_no_other_site_is_let_in(path: str) -> None:
    """A browser's question on behalf of another site gets no leave, on any address."""
    asked = [tuple(line.split(": ", 1)) for line in FOREIGN]
    for method in ("OPTIONS", "GET"):
        answer = ask(Stage().app, method=method, path=path, headers=[(n, v) for n, v in asked])
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        if method == "OPTIONS":
            assert answer.status == (404 if path == "/none" else 405)


def test_a_refusal_has_one_cache_control() -> None:
    """Headers of a refusal stand once each, also those of a special kind."""
    stage = Stage()
    stage.dispatcher.gate_says = problem("model_loading", retry_after_s=1.0)
    answer = ask(stage.app, "x")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["retry-after"] == "1"
