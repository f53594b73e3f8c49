"""What tests do with a served stage: hold a request, read what was counted, know a refusal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from service.core.errors import problem
from tests.front.http_stage import Served, Stage, eventually
from tests.front.http_wire import Reply, Wire, request, wire

Serve = Callable[..., tuple[Stage, Served]]
"""Starts a server with these settings."""

FULL = problem("queue_full", retry_after_s=2.5)


@contextmanager
def held(stage: Stage, served: Served, body: bytes = b"held") -> Iterator[Wire]:
    """A client whose request is inside and waits."""
    before = len(stage.dispatcher.tickets)
    stage.dispatcher.mode = "hold"
    with wire(served.address) as client:
        client.write(request(body))
        eventually(lambda: len(stage.dispatcher.tickets) > before, "it was not admitted")
        yield client


def dropped(stage: Stage) -> dict[str, float]:
    """Connections dropped, by reason."""
    reasons = ("header_timeout", "bad_http", "too_many", "header_too_large")
    found = {reason: stage.value("connections_dropped_total", reason=reason) for reason in reasons}
    return {reason: count for reason, count in found.items() if count}


def ended(stage: Stage, outcomes: dict[str, int]) -> None:
    """These requests end, and so: the client may have its answer before they are counted."""
    eventually(lambda: stage.outcomes() == outcomes, "not counted so")


def flood(client: Wire, piece: bytes) -> None:
    """Far more than is ever taken."""
    for _ in range(100_000):
        client.write(piece)


def refused(reply: Reply, status: int, code: str) -> None:
    """The answer is this problem, and says so in every place."""
    shown = json.loads(reply.body)
    assert (reply.status, shown["status"], shown["code"]) == (status, status, code)
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["x-request-id"] == shown["request_id"]
