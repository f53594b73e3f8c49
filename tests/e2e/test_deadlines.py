"""Deadlines: the client is told at its deadline, wherever the request is by then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import PATIENT
from tests.e2e.faulty import faulty
from tests.e2e.held import HELD_TEXT, busy, hold
from tests.e2e.load import Answer, Call
from tests.e2e.server import GOOD_TEXT, LONG_S, Server

pytestmark = pytest.mark.e2e

SYNTHETIC = ("--model", "synthetic:cpu")
DEADLINE_MS = 3000
"""Whoever comes so much later behind a batch that does not end is refused, and no more late."""

NAMED = {"X-Request-Timeout-Ms": str(DEADLINE_MS)}
PROXY = {"x-envoy-expected-rq-timeout-ms": "31000"}
"""As Envoy sends it with every request: it does not take the place of the default."""

LATE_S = 15.0
"""How late a busy machine may tell it. The model is not done at all before that."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server's batches are held."""
    return tmp_path_factory.mktemp("held")


@pytest.fixture(scope="module")
def slow(folder: Path) -> Iterator[Server]:
    """A server whose default deadline is a few seconds."""
    deadline = ("--deadline-ms", str(DEADLINE_MS), "--max-wait-ms", str(DEADLINE_MS))
    flags = ("--rehearsal", "--max-deadline-ms", "60000", "--watchdog-ms", "60000")
    with Server(command=faulty(folder, *SYNTHETIC, *flags, *deadline)) as server:
        yield server


def check_late(answer: Answer, deadline_ms: int = DEADLINE_MS) -> None:
    """A 504 that names the deadline in force, and does not come before it."""
    assert answer.status == 504
    assert answer.code == "deadline_exceeded"
    assert f" {deadline_ms} ms" in answer.json["detail"]
    assert answer.json["retryable"] is True
    assert 0.95 * deadline_ms / 1000 < answer.seconds < deadline_ms / 1000 + LATE_S


def late(server: Server) -> dict[str, float]:
    """The counter of lateness by stage."""
    stages = ("receive", "prepare", "queued", "running", "respond")
    name = "seawall_deadline_exceeded_total"
    return {stage: server.metric(name, stage=stage) for stage in stages}


@pytest.mark.parametrize("headers", [NAMED, {}, PROXY], ids=["named", "default", "proxy's longer"])
def test_late_in_the_model_and_late_in_the_queue_end_alike(
    slow: Server, folder: Path, headers: dict[str, str]
) -> None:
    """Before a batch that does not end: 504 at the deadline, running or waiting."""
    before, outcomes = late(slow), slow.outcomes()
    with busy(slow, folder, Call(HELD_TEXT, headers)) as running:
        [waiting] = slow.send(Call("one two", headers)).result()
        check_late(waiting)
        check_late(running.result()[0])
        # the worker is busy still, and says so, although both clients have left
        assert slow.metric("seawall_requests_in_flight", stage="running") == 1
        after = late(slow)
        assert after == before | {
            "queued": before["queued"] + 1,
            "running": before["running"] + 1,
        }
        expected = outcomes.get("deadline_exceeded", 0) + 2
        assert slow.outcomes()["deadline_exceeded"] == expected
        assert set(slow.outcomes()) <= {"ok", "deadline_exceeded"}
    slow.healthy()
    assert slow.breaker == "closed"
    wasted = slow.metric("seawall_inference_seconds_total", use="wasted")
    assert wasted >= 0.95 * DEADLINE_MS / 1000


def test_a_named_deadline_may_be_longer_than_the_default(slow: Server) -> None:
    """A client may ask for more than the default: work that takes longer than that is answered."""
    length_ms = DEADLINE_MS + 300
    headers = {"X-Rehearse-Fault": f"slow={length_ms}", "X-Request-Timeout-Ms": "60000"}
    [answer] = slow.send(Call(GOOD_TEXT, headers)).result()
    assert answer.status == 200
    assert answer.seconds > 0.95 * length_ms / 1000


def test_the_smaller_of_two_deadlines_wins(slow: Server, folder: Path) -> None:
    """Of the client's and the proxy's deadline the smaller one holds."""
    both = {"X-Request-Timeout-Ms": "500", "x-envoy-expected-rq-timeout-ms": "20000"}
    swapped = {"X-Request-Timeout-Ms": "20000", "x-envoy-expected-rq-timeout-ms": "500"}
    for headers in (both, swapped):
        with hold(folder):
            [answer] = slow.send(Call(HELD_TEXT, headers)).result()
            check_late(answer, 500)
        slow.wait_idle()


@pytest.mark.parametrize(
    "value", ["nan", "inf", "-1", "0", "1e999", "5s", "", "0.000001", "+5", "5, 6", "٣", "0x10"]
)
def test_an_odd_deadline_is_refused_by_name(slow: Server, value: str) -> None:
    """What is no positive integer of milliseconds is a 400 that names the header."""
    for name in ("X-Request-Timeout-Ms", "x-envoy-expected-rq-timeout-ms"):
        [answer] = slow.send(Call(GOOD_TEXT, {name: value.encode().decode("latin-1")})).result()
        assert answer.status == 400
        assert answer.code == "malformed_request"
        assert name in answer.json["detail"]


def test_a_repeated_deadline_is_refused(slow: Server) -> None:
    """Two values of one header are no value."""
    body = GOOD_TEXT.encode()
    head: list[tuple[str, str]] = [("X-Request-Timeout-Ms", "500"), ("X-Request-Timeout-Ms", "900")]
    answer = slow.client.post("/", content=body, headers=head)
    assert answer.status_code == 400
    assert "X-Request-Timeout-Ms" in answer.json()["detail"]


def test_a_huge_deadline_is_clamped(tmp_path: Path) -> None:
    """A client may ask for any time and gets at most ``max_deadline_ms``; it is never unlimited."""
    flags = ("--watchdog-ms", "60000", "--deadline-ms", "500", "--max-deadline-ms", "500")
    with Server(command=faulty(tmp_path, *SYNTHETIC, *flags)) as server:
        for value in ("999999", "9" * 400):
            with hold(tmp_path):
                [answer] = server.send(Call(HELD_TEXT, {"X-Request-Timeout-Ms": value})).result()
                check_late(answer, 500)
            server.wait_idle()


def test_a_list_fails_as_one_and_leaves_nothing_behind(slow: Server, folder: Path) -> None:
    """A list past its deadline is one 504; its waiting items leave the queue at once."""
    with busy(slow, folder, Call(HELD_TEXT, {"X-Request-Timeout-Ms": "60000"})) as holder:
        body: dict[str, Any] = {"inputs": ["a b", "c d", "e f"]}
        [answer] = slow.send(Call(body, NAMED)).result()
        check_late(answer)
        assert not holder.done()
        assert slow.metric("seawall_queue_depth") == 0
    assert holder.result(LONG_S)[0].status == 200
    slow.healthy()


def test_a_deadline_that_not_even_an_idle_server_could_make_is_told_so(tmp_path: Path) -> None:
    """Once measured, too short a deadline is 504 ``deadline_too_short`` with one that would do."""
    with Server(command=faulty(tmp_path, *PATIENT, *SYNTHETIC)) as server:
        for _ in range(10):
            assert server.predict("word " * 400).status_code == 200
        long = {"inputs": ["word " * 400] * 16}  # three seconds of work
        with busy(server, tmp_path) as holder:
            [answer] = server.send(Call(long, {"X-Request-Timeout-Ms": "1500"})).result()
        assert holder.result()[0].status == 200
    assert answer.status == 504
    assert answer.code == "deadline_too_short"
    assert answer.json["min_timeout_ms"] > 1500
    assert answer.json["retryable"] is False
