"""More work than can be done: what is refused, how fast, and what the refused are told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from service.core.errors import ERRORS, OutcomeClass
from tests.e2e.conftest import PATIENT
from tests.e2e.load import Answer, Call
from tests.e2e.server import GOOD_TEXT, Server, scripted, wait_for
from tests.e2e.watch import Watch

pytestmark = pytest.mark.e2e

ONE_SECOND = {"X-Rehearse-Fault": "slow=1000"}


@pytest.fixture(scope="module")
def narrow() -> Iterator[Server]:
    """Queue limit 10, one item at a time."""
    flags = ("--model", "synthetic:cpu", "--rehearsal", "--queue-limit", "10", "--batch-ms", "1")
    with Server(*PATIENT, *flags) as server:
        yield server


def check_503(answer: Answer) -> None:
    """Every 503 says when to come again, and a proxy is told not to retry what was shed."""
    assert answer.status == 503, answer
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == 503
    assert answer.json["retryable"] is True
    assert answer.json["retry_after_ms"] >= 1
    shed = ERRORS[answer.code].outcome_class is OutcomeClass.SHED
    assert answer.headers.get("x-envoy-ratelimited") == ("true" if shed else None)


def test_burst_beyond_the_queue_is_refused_at_once(narrow: Server) -> None:
    """Of 100 requests at once, queue limit 10 and 1 s each, at least 85 are refused at once."""
    with Watch(narrow) as watch:
        answers = narrow.send(*[Call("one two three", ONE_SECOND)] * 100).result()
    served = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status != 200]
    assert len(served) + len(refused) == 100
    assert len(served) <= 15
    assert len(served) >= 10
    for answer in refused:
        check_503(answer)
        assert answer.code == "queue_full"
    # at once: whoever is refused knows it long before the first has been served
    assert max(answer.at for answer in refused) < min(answer.at for answer in served)
    assert max(answer.seconds for answer in refused) < 1.0
    assert {answer.json["tokens"] for answer in served} == {3}
    assert {answer.json["batch"] for answer in served} == {1}
    assert set(watch.lives) == {200}
    assert 9 <= max(watch.depths) <= 10  # the first one may leave it before the tenth has come
    assert min(watch.depths) >= 0
    outcomes = narrow.outcomes()
    assert outcomes["ok"] == len(served)
    assert outcomes["queue_full"] == len(refused)
    narrow.healthy()


def test_the_log_of_a_burst_is_short_and_complete(narrow: Server) -> None:
    """At most ten refusals a second get a line of their own; the rest is told as one count."""
    narrow.send(*[Call("one two three", {"X-Rehearse-Fault": "slow=100"})] * 60).result()
    refused = narrow.outcomes()["queue_full"]

    def told() -> bool:
        lines = len(list(narrow.events("request.done", outcome="queue_full")))
        counts = [line["codes"]["queue_full"] for line in narrow.events("admission.shed")]
        return bool(lines + sum(counts) == refused)

    wait_for(told, f"{refused} refusals in the log")
    assert len(list(narrow.events("request.done", outcome="queue_full"))) < refused / 2
    narrow.healthy()


def test_lists_are_batched_item_by_item(narrow: Server) -> None:
    """A bound on the batch holds for items, not for requests: no list is run beyond it."""
    before = narrow.metric("seawall_batch_items_bucket", le="1.0")
    calls = [Call({"inputs": [f"word {n}", "a b c", "a b"]}) for n in range(3)]
    answers = narrow.send(*calls).result()
    for answer in answers:
        assert answer.status == 200
        assert [one["tokens"] for one in answer.json] == [2, 3, 2]
        assert [one["batch"] for one in answer.json] == [1, 1, 1]
    assert narrow.metric("seawall_batch_items_bucket", le="1.0") - before == 9
    assert narrow.metric("seawall_batch_items_count") == narrow.metric(
        "seawall_batch_items_bucket", le="1.0"
    )


def test_a_list_is_admitted_whole_or_not_at_all(narrow: Server) -> None:
    """Where only some of a list's items have room none is taken, and the room stays free."""
    holder = narrow.send(Call(GOOD_TEXT, ONE_SECOND))
    narrow.wait_running()
    eight = narrow.send(Call({"inputs": ["a b"] * 8}))
    narrow.wait_depth(8)
    refused, fitting = narrow.send(
        Call({"inputs": ["a b"] * 3}), Call({"inputs": ["a b"] * 2})
    ).result()
    check_503(refused)
    assert refused.code == "queue_full"
    assert [answer.status for answer in (fitting, *eight.result(), *holder.result())] == [200] * 3
    too_long = narrow.predict_json({"inputs": ["a b"] * 11})
    assert too_long.status_code == 413  # it would never fit
    assert too_long.json()["limit"] == 10


def test_nothing_of_the_client_or_of_load_counts_against_the_breaker() -> None:
    """Bad input, lateness and shedding, fifty each, leave the breaker closed and unmoved."""
    unknown = {"inputs": GOOD_TEXT, "parameters": {"num_workers": 6}}
    bad = [Call(" "), Call(unknown), Call("word " * 600)]
    flags = ("--model", "synthetic:cpu", "--rehearsal", "--queue-limit", "25")
    with Server(*PATIENT, *flags) as server:
        for call in bad * 5:
            answers = server.send(*[call] * 10).result()
            assert {answer.code for answer in answers} == {"invalid_input"}
        for _ in range(2):
            holder = server.send(Call(GOOD_TEXT, {"X-Rehearse-Fault": "slow=2000"}))
            server.wait_running()
            server.send(*[Call("a b", {"X-Request-Timeout-Ms": "1000"})] * 60).result()
            assert holder.result()[0].status == 200
            for _ in range(5):  # the estimator sees that the model is not always so slow
                assert server.predict(GOOD_TEXT).status_code == 200
        outcomes = server.outcomes()
        assert outcomes["invalid_input"] == 150
        assert outcomes["deadline_exceeded"] >= 50
        assert outcomes["queue_full"] >= 50
        server.healthy()
        assert server.breaker == "closed"
        for state in ("open", "half_open", "closed"):
            assert server.metric("seawall_breaker_transitions_total", to=state) == 0


def test_predicted_wait_refuses_before_the_queue_is_full() -> None:
    """With room in the queue but no time, the answer is 503 ``overloaded``; probes stay ready."""
    flags = ("--model", "synthetic:cpu", "--rehearsal", "--batch-ms", "1", "--deadline-ms", "60000")
    with Server(*flags, "--max-wait-ms", "200") as server:
        holder = server.send(Call(GOOD_TEXT, {"X-Rehearse-Fault": "slow=2000"}))
        server.wait_running()
        wait_for(
            lambda: server.status()["queue"]["predicted_wait_s"] > 0.2, "the batch to be overdue"
        )
        [answer] = server.send(Call("one more")).result()
        assert server.get("/readyz").status_code == 200
        check_503(answer)
        assert answer.code == "overloaded"
        assert holder.result()[0].status == 200
        server.healthy()


def _while_loading() -> Answer:
    with Server(command=scripted({"load": "never"}), ready=False) as server:
        return server.send(Call(GOOD_TEXT)).result()[0]


def _while_open() -> Answer:
    script = {"runs": {"*": "error"}, "probes": {"*": "bad"}}
    flags = ("--breaker-failures", "1", "--breaker-probe-ms", "60000")
    with Server(command=scripted(script, *flags)) as server:
        server.send(Call(GOOD_TEXT)).result()
        assert server.breaker == "open"
        assert server.get("/readyz").status_code == 503
        assert server.get("/livez").status_code == 200
        return server.send(Call(GOOD_TEXT)).result()[0]


def _while_draining() -> Answer:
    with Server(command=scripted({"runs": {"*": "slow=1.5"}}, *PATIENT)) as server:
        holder = server.send(Call(GOOD_TEXT))
        server.wait_running()
        server.terminate()
        server.wait_event("server.draining")
        [answer] = server.send(Call(GOOD_TEXT)).result()
        assert holder.result()[0].status == 200
        return answer


@pytest.mark.parametrize(
    "moment, code",
    [
        (_while_loading, "model_loading"),
        (_while_open, "circuit_open"),
        (_while_draining, "draining"),
    ],
)
def test_each_503_says_why_and_when_to_come_again(moment: Any, code: str) -> None:
    """Loading, open and draining are told apart by their codes, each with ``Retry-After``."""
    answer: Answer = moment()
    check_503(answer)
    assert answer.code == code


def _bad_body(server: Server) -> None:
    assert server.send(Call({"inputs": 5})).result()[0].status == 422


def _leaver(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(Call("a b").wire("localhost"))
        server.wait_running()
    server.wait_idle()
    assert server.outcomes()["client_gone"] == 1


def _late(server: Server) -> None:
    [answer] = server.send(Call("a b", {"X-Request-Timeout-Ms": "100"})).result()
    assert answer.code == "deadline_exceeded"


def _shed(server: Server) -> None:
    answers = server.send(*[Call("a b", {"X-Request-Timeout-Ms": "100"})] * 5).result()
    assert "queue_full" in {answer.code for answer in answers}


@pytest.mark.parametrize("trial", [_bad_body, _leaver, _late, _shed])
def test_no_end_of_a_trial_wedges_the_half_open_breaker(trial: Any) -> None:
    """Whatever becomes of the trial request, a valid one is served and the breaker closes."""
    script = {"runs": {"1": "error", "2": "slow=0.5"}, "probes": {"1": "bad", "*": "good"}}
    flags = ("--breaker-failures", "1", "--breaker-probe-ms", "500", "--queue-limit", "2")
    with Server(command=scripted(script, *PATIENT, *flags)) as server:
        [answer] = server.send(Call(GOOD_TEXT)).result()
        assert answer.code == "circuit_open"
        server.wait_event("breaker.half_open")
        assert server.get("/readyz").status_code == 200
        trial(server)
        server.wait_idle()
        assert server.predict(GOOD_TEXT).status_code == 200
        server.healthy()
        server.wait_event("breaker.closed")
