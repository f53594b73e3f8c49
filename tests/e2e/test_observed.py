"""Watched from outside: a real Prometheus, and a log that nobody reads."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract.rules import rules
from tests.e2e.load import Call, at_once
from tests.e2e.prometheus import Prometheus, free_port
from tests.e2e.server import Server, clean_environment, wait_for
from tests.tools import ROOT

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def served() -> Iterator[Server]:
    """A server without a model."""
    with Server("--model", "synthetic:cpu") as server:
        yield server


@pytest.fixture(scope="module")
def prometheus(served: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped the server."""
    folder = tmp_path_factory.mktemp("prometheus")
    with Prometheus(folder, [f"127.0.0.1:{served.port}"]) as running:
        wait_for(lambda: running.value('up{job="seawall"} == 1'), "the first scrape")
        yield running


def test_prometheus_takes_every_sample(served: Server, prometheus: Prometheus) -> None:
    """A real Prometheus scrapes without an error and keeps every series of the page."""
    answers = served.send(*[Call("one two three")] * 20).result()
    assert {answer.status for answer in answers} == {200}
    wait_for(
        lambda: prometheus.value('sum(seawall_requests_total{outcome="ok"})') == 20.0,
        "the requests in Prometheus",
    )
    [target] = prometheus.get("targets")["activeTargets"]
    assert target["lastError"] == ""
    kept = prometheus.value('scrape_samples_post_metric_relabeling{job="seawall"}')
    page = [line for line in served.get("/metrics").text.splitlines() if line[:1] not in {"#", ""}]
    assert kept == len(page)


def test_every_rule_can_be_evaluated(prometheus: Prometheus) -> None:
    """Each shipped rule is healthy on a real scrape, quiet, and each metric that it names there."""

    def quiet() -> list[dict[str, Any]]:
        groups = prometheus.get("rules")["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        busy = {rule["name"] for rule in found if rule.get("state", "inactive") != "inactive"}
        healthy = all(rule["health"] == "ok" for rule in found)
        return found if healthy and busy == {"SeawallWatchdog"} else []

    found = wait_for(quiet, "every rule to be evaluated, and all but the watchdog to be quiet")
    assert {rule["name"] for rule in found} == set(rules())
    for rule in found:
        for metric in re.findall(r"\bseawall_\w+", rule["query"]):
            assert prometheus.value(f"count({metric})"), metric


def test_a_log_that_nobody_reads_costs_lines_and_never_answers() -> None:
    """With nobody reading its output the server answers everything and counts the lost lines."""
    reading, writing = os.pipe()
    port = free_port()
    command = [
        sys.executable, "-m", "service", "serve", "--bind", f"127.0.0.1:{port}",
        "--model", "synthetic:cpu", "--log-format", "json", "--log-level", "debug",
    ]  # fmt: skip
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=writing,
        start_new_session=True,
    )
    os.close(writing)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:

            def ready() -> bool:
                try:
                    return client.get("/readyz").status_code == httpx.codes.OK
                except httpx.TransportError:
                    return False

            wait_for(ready, "readiness")
            rounds = 0

            def lost() -> bool:
                nonlocal rounds
                rounds += 1
                answers = at_once(port, [Call("one two", {"X-Request-Timeout-Ms": "60000"})] * 50)
                assert {answer.status for answer in answers} <= {200, 503}
                for _ in range(500):  # a line each, at this level
                    assert client.get("/livez").status_code == httpx.codes.OK
                page = client.get("/metrics").text
                found = re.search(r"^seawall_log_lines_dropped_total (\S+)$", page, re.MULTILINE)
                assert found is not None
                return float(found[1]) > 0

            wait_for(lost, "lost lines to be counted")
            assert client.post("/", content=b"one two three").status_code == httpx.codes.OK
            os.set_blocking(reading, False)
            text = wait_for(lambda: os.read(reading, 1 << 20), "lines once the pipe is read")
            assert text.startswith(b'{"timestamp"')
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        os.close(reading)
