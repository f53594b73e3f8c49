"""Watched from outside: a real Prometheus, and a log that nobody reads."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract.rules import rules
from tests.e2e.conftest import PATIENT
from tests.e2e.load import Call, at_once
from tests.e2e.prometheus import Prometheus, free_port
from tests.e2e.server import LONG_S, Server, clean_environment, wait_for
from tests.tools import ROOT

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def served() -> Iterator[Server]:
    """A server without a model."""
    with Server(*PATIENT, "--model", "synthetic:cpu") as server:
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

    def whole() -> bool:
        """On a busy machine a scrape may be late once: the next one is not."""
        [target] = prometheus.get("targets")["activeTargets"]
        kept = prometheus.value('scrape_samples_post_metric_relabeling{job="seawall"}')
        page = served.get("/metrics").text.splitlines()
        series = [line for line in page if line[:1] not in {"#", ""}]
        return target["lastError"] == "" and kept == len(series)

    wait_for(whole, "a scrape without an error that keeps every series")


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
    for metric in {one for rule in found for one in re.findall(r"\bseawall_\w+", rule["query"])}:
        wait_for(lambda: prometheus.value(f"count({metric})"), metric)  # noqa: B023 - at once


def ask_often(port: int, times: int) -> None:
    """Ask for a page so often on one connection; each time it is there."""
    page = f"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=LONG_S) as connection:
        connection.sendall(page * times)
        answers, seen = connection.makefile("rb"), 0
        while seen < times:
            line = answers.readline()
            assert line, "the connection ended"
            seen += b"HTTP/1.1 200 " in line


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
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONG_S) as client:

            def ready() -> bool:
                try:
                    return client.get("/readyz").status_code == httpx.codes.OK
                except httpx.TransportError:
                    return False

            wait_for(ready, "readiness")

            def lost() -> bool:
                answers = at_once(port, [Call("one two", {"X-Request-Timeout-Ms": "60000"})] * 50)
                assert {answer.status for answer in answers} <= {200, 503}
                ask_often(port, 2000)  # a line each, at this level
                page = client.get("/metrics").text
                found = re.search(r"^seawall_log_lines_dropped_total (\S+)$", page, re.MULTILINE)
                assert found is not None
                return float(found[1]) > 0

            wait_for(lost, "lost lines to be counted")
            patience = {"X-Request-Timeout-Ms": "60000"}
            answer = client.post("/", content=b"one two three", headers=patience)
            assert answer.status_code == httpx.codes.OK
            os.set_blocking(reading, False)
            text = wait_for(lambda: os.read(reading, 1 << 20), "lines once the pipe is read")
            assert text.startswith(b'{"timestamp"')
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        os.close(reading)
