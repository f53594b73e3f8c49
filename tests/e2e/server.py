"""A real server process for tests: its address, its log lines, its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import httpx
import psutil

LONG_S = 120.0
"""Generous: the machine may be busy; nothing waits so long unless it is broken."""

PAUSE_S = 0.02


def clean_environment(**extra: str) -> dict[str, str]:
    """The environment without any setting of ours, and offline."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SEAWALL_")}
    env["HF_HUB_OFFLINE"] = "1"
    env.update(extra)
    return env


def wait_for(condition: Callable[[], Any], what: str, limit_s: float = LONG_S) -> Any:
    """Poll until ``condition`` gives something true; returns it."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(PAUSE_S)
    raise AssertionError(f"waited {limit_s:.0f} s in vain for {what}")


class Server:
    """``python -m service serve`` on a free port.

    Args:
        flags: settings as flags; ``--bind`` is added.
        env: added to a clean environment.
        ready: wait until it is ready (else only until the port is open).
        command: what to run instead.
    """

    def __init__(
        self,
        *flags: str,
        env: dict[str, str] | None = None,
        ready: bool = True,
        command: Sequence[str] | None = None,
    ) -> None:
        self.lines: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self._ready = ready
        command = command or (
            sys.executable, "-m", "service", "serve", "--bind", "127.0.0.1:0",
            "--log-format", "json", *flags,
        )  # fmt: skip
        self.process = subprocess.Popen(
            command,
            env=clean_environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stream = self.process.stdout
        if stream is not None:
            for line in stream:
                self.raw.append(line)
                with contextlib.suppress(ValueError):
                    self.lines.append(json.loads(line))

    def __enter__(self) -> Self:
        try:
            started = wait_for(lambda: self.event("server.started") or self.dead, "the port")
            assert started is not True, b"".join(self.raw).decode()
            self.url: str = started["address"]
            self.client = httpx.Client(base_url=self.url, timeout=LONG_S)
            if self._ready:
                self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(AttributeError):
            self.client.close()
        self.kill()

    @property
    def dead(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.url.rpartition(":")[2])

    @property
    def worker_pid(self) -> int:
        """The process id of its only worker."""
        [worker] = self.status()["workers"]
        return int(worker["pid"])

    def event(self, name: str) -> dict[str, Any] | None:
        """The first log line of that event."""
        return next(iter(self.events(name)), None)

    def events(self, name: str) -> Iterator[dict[str, Any]]:
        """Every log line of that event so far."""
        return (line for line in list(self.lines) if line.get("event") == name)

    def wait_event(self, name: str, **fields: Any) -> dict[str, Any]:
        """Wait for a log line of that event with those fields."""

        def found() -> dict[str, Any] | None:
            for line in self.events(name):
                if all(line.get(key) == value for key, value in fields.items()):
                    return line
            return None

        line: dict[str, Any] = wait_for(found, f"the event {name} {fields}")
        return line

    def wait_ready(self) -> None:
        """Wait until ``/readyz`` says yes."""
        wait_for(lambda: self.dead or self.client.get("/readyz").status_code == 200, "readiness")
        assert not self.dead, b"".join(self.raw).decode()

    def status(self) -> dict[str, Any]:
        """What ``/status`` says."""
        body: dict[str, Any] = self.client.get("/status").json()
        return body

    def predict(self, text: str, **headers: str) -> httpx.Response:
        """POST a raw text."""
        return self.client.post("/", content=text.encode(), headers=headers)

    def predict_json(self, body: Any, **headers: str) -> httpx.Response:
        """POST a JSON body."""
        return self.client.post("/", json=body, headers=headers)

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series; 0.0 if it is not there fails, so ask for what exists."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        for line in self.client.get("/metrics").text.splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(label in series for label in wanted):
                return float(value)
        raise AssertionError(f"no series {name} {labels}")

    def wait_idle(self) -> None:
        """Wait until nothing is inside any more; gauges that never fall fail here."""

        def idle() -> bool:
            stages = ("receiving", "queued", "running")
            inside = [self.metric("seawall_requests_in_flight", stage=stage) for stage in stages]
            return not any((*inside, self.metric("seawall_queue_depth")))

        wait_for(idle, "the gauges to fall to 0")

    def healthy(self) -> None:
        """The next plain request is right, probes answer, gauges are back at 0."""
        self.wait_idle()
        assert self.client.get("/livez").status_code == 200
        assert self.client.get("/metrics").status_code == 200
        assert self.predict("a healthy [MASK] text").status_code == 200

    def children(self) -> list[psutil.Process]:
        """Its child processes."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def terminate(self, number: int = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self, limit_s: float = LONG_S) -> int:
        """Wait for its end; returns the exit code, with every log line read."""
        code = self.process.wait(limit_s)
        self._reader.join(limit_s)
        return code

    def kill(self) -> None:
        """End it at once, whatever it does."""
        if not self.dead:
            self.process.kill()
        self.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
