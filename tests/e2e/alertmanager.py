"""A real Alertmanager with the shipped routing, and the webhook that it tells."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx
import yaml

from tests.e2e.faster import faster
from tests.e2e.program import Program
from tests.e2e.prometheus import free_port
from tests.tools import ROOT, require_tool

SHIPPED = ROOT / "deploy/alertmanager/alertmanager.yml"
EXAMPLE = "127.0.0.1:9095"
"""The receivers' address in the shipped file."""


class Told(NamedTuple):
    """An alert that reached somebody.

    Attributes:
        receiver: who.
        alert: its name.
        since: when it began to fire; the same alert later is another.
    """

    receiver: str
    alert: str
    since: str


class Inbox:
    """A webhook that keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict[str, Any]]] = []
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                inbox.messages.append((self.path.removeprefix("/"), json.loads(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """As HOST:PORT."""
        return f"127.0.0.1:{self._server.server_port}"

    def told(self) -> set[Told]:
        """Every alert that has reached a receiver while it fired."""
        return {
            Told(receiver, alert["labels"]["alertname"], alert["startsAt"])
            for receiver, message in list(self.messages)
            for alert in message["alerts"]
            if alert["status"] == "firing"
        }

    def alerts(self) -> list[dict[str, Any]]:
        """Every alert as it was told, over and over."""
        return [alert for _, message in list(self.messages) for alert in message["alerts"]]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Alertmanager(Program):
    """The shipped routing; only durations and the receivers' address differ.

    Args:
        folder: an empty folder for its files.
        inbox: whom it tells, as HOST:PORT.
        factor: what durations are divided by.
    """

    def __init__(self, folder: Path, inbox: str, factor: float) -> None:
        text = SHIPPED.read_text()
        assert EXAMPLE in text
        config = faster(yaml.safe_load(text.replace(EXAMPLE, inbox)), factor)
        file = folder / "alertmanager.yml"
        file.write_text(yaml.safe_dump(config, sort_keys=False))
        self.address = f"127.0.0.1:{free_port()}"
        super().__init__(
            [
                require_tool("prometheus-alertmanager"),
                f"--config.file={file}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address={self.address}",
                "--cluster.listen-address=",
            ],
            f"http://{self.address}/api/v2",
        )

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            return self.client.get("/status").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def post(self, alerts: Sequence[dict[str, str]]) -> None:
        """Tell it of alerts that fire, by their labels."""
        answer = self.client.post("/alerts", json=[{"labels": labels} for labels in alerts])
        answer.raise_for_status()

    def alerts(self) -> list[dict[str, Any]]:
        """Every alert that it knows to fire, with what keeps it silent."""
        found: list[dict[str, Any]] = self.client.get("/alerts").json()
        return found

    def known(self) -> set[str]:
        """The names of all of them."""
        return {one["labels"]["alertname"] for one in self.alerts()}

    def silenced(self) -> set[str]:
        """The names of those that another alert keeps silent."""
        return {one["labels"]["alertname"] for one in self.alerts() if one["status"]["inhibitedBy"]}
