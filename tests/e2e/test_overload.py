"""More work than can be done: what is refused, how fast, and what the refused are told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.core.errors import ERRORS, OutcomeClass
from tests.e2e.conftest import PATIENT
from tests.e2e.faulty import faulty
from tests.e2e.held import busy, hold
from tests.e2e.load import Answer, Call
from tests.e2e.server import GOOD_TEXT, Server, scripted, wait_for
from tests.e2e.watch import Watch

pytestmark = pytest.mark.e2e

SYNTHETIC = ("--model", "synthetic:cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the batches of ``narrow`` are held."""
    return tmp_path_factory.mktemp("held")


@pytest.fixture(scope="module")
def narrow(folder: Path) -> Iterator[Server]:
    """Queue limit 10, one item at a time."""
    flags = (*SYNTHETIC, "--queue-limit", "10", "--batch-ms", "1")
    with Server(command=faulty(folder, *PATIENT, *flags)) as server:
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


def test_burst_beyond_the_queue_is_refused_at_once(narrow: Server, folder: Path) -> None:
    """Of 100 requests while one runs and 10 may wait 89 are refused before any has been served."""
    before = narrow.outcomes()
    refused_before, ok_before = (before.get(code, 0) for code in ("queue_full", "ok"))

    def refused() -> int:
        return narrow.outcomes().get("queue_full", 0) - refused_before

    with Watch(narrow) as watch:
        with busy(narrow, folder) as running:
            sent = narrow.send(*[Call("one two three")] * 99)
            wait_for(lambda: refused() == 89, "all that have no place to be refused")
            wait_for(lambda: 10 in watch.depths, "the queue to be seen full")
            assert narrow.outcomes().get("ok", 0) == ok_before
        answers = [*running.result(), *sent.result()]
    served = [answer for answer in answers if answer.status == 200]
    for answer in answers:
        if answer.status != 200:
            check_503(answer)
            assert answer.code == "queue_full"
    assert (len(served), len(answers)) == (11, 100)
    assert {answer.json["tokens"] for answer in served} == {3}
    assert {answer.json["batch"] for answer in served} == {1}
    assert set(watch.lives) == {200}
    assert max(watch.depths) == 10
    assert min(watch.depths) >= 0
    assert narrow.outcomes()["ok"] == ok_before + 11
    assert refused() == 89
    narrow.healthy()


def test_the_log_of_a_burst_is_short_and_complete(narrow: Server, folder: Path) -> None:
    """At most ten refusals a second get a line of their own; the rest is told as one count."""
    with busy(narrow, folder):
        sent = narrow.send(*[Call("one two three")] * 200)
        wait_for(lambda: narrow.outcomes().get("queue_full", 0) >= 190, "the refusals")
    assert {answer.code for answer in sent.result()} == {"ok", "queue_full"}
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


def test_a_list_is_admitted_whole_or_not_at_all(narrow: Server, folder: Path) -> None:
    """Where only some of a list's items have room none is taken, and the room stays free."""
    with busy(narrow, folder) as holder:
        eight = narrow.send(Call({"inputs": ["a b"] * 8}))
        narrow.wait_depth(8)
        [refused] = narrow.send(Call({"inputs": ["a b"] * 3})).result()
        check_503(refused)
        assert refused.code == "queue_full"
        fitting = narrow.send(Call({"inputs": ["a b"] * 2}))
        narrow.wait_depth(10)
    sent = (*fitting.result(), *eight.result(), *holder.result())
    assert [answer.status for answer in sent] == [200] * 3
    too_long = narrow.predict_json({"inputs": ["a b"] * 11})
    assert too_long.status_code == 413  # it would never fit
    assert too_long.json()["limit"] == 10


def test_nothing_of_the_client_or_of_load_counts_against_the_breaker(tmp_path: Path) -> None:
    """Bad input, lateness and shedding, fifty each, leave the breaker closed and unmoved."""
    unknown = {"inputs": GOOD_TEXT, "parameters": {"num_workers": 6}}
    bad = [Call(" "), Call(unknown), Call("word " * 600)]
    with Server(command=faulty(tmp_path, *PATIENT, *SYNTHETIC, "--queue-limit", "25")) as server:
        for call in bad * 5:
            answers = server.send(*[call] * 10).result()
            assert {answer.code for answer in answers} == {"invalid_input"}

        def fifty_each() -> bool:
            """Whoever is slow to come behind a batch that does not end is overloaded: not here."""
            with busy(server, tmp_path) as holder:
                server.send(*[Call("a b", {"X-Request-Timeout-Ms": "1000"})] * 60).result()
            assert holder.result()[0].status == 200
            for _ in range(5):  # the estimator sees that the model is not always so slow
                assert server.predict(GOOD_TEXT).status_code == 200
            outcomes = server.outcomes()
            return all(outcomes.get(code, 0) >= 50 for code in ("deadline_exceeded", "queue_full"))

        wait_for(fifty_each, "fifty who are late and fifty who are refused")
        assert server.outcomes()["invalid_input"] == 150
        server.healthy()
        assert server.breaker == "closed"
        for state in ("open", "half_open", "closed"):
            assert server.metric("seawall_breaker_transitions_total", to=state) == 0


def test_predicted_wait_refuses_before_the_queue_is_full(tmp_path: Path) -> None:
    """With room in the queue but no time, the answer is 503 ``overloaded``; probes stay ready."""
    flags = (*PATIENT, *SYNTHETIC, "--batch-ms", "1", "--max-wait-ms", "200")
    with Server(command=faulty(tmp_path, *flags)) as server:
        with busy(server, tmp_path) as holder:
            wait_for(
                lambda: server.status()["queue"]["predicted_wait_s"] > 0.2,
                "the batch to be overdue",
            )
            [answer] = server.send(Call("one more")).result()
            assert server.get("/readyz").status_code == 200
            check_503(answer)
            assert answer.code == "overloaded"
        assert holder.result()[0].status == 200
        server.healthy()


def _while_loading(_: Path) -> Answer:
    with Server(command=scripted({"load": "never"}), ready=False) as server:
        return server.send(Call(GOOD_TEXT)).result()[0]


def _while_open(_: Path) -> Answer:
    script = {"runs": {"*": "error"}, "probes": {"*": "bad"}}
    flags = ("--breaker-failures", "1", "--breaker-probe-ms", "60000")
    with Server(command=scripted(script, *PATIENT, *flags)) as server:
        server.send(Call(GOOD_TEXT)).result()
        assert server.breaker == "open"
        assert server.get("/readyz").status_code == 503
        assert server.get("/livez").status_code == 200
        return server.send(Call(GOOD_TEXT)).result()[0]


def _while_draining(folder: Path) -> Answer:
    script = {"runs": {"1": f"held={folder / 'held'}"}}
    with Server(command=scripted(script, *PATIENT, "--drain-timeout-ms", "60000")) as server:
        with busy(server, folder) as holder:
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
def test_each_503_says_why_and_when_to_come_again(tmp_path: Path, moment: Any, code: str) -> None:
    """Loading, open and draining are told apart by their codes, each with ``Retry-After``."""
    answer: Answer = moment(tmp_path)
    check_503(answer)
    assert answer.code == code


def _bad_body(server: Server, _: Path) -> None:
    assert server.send(Call({"inputs": 5})).result()[0].status == 422


def _leaver(server: Server, folder: Path) -> None:
    with hold(folder):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(Call("a b").wire("localhost"))
            server.wait_running()
        wait_for(lambda: server.outcomes().get("client_gone") == 1, "it to be missed")


def _late(server: Server, folder: Path) -> None:
    with hold(folder):
        [answer] = server.send(Call("a b", {"X-Request-Timeout-Ms": "100"})).result()
    assert answer.code == "deadline_exceeded"


def _shed(server: Server, folder: Path) -> None:
    with busy(server, folder, Call("a b", {"X-Request-Timeout-Ms": "2000"})):
        answers = server.send(*[Call("a b", {"X-Request-Timeout-Ms": "2000"})] * 4).result()
    assert "queue_full" in {answer.code for answer in answers}


@pytest.mark.parametrize("trial", [_bad_body, _leaver, _late, _shed])
def test_no_end_of_a_trial_wedges_the_half_open_breaker(tmp_path: Path, trial: Any) -> None:
    """Whatever becomes of the trial request, a valid one is served and the breaker closes."""
    runs = {"1": "error", "2": f"held={tmp_path / 'held'}"}
    script = {"runs": runs, "probes": {"1": "bad", "*": "good"}}
    flags = ("--breaker-failures", "1", "--breaker-probe-ms", "500", "--queue-limit", "2")
    with Server(command=scripted(script, *PATIENT, *flags)) as server:
        [answer] = server.send(Call(GOOD_TEXT)).result()
        assert answer.code == "circuit_open"
        server.wait_event("breaker.half_open")
        assert server.get("/readyz").status_code == 200
        trial(server, tmp_path)
        server.wait_idle()
        assert server.predict(GOOD_TEXT).status_code == 200
        server.healthy()
        server.wait_event("breaker.closed")
