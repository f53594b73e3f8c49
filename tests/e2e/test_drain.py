"""Stopping: nobody who was let in is lost, nobody new is kept waiting, the exit code is 0."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.conftest import PATIENT
from tests.e2e.faulty import faulty
from tests.e2e.held import busy
from tests.e2e.load import Answer, Call
from tests.e2e.server import GOOD_TEXT, LONG_S, Server, alive, scripted, wait_for

pytestmark = pytest.mark.e2e

ONE_BY_ONE = (*PATIENT, "--model", "synthetic:cpu", "--rehearsal", "--batch-ms", "1")

SOON_S = 15.0
"""An end that waits for nothing, on a busy machine; what it must not wait for takes longer."""


def slow(milliseconds: int, text: str = GOOD_TEXT) -> Call:
    """A request of that length."""
    return Call(text, {"X-Rehearse-Fault": f"slow={milliseconds}"})


def check_draining(answer: Answer) -> None:
    """503 ``draining`` with ``Retry-After``; the connection is not to be used again."""
    assert (answer.status, answer.code) == (503, "draining"), answer
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["connection"] == "close"


def check_stopped(server: Server) -> None:
    """Exit code 0, the last word is that it stopped, and its worker is gone."""
    assert server.wait() == 0
    assert server.lines[-1]["event"] == "server.stopped"
    assert server.lines[-1]["exit_code"] == 0
    assert "Traceback" not in server.text
    started = server.event("worker.started")
    assert started is not None
    assert not alive(started["pid"])


def first_turned_away(server: Server) -> Answer:
    """The first answer ``draining``: whoever is let in before waits for a worker that is busy."""

    def turned_away() -> Answer | None:
        [answer] = server.send(Call("one more", {"X-Request-Timeout-Ms": "200"})).result()
        return answer if answer.code == "draining" else None

    answer: Answer = wait_for(turned_away, "a request to be turned away")
    return answer


class Stream:
    """Asks again and again, one request after another on new connections, until it is refused."""

    def __init__(self, server: Server) -> None:
        self.answers: list[Answer] = []
        self._server = server
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while True:
            [answer] = self._server.send(Call("one more")).result()
            if answer.status == 0:
                return
            self.answers.append(answer)

    def end(self) -> list[Answer]:
        """Every answer, once nobody listens any more."""
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()
        return self.answers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_loses_nobody(tmp_path: Path, number: signal.Signals) -> None:
    """Every accepted request is answered, none with 500; later ones are told to go elsewhere."""
    flags = (*ONE_BY_ONE, "--drain-timeout-ms", "60000")
    with Server(command=faulty(tmp_path, *flags)) as server:
        with busy(server, tmp_path) as running:
            waiting = server.send(*[Call(f"word {n}") for n in range(20)])
            server.wait_admitted(21)
            stream = Stream(server)
            server.terminate(number)
            server.wait_event("server.draining")
            assert server.get("/readyz").status_code == 503
            assert server.get("/livez").status_code == 200
            assert server.metric("seawall_draining") == 1
            check_draining(first_turned_away(server))
        answers = [*running.result(), *waiting.result()]
        check_stopped(server)
        later = stream.end()
        assert Counter(answer.code for answer in answers) == {"ok": 21}
        assert {answer.code for answer in later} <= {"ok", "draining"}
        for answer in later:
            if answer.status != 200:
                check_draining(answer)


def test_the_drain_delay_serves_on_and_a_second_signal_ends_it(tmp_path: Path) -> None:
    """In the delay all is served with ``Connection: close``; a second signal skips the rest."""
    flags = (*ONE_BY_ONE, "--drain-delay-ms", "600000", "--drain-timeout-ms", "60000")
    with Server(command=faulty(tmp_path, *flags)) as server:
        with busy(server, tmp_path) as running:
            server.terminate()
            server.wait_event("server.draining")
            refusal = server.get("/readyz")
            assert refusal.status_code == 503
            assert refusal.json()["ready"] is False
            assert refusal.headers["connection"] == "close"
        for _ in range(3):
            [answer] = server.send(Call("one more")).result()
            assert answer.status == 200
            assert answer.headers["connection"] == "close"
            assert server.get("/readyz").status_code == 503
            assert server.get("/livez").status_code == 200
        assert running.result()[0].status == 200
        assert not server.dead
        with busy(server, tmp_path) as last:
            server.terminate()
            check_draining(first_turned_away(server))
        assert last.result()[0].status == 200
        check_stopped(server)


def test_the_drain_delay_ends_by_itself() -> None:
    """After the delay, and with nothing inside, the server ends without a further signal."""
    with Server(*ONE_BY_ONE, "--drain-delay-ms", "1000") as server:
        before = time.monotonic()
        server.terminate()
        check_stopped(server)
        assert time.monotonic() - before > 0.95


@pytest.mark.parametrize("timeout_ms, each_ms, complete", [(60000, 100, True), (3000, 700, False)])
def test_what_waits_is_answered_within_the_drain_timeout(
    tmp_path: Path, timeout_ms: int, each_ms: int, complete: bool
) -> None:
    """Six requests wait: a long grace answers all, one too short for them each with 200 or 503."""
    flags = (*ONE_BY_ONE, "--drain-timeout-ms", str(timeout_ms))
    with Server(command=faulty(tmp_path, *flags)) as server:
        with busy(server, tmp_path) as running:
            waiting = server.send(*[slow(each_ms, f"word {n}") for n in range(6)])
            server.wait_admitted(7)
            server.terminate()
            server.wait_event("server.draining")
        answers = [*running.result(), *waiting.result()]
        check_stopped(server)
        codes = Counter(answer.code for answer in answers)
        assert codes["ok"] >= 1
        assert set(codes) == ({"ok"} if complete else {"ok", "draining"})
        for answer in answers:
            if answer.status != 200:
                check_draining(answer)


def test_a_hung_worker_does_not_hold_up_the_end() -> None:
    """A batch that never returns costs the drain timeout, no more: 503, then exit 0."""
    with Server(*ONE_BY_ONE, "--drain-timeout-ms", "500") as server:
        hung = server.send(Call(GOOD_TEXT, {"X-Rehearse-Fault": "hang"}))
        server.wait_running()
        server.terminate()
        check_draining(hung.result()[0])
        check_stopped(server)


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM] * 2])
def test_a_signal_while_loading_ends_it_at_once(signals: list[signal.Signals]) -> None:
    """While the model loads there is nothing to wait for: exit 0, and never ready."""
    command = scripted({"load": "never"}, *PATIENT, "--drain-delay-ms", "600000")
    with Server(command=command, ready=False) as server:
        server.wait_event("worker.started")
        for number in signals:
            server.terminate(number)
        before = time.monotonic()
        check_stopped(server)
        assert time.monotonic() - before < SOON_S
        assert server.event("worker.ready") is None


def test_a_signal_while_the_real_model_loads_ends_it_at_once() -> None:
    """The libraries' imports and the weights do not hold up the end either."""
    with Server(ready=False) as server:
        server.wait_event("worker.started")
        server.terminate()
        before = time.monotonic()
        check_stopped(server)
        assert time.monotonic() - before < SOON_S
        assert server.event("worker.ready") is None


def test_a_signal_while_a_lost_worker_loads_again() -> None:
    """What waits for a worker that comes back is drained too, within the limit."""
    flags = ("--drain-timeout-ms", "10000", "--restart-limit", "100")
    with Server(*ONE_BY_ONE, *flags) as server:
        lost = server.send(Call(GOOD_TEXT, {"X-Rehearse-Fault": "exit"}))
        assert lost.result()[0].code == "worker_lost"
        server.terminate()
        check_stopped(server)


def test_idle_connections_do_not_hold_up_the_end() -> None:
    """A kept-alive connection that says nothing, and one that never spoke, are closed."""
    with Server(*ONE_BY_ONE) as server:
        assert server.get("/livez").status_code == 200  # the client keeps it open
        server.terminate()
        before = time.monotonic()
        check_stopped(server)
        assert time.monotonic() - before < SOON_S
