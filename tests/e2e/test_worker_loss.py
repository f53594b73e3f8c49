"""Workers that die, hang, lose their device, run out of memory or answer nonsense."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import PATIENT
from tests.e2e.faulty import faulty
from tests.e2e.held import busy, in_one_batch
from tests.e2e.load import Answer, Call
from tests.e2e.server import GOOD_TEXT, Server, alive, scripted, wait_for

pytestmark = pytest.mark.e2e

RESTARTS = "seawall_worker_restarts_total"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the batches of ``rehearsing`` are held."""
    return tmp_path_factory.mktemp("held")


@pytest.fixture(scope="module")
def rehearsing(folder: Path) -> Iterator[Server]:
    """A synthetic model behind a patient server that may be restarted as often as it takes."""
    flags = ("--model", "synthetic:cpu", "--rehearsal", "--batch-ms", "3000")
    limits = ("--watchdog-ms", "6000", "--restart-limit", "100", "--breaker-probe-ms", "200")
    with Server(command=faulty(folder, *PATIENT, *flags, *limits)) as server:
        yield server


def fault(name: str, text: str = "one two") -> Call:
    """A request that brings its own fault."""
    return Call(text, {"X-Rehearse-Fault": name})


def check_lost(answer: Answer) -> None:
    """503 ``worker_lost``, worth a retry."""
    assert answer.status == 503
    assert answer.code == "worker_lost"
    assert int(answer.headers["retry-after"]) >= 1


def recovers(server: Server) -> None:
    """The same front, another worker, and the next request is answered."""
    assert not server.dead
    server.healthy()
    assert server.process.pid == server.pid
    wait_for(lambda: server.predict(GOOD_TEXT).status_code == 200 and server.breaker == "closed",
             "the breaker to close")  # fmt: skip


def test_a_killed_worker_costs_only_what_it_ran(rehearsing: Server) -> None:
    """``kill -9`` of the worker with 20 requests inside: those that ran get 503, the rest 200."""
    lost_before = rehearsing.metric(RESTARTS, reason="crashed")
    worker = rehearsing.worker_pid
    running = rehearsing.send(fault("slow=60000"))
    rehearsing.wait_running()
    waiting = rehearsing.send(*[Call(f"word {n}") for n in range(19)])
    rehearsing.wait_depth(19)
    os.kill(worker, signal.SIGKILL)
    check_lost(running.result()[0])
    assert rehearsing.get("/livez").status_code == 200
    answers = waiting.result()
    assert Counter(answer.code for answer in answers) == {"ok": 19}
    assert [answer.json["tokens"] for answer in answers] == [2] * 19
    assert rehearsing.worker_pid != worker
    assert not alive(worker)
    recovers(rehearsing)
    assert rehearsing.metric(RESTARTS, reason="crashed") == lost_before + 1


def test_not_ready_while_no_worker_is(tmp_path: Path) -> None:
    """With its only worker gone the server is not ready at once, alive, and says so itself."""
    lives = [{"runs": {"*": "slow=60"}}, {"load": "never"}]
    script = {"lives": lives, "count": str(tmp_path / "lives")}
    with Server(command=scripted(script, *PATIENT)) as server:
        running = server.send(Call(GOOD_TEXT))
        server.wait_running()
        os.kill(server.worker_pid, signal.SIGKILL)
        check_lost(running.result()[0])
        assert server.get("/readyz").status_code == 503
        assert server.get("/livez").status_code == 200
        assert server.get("/startupz").status_code == 200
        assert server.metric("seawall_ready") == 0
        assert server.predict(GOOD_TEXT).json()["code"] == "model_loading"


def test_who_cannot_wait_for_the_reload_is_told_at_once(tmp_path: Path) -> None:
    """What waits keeps its place if its deadline allows the reload, else 503 ``model_loading``."""
    life = {"ready_after_s": 4, "runs": {"1": "slow=60"}}
    script = {"lives": [life, {"ready_after_s": 1}], "count": str(tmp_path / "lives")}
    with Server(command=scripted(script, *PATIENT)) as server:
        running = server.send(Call(GOOD_TEXT))
        server.wait_running()
        short = {"X-Request-Timeout-Ms": "3900"}
        hasty = server.send(*[Call(f"short {n}", short) for n in range(5)])
        patient = server.send(*[Call(f"long {n}") for n in range(5)])
        server.wait_depth(10)
        os.kill(server.worker_pid, signal.SIGKILL)
        check_lost(running.result()[0])
        assert {answer.code for answer in hasty.result()} == {"model_loading"}
        assert {int(answer.headers["retry-after"]) >= 1 for answer in hasty.result()} == {True}
        texts = [answer.json["text"] for answer in patient.result()]
        assert texts == [f"long {n}" for n in range(5)]
        assert {answer.json["life"] for answer in patient.result()} == {2}
        server.healthy()


@pytest.mark.parametrize(
    "name, reason",
    [
        ("exit", "crashed"),
        ("segfault", "crashed"),
        ("hang", "hung"),
        ("device-lost", "device_lost"),
    ],
)
def test_a_deadly_batch_ends_in_503_and_the_rest_waits(
    rehearsing: Server, folder: Path, name: str, reason: str
) -> None:
    """Death, hang and a lost device: the batch gets 503 ``worker_lost``, the rest is served."""
    reasons = ("crashed", "hung", "device_lost")
    before = {one: rehearsing.metric(RESTARTS, reason=one) for one in reasons}
    with busy(rehearsing, folder) as holder:
        batch = rehearsing.send(fault(name, f"culprit {name}"), Call(f"neighbour {name}"))
        rehearsing.wait_depth(2)
        others = rehearsing.send(*[Call("word " * 300)] * 3)  # too long to join them
        rehearsing.wait_depth(5)
    assert holder.result()[0].status == 200
    for answer in batch.result():
        check_lost(answer)
    assert [answer.status for answer in others.result()] == [200] * 3
    recovers(rehearsing)
    after = {one: rehearsing.metric(RESTARTS, reason=one) for one in reasons}
    assert after == before | {reason: before[reason] + 1}
    # both are suspects now and run alone: the innocent one is answered
    [answer] = rehearsing.send(Call(f"neighbour {name}")).result()
    assert answer.json == {"tokens": 2, "batch": 1}


def test_an_input_that_kills_alone_twice_is_refused(rehearsing: Server) -> None:
    """The very input that has killed a worker twice, alone, is 422 ``poisoned_input``."""
    for _ in range(2):
        check_lost(rehearsing.send(fault("exit", "a deadly text")).result()[0])
        recovers(rehearsing)
    [answer] = rehearsing.send(Call("a deadly text")).result()
    assert (answer.status, answer.code) == (422, "poisoned_input")
    [answer] = rehearsing.send(Call("a harmless text")).result()
    assert answer.status == 200


def test_a_stray_kill_makes_nobody_suspect(rehearsing: Server) -> None:
    """A worker killed from outside twice proves nothing about what it ran."""
    for _ in range(2):
        running = rehearsing.send(fault("slow=60000", "an innocent text"))
        rehearsing.wait_running()
        os.kill(rehearsing.worker_pid, signal.SIGKILL)
        check_lost(running.result()[0])
        recovers(rehearsing)
    [answer] = rehearsing.send(Call("an innocent text")).result()
    assert answer.status == 200


# ---------------------------------------------------------------- faults of one item


@pytest.mark.parametrize(
    "name, status, code",
    [
        ("raise", 500, "model_error"),
        ("nan", 500, "model_error"),
        ("oom-always", 503, "out_of_memory"),
        ("oom", 200, "ok"),
    ],
)
def test_one_items_fault_is_not_its_neighbours(
    rehearsing: Server, folder: Path, name: str, status: int, code: str
) -> None:
    """In a batch of eight the culprit gets its own end and the other seven their answers."""
    worker = rehearsing.worker_pid
    for place in (0, 5):
        calls = [Call(f"neighbour {n}") for n in range(7)]
        calls.insert(place, fault(name, f"culprit {place}"))
        answers = in_one_batch(rehearsing, folder, *calls)
        culprit = answers.pop(place)
        assert (culprit.status, culprit.code) == (status, code), culprit
        assert [answer.status for answer in answers] == [200] * 7
        assert [answer.json["tokens"] for answer in answers] == [2] * 7
    assert rehearsing.breaker == "closed"
    assert rehearsing.metric("seawall_breaker_state", state="closed") == 1
    recovers(rehearsing)
    assert rehearsing.worker_pid == worker
    transitions = "seawall_breaker_transitions_total"
    opened = rehearsing.metric(transitions, to="open")
    for _ in range(8):  # more in a row than open the breaker, if they counted
        rehearsing.send(fault(name)).result()
    assert rehearsing.metric(transitions, to="open") == opened
    recovers(rehearsing)


def test_halving_ends_and_what_fitted_before_fits_again(tmp_path: Path) -> None:
    """Memory that never suffices: each of eight ends in 503, in few runs; then all is as before."""
    flags = (*PATIENT, "--model", "synthetic:cpu", "--rehearsal")
    with Server(command=faulty(tmp_path, *flags)) as server:
        answers = in_one_batch(server, tmp_path, *[fault("oom-always")] * 8)
        assert {answer.code for answer in answers} == {"out_of_memory"}
        for answer in answers:
            assert int(answer.headers["retry-after"]) >= 1
        split = server.metric("seawall_oom_total", recovery="split")
        failed = server.metric("seawall_oom_total", recovery="failed")
        assert failed == 8
        assert split + failed <= 15
        server.healthy()
        answers = in_one_batch(server, tmp_path, *[Call("one two")] * 8)
        assert {answer.status for answer in answers} == {200}
        assert server.breaker == "closed"
        assert server.metric("seawall_breaker_transitions_total", to="open") == 0


def test_one_failure_does_not_end_the_batch_loop(rehearsing: Server) -> None:
    """After each kind of failure a hundred plain requests are answered."""
    for name, status in (("raise", 500), ("oom-always", 503), ("exit", 503)):
        assert rehearsing.send(fault(name, f"once {name}")).result()[0].status == status
        rehearsing.wait_ready()
        answers = rehearsing.send(*[Call("one two three")] * 100).result()
        assert Counter(answer.status for answer in answers) == {200: 100}
        assert rehearsing.get("/livez").status_code == 200


def test_faults_are_ignored_without_rehearsal() -> None:
    """Without the setting the header does nothing, whatever it says."""
    with Server(*PATIENT, "--model", "synthetic:cpu") as server:
        for name in ("exit", "raise", "nonsense"):
            assert server.send(fault(name)).result()[0].status == 200


def test_an_unknown_fault_is_refused(rehearsing: Server) -> None:
    """In rehearsal a fault that does not exist is a 400 that names those that do."""
    [answer] = rehearsing.send(fault("explode")).result()
    assert (answer.status, answer.code) == (400, "malformed_request")
    assert "device-lost" in answer.json["detail"]


# ---------------------------------------------------------------- workers that answer nonsense


def test_a_worker_that_answers_nonsense_is_replaced(tmp_path: Path) -> None:
    """Another number of answers than of inputs, or no frame: nobody gets another's answer."""
    kinds = ("few", "many", "garbage", "torn")
    held = f"held={tmp_path / 'held'}"
    lives: list[dict[str, Any]] = [{"runs": {"1": held, "2": kind}} for kind in kinds]
    script = {"lives": [*lives, {}], "count": str(tmp_path / "lives")}
    with Server(command=scripted(script, *PATIENT, "--breaker-failures", "100")) as server:
        for kind in kinds:
            with busy(server, tmp_path) as holder:
                batch = server.send(*[Call(f"{kind} {n}") for n in range(4)])
                server.wait_depth(4)
            assert holder.result()[0].status == 200
            for answer in batch.result():
                check_lost(answer)
            server.wait_ready()
        answers = server.send(*[Call(f"word {n}") for n in range(4)]).result()
        assert [answer.json["text"] for answer in answers] == [f"word {n}" for n in range(4)]
        assert {answer.json["life"] for answer in answers} == {len(kinds) + 1}
        assert server.metric(RESTARTS, reason="crashed") == len(kinds)


# ---------------------------------------------------------------- the end of everything


@pytest.mark.parametrize("name", ["slow=60000", "hang"])
def test_no_worker_outlives_the_front(name: str) -> None:
    """``kill -9`` of the front: its worker is gone too, even in a batch that hangs."""
    with Server(*PATIENT, "--model", "synthetic:cpu", "--rehearsal") as server:
        worker = server.worker_pid
        cut_off = server.send(fault(name))
        server.wait_running()
        os.kill(server.pid, signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL
        wait_for(lambda: not alive(worker), "the worker to vanish")
        assert cut_off.result()[0].status == 0


def test_a_crash_loop_ends_the_process_with_4() -> None:
    """Deaths with no good batch between them end the server with exit code 4; nobody hangs."""
    flags = ("--model", "synthetic:cpu", "--rehearsal", "--restart-limit", "2")
    with Server(*PATIENT, *flags) as server:
        check_lost(server.send(fault("exit", "first")).result()[0])
        server.wait_ready()
        running = server.send(fault("slow=60000"))
        server.wait_running()
        waiting = server.send(*[Call(f"word {n}") for n in range(5)])
        server.wait_depth(5)
        os.kill(server.worker_pid, signal.SIGKILL)
        check_lost(running.result()[0])
        for answer in waiting.result():
            assert answer.status == 503
            assert answer.code == "model_loading"
        assert server.wait() == 4
        assert server.event("worker.crash_loop") is not None
        assert server.event("server.stopped", exit_code=4) is not None
