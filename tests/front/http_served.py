"""What tests do with a served stage: hold a request, read what was counted, know a refusal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from service.core.errors import problem
from tests.front.http_stage import Served, Stage, eventually
from tests.front.http_wire import Reply, Wire, head, request, wire

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


def hurry(served: Served, receive_timeout_ms: int) -> None:
    """From now on heads, and what follows an answer, have so little time.

    Not from the start on: what a client sends at once may be late by that on a busy machine.
    """
    for connection in served.connections():
        limits = replace(connection.limits, receive_timeout_s=receive_timeout_ms / 1000)
        type(connection).limits = limits


@contextmanager
def hurried(served: Served, receive_timeout_ms: int) -> Iterator[Wire]:
    """A client that has been served once, and now has to hurry."""
    with wire(served.address) as client:
        client.write(head(method="GET", path="/livez"))
        assert client.reply().status == 200
        hurry(served, receive_timeout_ms)
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
