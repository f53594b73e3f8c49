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
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import httpx
import psutil

from tests.e2e.load import Answer, Call, in_background
from tests.tools import ROOT

LONG_S = 240.0
"""Generous: the machine may be busy; nothing waits so long unless it is broken."""

PAUSE_S = 0.02

GOOD_TEXT = "a healthy [MASK] text"
"""Fits every model of these tests."""

HOLDS_MS = (1000, 4000, 16000)
"""How long a worker is kept busy while a batch gathers behind it: if not long enough, longer."""


RECEIVING, QUEUED, RUNNING = (
    f'seawall_requests_in_flight{{stage="{stage}"}}' for stage in ("receiving", "queued", "running")
)
OK = 'seawall_requests_total{outcome="ok"}'
"""Series as they stand in ``/metrics``."""


def clean_environment(**extra: str) -> dict[str, str]:
    """The environment without any setting of ours or of an outer make, and offline."""
    ours = ("SEAWALL_", "MAKE", "MFLAGS")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
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


def alive(pid: int) -> bool:
    """Whether a process of that id runs (one that nobody has waited for yet does not)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass(frozen=True, slots=True)
class Ended:
    """What a server that ended by itself left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its log."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The log lines of a level from error on."""
        return [line for line in self.lines if line["level"] in {"error", "critical"}]

    def events(self) -> list[str]:
        """The events of the log, in order."""
        return [line["event"] for line in self.lines]


def run_to_end(*flags: str, env: dict[str, str] | None = None) -> Ended:
    """Run a server that must end by itself."""
    done = subprocess.run(
        [sys.executable, "-m", "service", "serve", "--log-format", "json", *flags],
        env=clean_environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def scripted(script: dict[str, Any], *flags: str) -> tuple[str, ...]:
    """The command of a server whose workers obey a script (``stubbed``)."""
    program = (sys.executable, "-m", "tests.e2e.stubbed", json.dumps(script))
    return (
        *program, "--bind", "127.0.0.1:0", "--log-format", "json", "--model", "synthetic:cpu",
        *flags,
    )  # fmt: skip


class Server:
    """``python -m service serve`` on a free port.

    Args:
        flags: settings as flags; ``--bind`` is added, and one worker unless the flags say how many.
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
        if "--workers" not in flags:
            flags = (*flags, "--workers", "1")  # two processes of torch take long on two cores
        command = command or (
            sys.executable, "-m", "service", "serve", "--bind", "127.0.0.1:0",
            "--log-format", "json", *flags,
        )  # fmt: skip
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=clean_environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
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
            wait_for(lambda: self.event("server.started") or self.dead, "the port")
            started = self.event("server.started")
            assert started is not None, self.text
            self.pid = int(started["pid"])
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
    def text(self) -> str:
        """Everything that it has printed so far."""
        return b"".join(self.raw).decode()

    @property
    def worker_pid(self) -> int:
        """The process id of its only worker, once there is one."""

        def pid() -> int | None:
            [worker] = self.status()["workers"]
            found: int | None = worker["pid"]
            return found

        return int(wait_for(pid, "a worker"))

    # ------------------------------------------------------------------ its log

    def event(self, name: str, **fields: Any) -> dict[str, Any] | None:
        """The first log line of that event with those fields."""
        return next(iter(self.events(name, **fields)), None)

    def events(self, name: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """Every log line of that event with those fields so far."""
        return (
            line
            for line in list(self.lines)
            if line.get("event") == name
            and all(line.get(key) == value for key, value in fields.items())
        )

    def wait_event(self, name: str, **fields: Any) -> dict[str, Any]:
        """Wait for a log line of that event with those fields."""
        line: dict[str, Any] = wait_for(
            lambda: self.event(name, **fields), f"the event {name} {fields}"
        )
        return line

    # ------------------------------------------------------------------ its state

    def get(self, path: str) -> httpx.Response:
        """GET a page."""
        return self.client.get(path)

    def wait_ready(self) -> None:
        """Wait until ``/readyz`` says yes."""
        wait_for(lambda: self.dead or self.get("/readyz").status_code == 200, "readiness")
        assert not self.dead, self.text

    def wait_running(self) -> None:
        """Wait until a worker runs a batch."""
        wait_for(self._runs, "a running batch")

    def _runs(self) -> bool:
        return bool(self.status()["workers"][0]["running_items"])

    def wait_depth(self, items: int) -> None:
        """Wait until so many items stand in the queue, all of them prepared."""
        wait_for(lambda: self._stands(items), f"{items} items in the queue")

    def _stands(self, items: int) -> bool:
        status = self.status()
        busy = any(worker["preparing_items"] for worker in status["workers"])
        return not busy and bool(status["queue"]["depth"] >= items)

    def wait_admitted(self, requests: int) -> None:
        """Wait until so many requests have been let in since the start."""

        def admitted() -> bool:
            values = self.scrape()
            places = QUEUED, RUNNING, OK
            return sum(values[place] for place in places) >= requests

        wait_for(admitted, f"{requests} admitted requests")

    def status(self) -> dict[str, Any]:
        """What ``/status`` says."""
        body: dict[str, Any] = self.get("/status").json()
        return body

    @property
    def breaker(self) -> str:
        """Where the breaker is."""
        return str(self.status()["breaker"]["state"])

    def scrape(self) -> dict[str, float]:
        """Every series of ``/metrics``, by its name with its labels."""
        lines = self.get("/metrics").text.splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {series: float(value) for series, _, value in pairs}

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series; a series that is not there is an error."""
        inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
        return self.scrape()[f"{name}{{{inside}}}" if inside else name]

    def outcomes(self) -> dict[str, int]:
        """How often prediction requests ended in each way, without those that never did."""
        start = "seawall_requests_total{"
        counted = {name: value for name, value in self.scrape().items() if name.startswith(start)}
        return {name.split('"')[1]: int(value) for name, value in counted.items() if value}

    def wait_idle(self) -> None:
        """Wait until nothing is inside any more; gauges that never fall fail here."""
        gauges = ("seawall_queue_depth", RECEIVING, QUEUED, RUNNING)

        def idle() -> bool:
            values = self.scrape()
            return not any(values[gauge] for gauge in gauges)

        wait_for(idle, "the gauges to fall to 0")

    def healthy(self) -> None:
        """The next plain request is right, probes answer, gauges are back at 0."""
        self.wait_idle()
        assert self.get("/livez").status_code == 200
        assert self.get("/metrics").status_code == 200
        self.wait_ready()
        answer = self.predict(GOOD_TEXT, X_Request_Timeout_Ms=str(round(1000 * LONG_S)))
        assert answer.status_code == 200, answer.text

    def children(self) -> list[psutil.Process]:
        """Its child processes."""
        return psutil.Process(self.pid).children(recursive=True)

    # ------------------------------------------------------------------ asking it

    def predict(self, text: str, **headers: str) -> httpx.Response:
        """POST a raw text."""
        return self.client.post("/", content=text.encode(), headers=_named(headers))

    def predict_json(self, body: Any, **headers: str) -> httpx.Response:
        """POST a JSON body."""
        return self.client.post("/", json=body, headers=_named(headers))

    def send(self, *calls: Call) -> Future[list[Answer]]:
        """Send requests at the same moment and go on; the future has their answers, in order."""
        return in_background(self.port, calls)

    def in_one_batch(self, *calls: Call) -> list[Answer]:
        """Send requests while the worker is kept busy, so that they wait for it together.

        Needs rehearsal. The calls must be of one input each, and do no harm when they are sent
        again: a slow machine may let the worker go before all of them have come.
        """
        for hold_ms in HOLDS_MS:
            holder = self.send(Call(GOOD_TEXT, {"X-Rehearse-Fault": f"slow={hold_ms}"}))
            self._wait_while(holder, self._runs, "a running batch")
            sent = self.send(*calls)
            self._wait_while(holder, partial(self._stands, len(calls)), "all to have come")
            together = not holder.done()
            assert holder.result()[0].status == 200
            answers = sent.result()
            if together:
                return answers
        raise AssertionError("too slow: the worker was free before all of them had come")

    @staticmethod
    def _wait_while(holder: Future[list[Answer]], come: Callable[[], bool], what: str) -> None:
        wait_for(lambda: holder.done() or come(), what)

    # ------------------------------------------------------------------ its end

    def terminate(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the server's own process."""
        os.kill(self.pid, number)

    def wait(self, limit_s: float = LONG_S) -> int:
        """Wait for its end; returns the exit code, with every log line read."""
        code = self.process.wait(limit_s)
        self._reader.join(limit_s)
        return code

    def kill(self) -> None:
        """End it and whatever it has started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
