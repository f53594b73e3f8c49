"""Watched from outside: a real Prometheus, and a log that nobody reads."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.load import Call, at_once
from tests.e2e.server import Server, clean_environment, wait_for
from tests.tools import ROOT, require_tool

pytestmark = pytest.mark.e2e

RULES = ROOT / "deploy/prometheus"
PLACE = "127.0.0.1:8000"
"""The target of the shipped configuration."""


def free_port() -> int:
    """A port that nobody uses at present."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Prometheus:
    """A real Prometheus with the shipped configuration, pointed at one server.

    Only the target and the interval are changed.
    """

    def __init__(self, folder: Path, target: str) -> None:
        text = (RULES / "prometheus.yml").read_text()
        assert PLACE in text
        text = text.replace(PLACE, target).replace("interval: 15s", "interval: 1s")
        (folder / "prometheus.yml").write_text(text)
        (folder / "alerts.yaml").write_text((RULES / "alerts.yaml").read_text())
        port = free_port()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}")
        self.process = subprocess.Popen(
            [
                require_tool("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def get(self, path: str, **query: str) -> Any:
        """The ``data`` of an API answer, ``None`` while it does not answer."""
        try:
            answer = self.client.get(f"/api/v1/{path}", params=query)
        except httpx.TransportError:
            return None
        return answer.json()["data"] if answer.status_code == httpx.codes.OK else None

    def value(self, expression: str) -> float | None:
        """The first value of an instant query, ``None`` for no series."""
        data = self.get("query", query=expression)
        return float(data["result"][0]["value"][1]) if data and data["result"] else None

    def end(self) -> None:
        """Stop it."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@pytest.fixture(scope="module")
def served() -> Iterator[Server]:
    """A server without a model."""
    with Server("--model", "synthetic:cpu") as server:
        yield server


@pytest.fixture(scope="module")
def prometheus(served: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped the server."""
    running = Prometheus(tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{served.port}")
    try:
        wait_for(lambda: running.value('up{job="seawall"} == 1'), "the first scrape")
        yield running
    finally:
        running.end()


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


def test_every_alert_can_be_evaluated(prometheus: Prometheus) -> None:
    """Each shipped rule is healthy on a real scrape, and each metric that it names is there."""
    shipped = yaml.safe_load((RULES / "alerts.yaml").read_text())
    names = {rule["alert"] for group in shipped["groups"] for rule in group["rules"]}

    def evaluated() -> list[dict[str, Any]]:
        groups = prometheus.get("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return rules if all(rule["health"] == "ok" for rule in rules) else []

    rules = wait_for(evaluated, "the rules to be evaluated")
    assert {rule["name"] for rule in rules} == names
    for rule in rules:
        assert rule["state"] == "inactive"
        for metric in re.findall(r"seawall_\w+", rule["query"]):
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
