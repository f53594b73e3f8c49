"""A local Ray cluster of three nodes: one without replicas, two with one each.

Needs the extra ``ray`` and the machine for itself; Ray warns of much, so warnings are let be:
``python -m pytest -m ray -W default tests/e2e/test_ray.py``.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import psutil
import pytest

from service.ray_serve import Placement, build, options_of
from service.settings import load_settings
from tests.e2e.load import Answer, Call, at_once, in_background, send
from tests.e2e.prometheus import free_port
from tests.e2e.server import wait_for

pytestmark = [pytest.mark.ray, pytest.mark.e2e, pytest.mark.filterwarnings("default")]

STORE_BYTES = 80 << 20
SETTINGS = {
    "model": "synthetic:cpu", "workers": "1", "queue_limit": "20", "batch_ms": "1",
    "deadline_ms": "60000", "max_wait_ms": "60000",
}  # fmt: skip
LONG = Call(" ".join(["word"] * 200))
"""About a tenth of a second of model time, alone."""
LONG_S = 0.105
DEADLINE_MS = 4000
"""More than a full queue of these takes."""


class House:
    """The cluster, its application and its address."""

    def __init__(self, cluster: Any, nodes: list[Any], port: int) -> None:
        self.cluster, self.nodes, self.port = cluster, nodes, port
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

    def ask(self, *calls: Call) -> list[Answer]:
        """Send requests through Serve's proxy at the same moment."""
        return at_once(self.port, calls)

    def replicas(self) -> set[int]:
        """The process ids of the replicas on all nodes."""
        found = set()
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if child.cmdline()[:1] == ["ray::ServeReplica:seawall:seawall"]:
                    found.add(child.pid)
        return found

    def running(self) -> int:
        """How many requests are being worked on, as far as one look at each replica tells."""
        looks = {}
        for _ in range(20):
            status = self.client.get("/status").json()
            [worker] = status["workers"]
            looks[worker["pid"]] = worker["running_items"] + status["queue"]["depth"]
        return sum(looks.values())


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """Three nodes, the application on two of them."""
    ray = pytest.importorskip("ray", reason="needs the extra: pip install 'seawall[ray]'")
    from ray import serve
    from ray.cluster_utils import Cluster

    port = free_port()
    head = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    environment = pytest.MonkeyPatch()  # Ray's processes inherit it
    environment.setenv("RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH", "service.ray_proxy:middlewares")
    cluster = Cluster(initialize_head=True, head_node_args=head)
    node = {"num_cpus": 2, "object_store_memory": STORE_BYTES}
    nodes = [cluster.add_node(**node) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        placed = {"replicas": "2", "cpus": "2", "per_node": "1"}
        serve.run(build({**SETTINGS, **placed}), name="seawall", route_prefix="/")
        yield House(cluster, nodes, port)
        serve.shutdown()
    finally:
        ray.shutdown()
        cluster.shutdown()
        environment.undo()


def test_answers_and_problems_are_ours(house: House) -> None:
    """What the server says passes unchanged: answers, 400, 404, 422, 504."""
    assert house.ask(Call("one two three"))[0].json["tokens"] == 3
    cases = [
        (Call("one", {"X-Request-Timeout-Ms": "never"}), 400, "malformed_request"),
        (Call({"inputs": 5}), 422, "invalid_input"),
        (Call(LONG.body, {"X-Request-Timeout-Ms": "20"}), 504, "deadline_exceeded"),
    ]
    for call, status, code in cases:
        [answer] = house.ask(call)
        assert (answer.status, answer.json["type"]) == (status, f"/errors/{code}")
        assert answer.headers["content-type"] == "application/problem+json"


def test_an_overload_is_refused_by_us(house: House) -> None:
    """Two replicas of a place for 20 each: the rest gets our 503 at once, and nobody Serve's."""
    before = time.monotonic()
    answers = house.ask(*[LONG] * 120)
    took_s = time.monotonic() - before
    codes = Counter(answer.code for answer in answers)
    assert {*codes} == {"ok", "queue_full"}
    # Both replicas were filled: one alone takes 21 and what it ends meanwhile.
    assert codes["ok"] >= 38
    for answer in answers:
        if answer.status == 503:
            assert answer.headers["x-envoy-ratelimited"] == "true"
            assert int(answer.headers["retry-after"]) >= 1
    # Refusals did not wait for the work.
    refused = [answer.seconds for answer in answers if answer.status == 503]
    assert sorted(refused)[len(refused) // 2] < took_s / 2


def test_goodput_at_twice_the_capacity(house: House) -> None:
    """While twice of what both replicas can do arrives, 85 % of their time is answers in time."""
    call = Call(LONG.body, {"X-Request-Timeout-Ms": str(DEADLINE_MS)})
    every_s, calls = LONG_S / 4, 500

    async def story() -> list[Answer]:
        began, sent = time.monotonic(), []
        for number in range(calls):
            await asyncio.sleep(began + number * every_s - time.monotonic())
            sent.append(asyncio.ensure_future(send(house.port, call)))
        return await asyncio.gather(*sent)

    began = time.monotonic()
    answers = asyncio.run(story())
    good = [one for one in answers if one.code == "ok" and one.seconds <= DEADLINE_MS / 1000]
    timings = [re.search(r"infer;dur=([\d.]+)", one.headers["server-timing"]) for one in good]
    used_s = sum(float(found[1]) / 1000 for found in timings if found)
    took_s = max(one.at for one in answers) - began
    codes = Counter(one.code for one in answers)
    assert {*codes} <= {"ok", "queue_full", "overloaded", "deadline_exceeded"}
    assert codes["ok"] < 0.75 * calls  # it was an overload
    assert codes["deadline_exceeded"] <= 0.02 * calls
    assert used_s / took_s / 2 >= 0.85


def test_a_client_that_leaves_cancels_its_work(house: House) -> None:
    """Requests whose clients hang up leave the queues at once, and are counted as gone."""
    with ExitStack() as clients:
        for _ in range(40):
            client = socket.create_connection(("127.0.0.1", house.port))
            clients.callback(client.close)
            client.sendall(LONG.wire("127.0.0.1"))
        wait_for(house.running, "their work")
    wait_for(lambda: not house.running(), "the queues to be empty")
    gone = house.client.get("/status").json()["outcomes"]["gone"]["client_gone"]
    assert gone >= 1


def test_a_wait_before_us_is_part_of_the_deadline(house: House) -> None:
    """Replicas that read nothing for longer than a deadline answer 504 then, not a late 200."""
    replicas = house.replicas()
    for pid in replicas:
        os.kill(pid, signal.SIGSTOP)
    try:
        until = time.monotonic() + 3
        impatient = in_background(
            house.port, [Call("one two", {"X-Request-Timeout-Ms": "2000"})] * 4
        )
        patient = in_background(
            house.port, [Call("one two", {"X-Request-Timeout-Ms": "60000"})] * 4
        )
        wait_for(lambda: time.monotonic() > until, "the deadline to pass")
    finally:
        for pid in replicas:
            os.kill(pid, signal.SIGCONT)
    assert {answer.code for answer in impatient.result()} == {"deadline_exceeded"}
    assert {answer.code for answer in patient.result()} == {"ok"}


def test_a_killed_node_is_replaced(house: House) -> None:
    """While one node is gone the other serves; on a node that joins a replica comes up again."""
    before = house.replicas()
    assert len(before) == 2
    house.cluster.remove_node(house.nodes.pop())

    def served() -> bool:
        return {answer.status for answer in house.ask(*[Call("one two")] * 4)} == {200}

    wait_for(lambda: len(house.replicas()) == 1, "the node to be gone")
    wait_for(served, "the replica that is left")
    house.nodes.append(house.cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES))

    def replaced() -> bool:
        now = house.replicas()
        return len(now) == 2 and len(now & before) == 1

    wait_for(replaced, "a replica on the new node", 180.0)
    assert {answer.status for answer in house.ask(*[Call("one two")] * 20)} == {200}


# ---------------------------------------------------------------- as many as are needed


@pytest.mark.parametrize("needed, wanted", [({"a": 0.0}, 1), ({"a": 0.7, "b": 1.6}, 3), ({}, 2)])
def test_serve_takes_our_decision(needed: dict[str, float], wanted: int) -> None:
    """Serve reads the policy from what it is told, and gets our number for its own figures."""
    config = pytest.importorskip("ray.serve.config", reason="needs the extra ray")
    options = options_of(Placement(replicas=1, most_replicas=4), load_settings([], {}))
    told = config.AutoscalingConfig(**options["autoscaling_config"])
    assert (told.min_replicas, told.max_replicas) == (1, 4)
    told.policy.serialize_policy()
    context = config.AutoscalingContext(
        deployment_id=None, deployment_name="seawall", app_name="seawall", current_num_replicas=2,
        target_num_replicas=2, running_replicas=[], total_num_requests=0.0,
        total_queued_requests=0.0, aggregated_metrics={"needed": needed}, raw_metrics={},
        capacity_adjusted_min_replicas=1, capacity_adjusted_max_replicas=4, policy_state={},
        last_scale_up_time=None, last_scale_down_time=None, current_time=0.0, config=told,
    )  # fmt: skip
    assert told.policy.get_policy()(context) == (wanted, {})


def test_what_arrives_brings_a_second_replica(house: House) -> None:
    """One replica that has to refuse gets a second one beside it; a calm one does not."""
    from ray import serve

    serve.delete("seawall")
    wait_for(lambda: not house.replicas(), "the old replicas to be gone")
    placed = {"replicas": "1", "most_replicas": "2", "cpus": "2", "per_node": "1"}
    serve.run(build({**SETTINGS, **placed}), name="seawall", route_prefix="/")
    assert len(house.replicas()) == 1

    def grown() -> bool:
        assert {answer.code for answer in house.ask(*[LONG] * 30)} <= {"ok", "queue_full"}
        return len(house.replicas()) == 2

    wait_for(grown, "a second replica", 180.0)
