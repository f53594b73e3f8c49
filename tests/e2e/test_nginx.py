"""Behind a real nginx with the shipped configuration."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.settings import load_settings
from tests.e2e.conftest import PATIENT
from tests.e2e.load import Answer, Call, at_once
from tests.e2e.nginx import Nginx, write
from tests.e2e.server import Server
from tests.tools import require_tool

pytestmark = pytest.mark.e2e

FLAGS = ("--model", "synthetic:cpu", "--rehearsal", "--batch-ms", "1", "--queue-limit", "20")
PLAIN = Call("one two three")


@dataclass(frozen=True)
class House:
    """Two replicas with nginx in front."""

    nginx: Nginx
    replicas: tuple[Server, Server]

    def ask(self, *calls: Call) -> list[Answer]:
        """Send requests through the proxy at the same moment."""
        return at_once(self.nginx.port, calls)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The two replicas and nginx; the last test ends one of them."""
    with ExitStack() as stack:
        replicas = (
            stack.enter_context(Server(*PATIENT, *FLAGS)),
            stack.enter_context(Server(*PATIENT, *FLAGS)),
        )
        folder = tmp_path_factory.mktemp("nginx")
        nginx = stack.enter_context(Nginx(folder, [one.port for one in replicas]))
        nginx.wait_up()
        yield House(nginx, replicas)


def test_nginx_takes_the_file(tmp_path: Path) -> None:
    """``nginx -t`` has nothing to say about the shipped site."""
    path = write(tmp_path, [8000, 8001], 8080)
    done = subprocess.run(
        [require_tool("nginx"), "-t", "-q", "-c", str(path), "-p", str(tmp_path), "-e", "stderr"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_load_is_shared(house: House) -> None:
    """Both replicas get their share, and nobody fails."""
    slow = Call("one two three", {"X-Rehearse-Fault": "slow=20"})
    for _ in range(5):
        assert {answer.code for answer in house.ask(*[slow] * 8)} == {"ok"}
    shares = [one.outcomes()["ok"] for one in house.replicas]
    assert sum(shares) == 40
    assert min(shares) >= 10


def test_refusals_and_headers_pass_as_they_are(house: House) -> None:
    """An overload gives our 503 with its headers; no replica is left out for it."""
    slow = Call("one two three", {"X-Rehearse-Fault": "slow=100"})
    answers = house.ask(*[slow] * 120)
    codes = Counter(answer.code for answer in answers)
    assert {*codes} == {"ok", "queue_full"}
    for answer in answers:
        if answer.status == 503:
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.headers["content-type"] == "application/problem+json"
    before = [one.outcomes()["ok"] for one in house.replicas]
    assert {answer.code for answer in house.ask(*[slow] * 8)} == {"ok"}
    after = [one.outcomes()["ok"] for one in house.replicas]
    assert all(new > old for new, old in zip(after, before, strict=True))


def test_ids_and_deadlines_reach_the_replica(house: House) -> None:
    """A client's id and deadline pass; what only proxies may say of the deadline does not."""
    [answer] = house.ask(Call("one", {"X-Request-Id": "mine-1"}))
    assert answer.headers["x-request-id"] == "mine-1"
    [answer] = house.ask(Call("one", {"X-Request-Timeout-Ms": "never"}))
    assert answer.code == "malformed_request"
    [answer] = house.ask(Call("one", {"x-envoy-expected-rq-timeout-ms": "never"}))
    assert answer.code == "ok"


def test_bodies_are_bounded_and_figures_hidden(house: House) -> None:
    """What is too large is refused by the proxy; metrics and status are not for clients."""
    longest = load_settings([], {}).max_body_bytes
    [answer] = house.ask(Call("x" * (longest + 1)))
    assert answer.status == 413
    for path in ("/metrics", "/status"):
        assert house.nginx.client.get(path).status_code == 404
    assert house.nginx.client.get("/readyz").status_code == 200


def test_a_dead_replica_is_passed_over(house: House) -> None:
    """A replica that cannot be reached costs nobody an answer."""
    house.replicas[1].kill()
    for _ in range(3):
        assert {answer.code for answer in house.ask(*[PLAIN] * 8)} == {"ok"}
