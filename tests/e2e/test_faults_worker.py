"""A worker that ends, hangs or stalls: who is told what, and that the service goes on."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import PATIENT
from tests.e2e.faulty import faulty
from tests.e2e.held import HELD_TEXT, busy
from tests.e2e.load import Call
from tests.e2e.server import GOOD_TEXT, Server, alive, scripted, wait_for
from tests.e2e.watch import Watch

pytestmark = pytest.mark.e2e

RESTARTS = "seawall_worker_restarts_total"
SOON_S = 15.0
"""How late whoever is told at a moment may be told, on a machine that may be busy."""


def fault(name: str, text: str = GOOD_TEXT, **headers: str) -> Call:
    """A request that brings its own fault."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Call(text, {"X-Rehearse-Fault": name, **named})


# ---------------------------------------------------------------- the packaged model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the packaged model's batches are held."""
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def packaged(folder: Path) -> Iterator[Server]:
    """The packaged model, which takes seconds to load, behind a patient server."""
    flags = ("--rehearsal", "--restart-limit", "100", "--batch-ms", "1")
    with Server(command=faulty(folder, *PATIENT, *flags)) as server:
        yield server


@pytest.mark.parametrize(
    "how, reason",
    [("kill -9", "crashed"), ("device-lost", "device_lost")],
)
def test_who_ran_is_told_at_once_and_who_waits_is_served(
    packaged: Server, folder: Path, how: str, reason: str
) -> None:
    """The batch of a lost worker is told at once, whoever waits is served by the next one.

    A lost device is never tried again, and its worker is replaced without ten failed canaries.
    """
    server, worker = packaged, packaged.worker_pid
    before = server.metric(RESTARTS, reason=reason)
    canaries = len(list(server.events("canary.failed")))
    with busy(server, folder, Call(f"{HELD_TEXT} {how}")) as holder:
        running = holder
        if how == "device-lost":
            running = server.send(fault(how, f"runs [MASK] {how}"))
            server.wait_depth(1)  # it came before those who wait
        waiting = server.send(*[Call(f"waits [MASK] {n}") for n in range(10)])
        server.wait_depth(10 + (how == "device-lost"))
        at = time.monotonic()
        if how == "kill -9":
            os.kill(worker, signal.SIGKILL)
            running.result()  # before the word is given: it might be done yet
    [lost] = running.result()
    assert (lost.status, lost.code) == (503, "worker_lost")
    assert int(lost.headers["retry-after"]) >= 1
    assert Counter(answer.code for answer in waiting.result()) == {"ok": 10}
    # At once, and not when the next worker is there: that one loads for seconds.
    assert lost.at - at < (min(answer.at for answer in waiting.result()) - at) / 2
    server.wait_event("worker.lost", reason=reason)
    assert not alive(worker)
    assert server.metric(RESTARTS, reason=reason) == before + 1
    assert len(list(server.events("canary.failed"))) == canaries
    server.healthy()
    wait_for(lambda: server.breaker == "closed", "the breaker to close")


def test_no_worker_outlives_a_front_that_dies_while_it_loads() -> None:
    """``kill -9`` of the front in the middle of a load: the worker is gone too."""
    with Server(ready=False) as server:
        pid = int(server.wait_event("worker.started")["pid"])
        wait_for(lambda: psutil.Process(pid).cpu_times().user > 0.3, "the load to be under way")
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        wait_for(lambda: not alive(pid), "the worker to vanish")


# ---------------------------------------------------------------- hangs and stalls


def test_a_hang_with_a_queue_behind_it_ends(tmp_path: Path) -> None:
    """A hang is found by the watchdog: not ready, alive, each told; no worker is no good health."""
    lives = [{"runs": {"*": "hang"}}, {"load": "never"}]
    script = {"lives": lives, "count": str(tmp_path / "lives")}
    # Who comes more seconds behind the hang than its deadline has is refused: not too few of them.
    short_s, watchdog_s, long_s = 2.5, 5.0, 6.5
    flags = ("--watchdog-ms", str(round(1000 * watchdog_s)))
    with Server(command=scripted(script, *PATIENT, *flags)) as server:
        hung = server.send(Call("hangs"))
        server.wait_running()
        short, long = (
            server.send(*[Call("waits", {"X-Request-Timeout-Ms": str(round(1000 * limit_s))})] * 5)
            for limit_s in (short_s, long_s)
        )
        assert {answer.code for answer in short.result()} == {"deadline_exceeded"}
        assert hung.result()[0].code == "worker_lost"
        assert server.get("/readyz").status_code == 503
        assert server.get("/livez").status_code == 200
        assert server.metric("seawall_ready") == 0
        assert server.metric(RESTARTS, reason="hung") == 1
        assert server.send(Call("late")).result()[0].code == "model_loading"
        assert {answer.code for answer in long.result()} <= {"deadline_exceeded", "model_loading"}
        assert max(answer.seconds for answer in long.result()) < long_s + SOON_S


def test_a_stalled_worker_is_noticed_and_comes_back() -> None:
    """While the worker stands still who comes is refused at once, who waits is told in time.

    When it moves again it is the same worker, and all is as before.
    """
    flags = ("--model", "synthetic:cpu", "--deadline-ms", "2000", "--watchdog-ms", "60000")
    with Server(*flags) as server:
        worker = server.worker_pid
        for _ in range(12):
            answer = server.predict(GOOD_TEXT, X_Request_Timeout_Ms="60000")
            assert answer.status_code == 200
        os.kill(worker, signal.SIGSTOP)
        try:
            stays = server.send(Call("stays", {"X-Request-Timeout-Ms": "60000"}))
            stalled = server.send(*[Call(f"stalled {n}") for n in range(3)])
            wait_for(lambda: server.status()["queue"]["predicted_wait_s"] > 1.0, "it to be noticed")
            refused = server.send(*[Call(f"late {n}") for n in range(10)]).result()
            assert {answer.code for answer in refused} == {"overloaded"}  # nobody waits in vain
            assert server.get("/readyz").status_code == 200
            assert {answer.code for answer in stalled.result()} == {"deadline_exceeded"}
            assert max(answer.seconds for answer in stalled.result()) < 2.0 + SOON_S
            assert not stays.done()
        finally:
            os.kill(worker, signal.SIGCONT)
        assert stays.result()[0].status == 200
        wait_for(lambda: server.predict(GOOD_TEXT).status_code == 200, "an answer")
        assert server.worker_pid == worker
        server.healthy()
        assert server.breaker == "closed"


# ---------------------------------------------------------------- several workers


def test_a_restart_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """One of two workers dies and loads for ever: the other serves, ready all along."""
    script = {"lives": [{}, {}, {"load": "never"}], "count": str(tmp_path / "lives")}
    with Server(command=scripted(script, *PATIENT, "--workers", "2")) as server:

        def pids() -> list[int]:
            return [worker["pid"] for worker in server.status()["workers"] if worker["pid"]]

        def ready() -> int:
            return sum(worker["state"] == "ready" for worker in server.status()["workers"])

        wait_for(lambda: ready() == 2, "two workers")
        with Watch(server) as watch:
            os.kill(pids()[0], signal.SIGKILL)
            server.wait_event("worker.lost", reason="crashed")
            for _ in range(5):
                answers = server.send(*[Call(f"word {n}") for n in range(20)]).result()
                assert {answer.status for answer in answers} == {200}
                assert server.get("/readyz").status_code == 200
            wait_for(lambda: len(pids()) == 2, "another process")
            assert ready() == 1
            assert server.send(Call("another")).result()[0].status == 200
        assert set(watch.lives) == {200}
        assert server.breaker == "closed"
        assert server.metric("seawall_breaker_transitions_total", to="open") == 0


# ---------------------------------------------------------------- faults of clients


FORM = {"Content-Type": "application/x-www-form-urlencoded"}
KINDS: list[tuple[Call, str]] = [
    (Call("no mask"), "invalid_input"),
    (Call("the " * 600 + "[MASK]"), "invalid_input"),
    (Call({"inputs": "a [MASK]", "parameters": {"top_k": 0}}), "invalid_input"),
    (Call({"inputs": "a [MASK]", "parameters": {"num_workers": 6}}), "invalid_input"),
    (Call({"inputs": "a [MASK]", "parameters": {"targets": [""]}}), "invalid_input"),
    (Call({"inputs": ["a [MASK]", "no mask"]}), "invalid_input"),
    (Call({"inputs": 7}), "invalid_input"),
    (Call({"inputs": []}), "invalid_input"),
    (Call("a=b&c=d", FORM), "invalid_input"),
    (Call(b"\xff\xfe[MASK]"), "malformed_request"),
    (Call("{", {"Content-Type": "application/json"}), "malformed_request"),
    (Call("[MASK]", {"X-Request-Timeout-Ms": "soon"}), "malformed_request"),
    (Call("[MASK]", {"X-Rehearse-Fault": "explode"}), "malformed_request"),
    (Call("[MASK]", {"Content-Encoding": "gzip"}), "unsupported_media_type"),
    (Call("[MASK]", {"Content-Type": "image/png"}), "unsupported_media_type"),
    (Call("[MASK]" * 20_000), "payload_too_large"),
    (Call({"inputs": ["[MASK]"] * 2000}), "payload_too_large"),
]  # fmt: skip
"""What clients do wrong, and the code of it."""

LATE = ("deadline_exceeded", "deadline_too_short", "overloaded")


def test_five_hundred_faults_of_clients(model: Server) -> None:
    """Five hundred faults of every kind, the late among them, never move the breaker."""

    def moves() -> list[float]:
        name = "seawall_breaker_transitions_total"
        return [model.metric(name, to=to) for to in ("open", "half_open", "closed")]

    before, sent = moves(), 0
    calls, codes = [call for call, _ in KINDS], [code for _, code in KINDS]
    late = fault("slow=40", GOOD_TEXT, X_Request_Timeout_Ms="20")
    while sent < 500:
        assert [answer.code for answer in model.send(*calls).result()] == codes
        assert {answer.code for answer in model.send(late, late).result()} <= set(LATE)
        sent += len(calls) + 2
        assert model.breaker == "closed"
    assert moves() == before
    assert model.predict(GOOD_TEXT).status_code == 200
