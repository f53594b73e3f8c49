"""Deadlines: the client is told at its deadline, wherever the request is by then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import PATIENT
from tests.e2e.load import Answer, Call
from tests.e2e.server import GOOD_TEXT, LONG_S, Server

pytestmark = pytest.mark.e2e

TWO_SECONDS = {"X-Rehearse-Fault": "slow=2000"}
HALF = {"X-Request-Timeout-Ms": "500"}


@pytest.fixture(scope="module")
def slow() -> Iterator[Server]:
    """A server whose default deadline is half a second."""
    flags = ("--model", "synthetic:cpu", "--rehearsal", "--max-deadline-ms", "30000")
    with Server(*flags, "--deadline-ms", "500", "--max-wait-ms", "500") as server:
        yield server


def check_late(answer: Answer) -> None:
    """A 504 that names the deadline in force, long before the model is done."""
    assert answer.status == 504
    assert answer.code == "deadline_exceeded"
    assert "500 ms" in answer.json["detail"]
    assert answer.json["retryable"] is True
    assert 0.45 < answer.seconds < 1.9


def late(server: Server) -> dict[str, float]:
    """The counter of lateness by stage."""
    stages = ("receive", "prepare", "queued", "running", "respond")
    name = "seawall_deadline_exceeded_total"
    return {stage: server.metric(name, stage=stage) for stage in stages}


@pytest.mark.parametrize("headers", [HALF, {}], ids=["named", "default"])
def test_late_in_the_model_and_late_in_the_queue_end_alike(
    slow: Server, headers: dict[str, str]
) -> None:
    """A deadline of 0.5 s before an item of 2 s: 504 at the deadline, running or waiting."""
    before, outcomes = late(slow), slow.outcomes()
    running = slow.send(Call("one two", {**TWO_SECONDS, **headers}))
    slow.wait_running()
    [waiting] = slow.send(Call("one two", headers)).result()
    check_late(waiting)
    [running_answer] = running.result()
    check_late(running_answer)
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
    assert slow.metric("seawall_inference_seconds_total", use="wasted") >= 1.9


def test_a_named_deadline_may_be_longer_than_the_default(slow: Server) -> None:
    """A client may ask for more than the default: 1 s of work in 10 s is answered."""
    headers = {"X-Rehearse-Fault": "slow=1000", "X-Request-Timeout-Ms": "10000"}
    [answer] = slow.send(Call(GOOD_TEXT, headers)).result()
    assert answer.status == 200
    assert answer.seconds > 0.9


def test_the_smaller_of_two_deadlines_wins(slow: Server) -> None:
    """Of the client's and the proxy's deadline the smaller one holds."""
    both = {"X-Request-Timeout-Ms": "500", "x-envoy-expected-rq-timeout-ms": "20000"}
    swapped = {"X-Request-Timeout-Ms": "20000", "x-envoy-expected-rq-timeout-ms": "500"}
    for headers in (both, swapped):
        [answer] = slow.send(Call("one two", {**TWO_SECONDS, **headers})).result()
        check_late(answer)
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


@pytest.mark.parametrize("value", ["999999", "9" * 400])
def test_a_huge_deadline_is_clamped(value: str) -> None:
    """A client may ask for any time and gets at most ``max_deadline_ms``; it is never unlimited."""
    flags = ("--model", "synthetic:cpu", "--rehearsal", "--deadline-ms", "500")
    with Server(*flags, "--max-deadline-ms", "500") as server:
        headers = {**TWO_SECONDS, "X-Request-Timeout-Ms": value}
        [answer] = server.send(Call("one two", headers)).result()
        check_late(answer)


def test_a_list_fails_as_one_and_leaves_nothing_behind(slow: Server) -> None:
    """A list past its deadline is one 504; its waiting items leave the queue at once."""
    holder = slow.send(Call("one two", {**TWO_SECONDS, "X-Request-Timeout-Ms": "10000"}))
    slow.wait_running()
    body: dict[str, Any] = {"inputs": ["a b", "c d", "e f"]}
    [answer] = slow.send(Call(body, HALF)).result()
    check_late(answer)
    assert not holder.done()
    assert slow.metric("seawall_queue_depth") == 0
    assert holder.result(LONG_S)[0].status == 200
    slow.healthy()


def test_a_deadline_that_not_even_an_idle_server_could_make_is_told_so() -> None:
    """Once measured, too short a deadline is 504 ``deadline_too_short`` with one that would do."""
    with Server(*PATIENT, "--model", "synthetic:cpu", "--rehearsal") as server:
        for _ in range(10):
            assert server.predict("word " * 400).status_code == 200
        holder = server.send(Call(GOOD_TEXT, {"X-Rehearse-Fault": "slow=1000"}))
        server.wait_running()
        [answer] = server.send(Call("word " * 400, {"X-Request-Timeout-Ms": "20"})).result()
        assert holder.result()[0].status == 200
    assert answer.status == 504
    assert answer.code == "deadline_too_short"
    assert answer.json["min_timeout_ms"] > 20
    assert answer.json["retryable"] is False
