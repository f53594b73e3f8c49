"""A real Envoy with the shipped configuration, pointed at servers of a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.e2e.program import Program
from tests.e2e.prometheus import free_port
from tests.e2e.server import wait_for
from tests.tools import ROOT, require_tool

SHIPPED = ROOT / "deploy/envoy/envoy.yaml"


def shipped() -> dict[str, Any]:
    """The shipped configuration as data."""
    config: dict[str, Any] = yaml.safe_load(SHIPPED.read_text())
    return config


def address(host: str, port: int) -> dict[str, Any]:
    """An address as Envoy writes it."""
    return {"socket_address": {"address": host, "port_value": port}}


class Envoy(Program):
    """Envoy with its own ports and the test's replicas; all else is as shipped.

    Args:
        folder: an empty folder for its configuration.
        replicas: the ports of the replicas on this machine.
        http: what its HTTP connection manager is told in place of what is shipped.
    """

    def __init__(
        self, folder: Path, replicas: Sequence[int], http: Mapping[str, Any] | None = None
    ) -> None:
        self.port, admin = free_port(), free_port()
        config = shipped()
        config["admin"]["address"] = address("127.0.0.1", admin)
        resources = config["static_resources"]
        resources["listeners"][0]["address"] = address("127.0.0.1", self.port)
        if http is not None:
            [manager] = resources["listeners"][0]["filter_chains"][0]["filters"]
            kept = {name: manager["typed_config"][name] for name in ("@type", "stat_prefix")}
            manager["typed_config"] = kept | dict(http)
        (place,) = resources["clusters"][0]["load_assignment"]["endpoints"]
        place["lb_endpoints"] = [
            {"endpoint": {"address": address("127.0.0.1", port)}} for port in replicas
        ]
        path = folder / "envoy.yaml"
        path.write_text(yaml.safe_dump(config))
        super().__init__(
            [
                require_tool("envoy"), "-c", str(path), "--concurrency", "1",
                "--disable-hot-restart", "--log-level", "off",
            ],
            f"http://127.0.0.1:{admin}",
        )  # fmt: skip

    def stat(self, name: str) -> int:
        """A counter or gauge of the cluster."""
        text = self.client.get("/stats", params={"filter": f"^cluster.seawall.{name}$"}).text
        return int(text.rpartition(":")[2])

    def wait_healthy(self, replicas: int) -> None:
        """Wait until so many replicas are in the rotation."""
        wait_for(lambda: self._healthy() == replicas, f"{replicas} replicas in the rotation")

    def _healthy(self) -> int:
        try:
            return self.stat("membership_healthy")
        except (httpx.TransportError, ValueError):  # not up yet, or no such figure yet
            return -1
