"""Behind a real Envoy with the shipped configuration: two replicas, and what happens to them."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.conftest import PATIENT
from tests.e2e.envoy import Envoy
from tests.e2e.faulty import broken, faulty
from tests.e2e.load import Answer, Call, at_once, in_background
from tests.e2e.server import Server, wait_for

pytestmark = pytest.mark.e2e

FLAGS = ("--model", "synthetic:cpu", "--rehearsal", "--batch-ms", "1", "--queue-limit", "20")
PLAIN = Call("one two three")


def slow(milliseconds: int) -> Call:
    """A request that takes so long."""
    return Call("one two three", {"X-Rehearse-Fault": f"slow={milliseconds}"})


def served(server: Server) -> int:
    """How many predictions a replica has answered well."""
    return server.outcomes().get("ok", 0)


@dataclass(frozen=True)
class House:
    """Two replicas with a proxy in front; the second one's model can be broken."""

    envoy: Envoy
    replicas: tuple[Server, Server]
    folder: Path

    def ask(self, *calls: Call) -> list[Answer]:
        """Send requests through the proxy at the same moment."""
        return at_once(self.envoy.port, calls)

    def codes(self, *calls: Call) -> Counter[str]:
        """How they ended."""
        return Counter(answer.code for answer in self.ask(*calls))


def house(stack: ExitStack, folder: Path, *flags: str) -> House:
    """Start all of it, and wait until both replicas are in the rotation."""
    first = stack.enter_context(Server(*PATIENT, *FLAGS, *flags))
    command = faulty(folder, *PATIENT, *FLAGS, *flags, "--breaker-probe-ms", "1000")
    second = stack.enter_context(Server(command=command))
    envoy = stack.enter_context(Envoy(folder, (first.port, second.port)))
    envoy.wait_healthy(2)
    return House(envoy, (first, second), folder)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A house that every test leaves as it was."""
    with ExitStack() as stack:
        yield house(stack, tmp_path_factory.mktemp("envoy"))


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[House]:
    """A house of one's own, to lose a replica; a stop serves on until the proxy has seen it."""
    with ExitStack() as stack:
        yield house(stack, tmp_path, "--drain-delay-ms", "5000")


def test_a_steady_load_is_shared(lasting: House) -> None:
    """Both replicas get their share, nobody fails, and nothing is tried twice."""
    before = [served(one) for one in lasting.replicas]
    for _ in range(10):
        assert lasting.codes(*[slow(20)] * 8) == {"ok": 8}
    shares = [served(one) - old for one, old in zip(lasting.replicas, before, strict=True)]
    assert sum(shares) == 80
    assert min(shares) >= 20
    assert lasting.envoy.stat("upstream_rq_retry") == 0


def test_an_overload_ejects_nobody_and_is_not_retried(lasting: House) -> None:
    """Refusals pass as they are, with their headers; no replica leaves and none is asked twice."""
    for _ in range(2):
        answers = lasting.ask(*[slow(100)] * 120)
        codes = Counter(answer.code for answer in answers)
        assert {*codes} == {"ok", "queue_full"}
        assert codes["queue_full"] >= 20
        for answer in answers:
            if answer.status == 503:
                assert answer.headers["x-envoy-ratelimited"] == "true"
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.headers["content-type"] == "application/problem+json"
    stats = ("outlier_detection.ejections_enforced_total", "upstream_rq_retry")
    assert [lasting.envoy.stat(name) for name in stats] == [0, 0]
    assert lasting.envoy.stat("membership_healthy") == 2


def test_an_open_breaker_leaves_the_rotation_and_comes_back(lasting: House) -> None:
    """While a model is broken the other replica serves alone; healed, it gets its share again."""
    good, bad = lasting.replicas
    with broken(lasting.folder):
        while bad.breaker == "closed":
            bad.predict("one two")
        lasting.envoy.wait_healthy(1)
        before = served(good)
        assert lasting.codes(*[PLAIN] * 15) == {"ok": 15}
        assert served(good) == before + 15
    bad.wait_ready()
    lasting.envoy.wait_healthy(2)
    before = served(bad)

    def shares_again() -> bool:
        # Half-open lets in few at a time, and an ejection for its 500s takes seconds to end.
        assert {*lasting.codes(*[slow(20)] * 4)} <= {"ok", "circuit_open"}
        return served(bad) > before and bad.breaker == "closed"

    wait_for(shares_again, "the healed replica to serve")


def test_a_partition_costs_what_was_in_flight(lasting: House) -> None:
    """A replica that falls silent leaves within seconds; later requests do not meet it."""
    good, bad = lasting.replicas
    lasting.envoy.wait_healthy(2)
    os.kill(bad.pid, signal.SIGSTOP)
    try:
        lasting.envoy.wait_healthy(1)
        before = served(good)
        assert lasting.codes(*[PLAIN] * 15) == {"ok": 15}
        assert served(good) == before + 15
    finally:
        os.kill(bad.pid, signal.SIGCONT)
    lasting.envoy.wait_healthy(2)
    assert lasting.codes(*[PLAIN] * 15) == {"ok": 15}


def test_a_draining_replica_loses_nothing(fresh: House) -> None:
    """From the signal to the end of the process every request through the proxy is answered."""
    _, leaving = fresh.replicas
    inside = in_background(fresh.envoy.port, [slow(300)] * 16)
    leaving.wait_running()
    leaving.terminate()
    codes: Counter[str] = Counter()
    while not leaving.dead:
        codes += fresh.codes(*[slow(20)] * 4)
    codes += fresh.codes(*[PLAIN] * 10)
    assert {*codes} == {"ok"}
    assert {answer.code for answer in inside.result()} == {"ok"}
    assert leaving.wait() == 0
    fresh.envoy.wait_healthy(1)


def test_a_killed_replica_costs_what_was_in_flight(fresh: House) -> None:
    """What ran on it fails, and nothing else: the very next requests are answered."""
    staying, killed = fresh.replicas
    inside = in_background(fresh.envoy.port, [slow(400)] * 16)
    killed.wait_running()
    killed.wait_admitted(2)
    os.killpg(killed.process.pid, signal.SIGKILL)
    killed.process.wait()  # what it still accepts while it dies was in flight too
    # A connection that is refused is tried at the other replica.
    assert fresh.codes(*[PLAIN] * 4) == {"ok": 4}
    statuses = Counter(answer.status for answer in inside.result())
    assert {*statuses} <= {200, 503}
    assert statuses[200] >= served(staying) - 4 > 0  # whatever the other one ran was answered
    fresh.envoy.wait_healthy(1)
    before = served(staying)
    assert fresh.codes(*[PLAIN] * 15) == {"ok": 15}
    assert served(staying) == before + 15


# ---------------------------------------------------------------- what arrives


class Echo(BaseHTTPRequestHandler):
    """A replica that says which headers it got."""

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = json.dumps({name.lower(): value for name, value in self.headers.items()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def test_the_deadline_reaches_the_replica(tmp_path: Path) -> None:
    """Envoy tells its own time-out, the client's header passes; nobody forges what Envoy says."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as replica:
        threading.Thread(target=replica.serve_forever, daemon=True).start()
        with Envoy(tmp_path, [replica.server_port]) as envoy:
            envoy.wait_healthy(1)
            forged = {"x-envoy-expected-rq-timeout-ms": "1", "x-envoy-upstream-rq-timeout-ms": "1"}
            [answer] = at_once(
                envoy.port, [Call("text", {"X-Request-Timeout-Ms": "700", **forged})]
            )
        replica.shutdown()
    assert answer.json["x-request-timeout-ms"] == "700"
    assert answer.json["x-envoy-expected-rq-timeout-ms"] == "31000"
