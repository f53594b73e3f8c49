"""A real Prometheus with the shipped configuration, pointed at servers of a test."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.e2e.program import Program
from tests.tools import ROOT, require_tool

SHIPPED = ROOT / "deploy/prometheus"

Series = tuple[dict[str, str], list[tuple[float, float]]]
"""The labels of a series, and its samples as (moment, value)."""


PORTS = range(20_000, 32_000)
"""Under those that the system gives away: no connection of a test takes one meanwhile."""


def free_port() -> int:
    """A port that nobody uses at present."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def shipped(name: str) -> Any:
    """A shipped file as data."""
    return yaml.safe_load((SHIPPED / name).read_text())


def rule_files(config: dict[str, Any]) -> dict[str, Any]:
    """The rules that a configuration names."""
    return {name: shipped(name) for name in config["rule_files"]}


def pointed_at(config: dict[str, Any], targets: Sequence[str]) -> dict[str, Any]:
    """A configuration with other targets."""
    [job] = config["scrape_configs"]
    [place] = job["static_configs"]
    place["targets"] = list(targets)
    return config


class Prometheus(Program):
    """Scrapes each second; apart from that and the targets the configuration is the shipped one.

    Args:
        folder: an empty folder for its files.
        targets: as HOST:PORT.
    """

    def __init__(self, folder: Path, targets: Sequence[str]) -> None:
        for name, content in self.files(targets).items():
            (folder / name).write_text(yaml.safe_dump(content, sort_keys=False))
        port = free_port()
        super().__init__(
            [
                require_tool("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--enable-feature=exemplar-storage",
                "--rules.alert.resend-delay=1s",  # whom to tell is found out only after a while
            ],
            f"http://127.0.0.1:{port}",
        )

    def files(self, targets: Sequence[str]) -> dict[str, Any]:
        """The configuration and the rules, as data by file name."""
        config = shipped("prometheus.yml")
        config["global"] = dict.fromkeys(config["global"], "1s")
        config.pop("alerting")  # there is nobody to tell
        rules = rule_files(config)
        for content in rules.values():
            for group in content["groups"]:
                group.pop("interval", None)  # as often as the others
        return {"prometheus.yml": pointed_at(config, targets), **rules}

    def get(self, path: str, **query: Any) -> Any:
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

    def at(self, moment: float, expression: str) -> list[Series]:
        """Every series of a query for one moment.

        Raises:
            AssertionError: Prometheus cannot answer it.
        """
        asked = {"query": expression, "time": str(moment)}
        return self._series(self.client.get("/api/v1/query", params=asked))

    def between(self, expression: str, start: float, end: float) -> list[Series]:
        """Every series of a query over a time, a sample each second.

        Raises:
            AssertionError: Prometheus cannot answer it.
        """
        asked = {"query": expression, "start": str(start), "end": str(end), "step": "1s"}
        return self._series(self.client.get("/api/v1/query_range", params=asked))

    @staticmethod
    def _series(answer: httpx.Response) -> list[Series]:
        assert answer.status_code == httpx.codes.OK, answer.text
        return [
            (
                {name: value for name, value in one["metric"].items() if name != "__name__"},
                [(moment, float(v)) for moment, v in one.get("values") or [one["value"]]],
            )
            for one in answer.json()["data"]["result"]
        ]
