"""The served side of chaos: the server's settings, what is done to its workers, and its state.

Whether all is as it was before cannot be asked of one moment: a worker may still be starting, a
connection still be closing. So the state is asked until nothing is wrong with it, or for too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence

import psutil

from tests.e2e.chaos_clients import MAX_BODY_BYTES, RECEIVE_S
from tests.e2e.chaos_schedule import Deed
from tests.e2e.server import QUEUED, RECEIVING, RUNNING, Server, alive

SETTLE_S = 120.0
"""Generous: a worker that died again and again is started after half a minute at most."""

PATIENCE_S, LOOK_S = 2.0, 0.02
"""How long who wants to harm a worker waits for one that is there."""

MORE_FDS = 4
"""Descriptors that may be open for the moment: a worker that is being started, a scrape."""

MORE_RSS_BYTES = 16 * 2**20
"""Growth of the front that proves nothing. What a round really takes is the allocator's: a few
megabytes of fragments of the largest bodies at once (a burst of 64 KiB each), which a second round
uses again. A leak of one request's objects (2 KiB) shows from eight thousand requests on, one of
a connection's (10 KiB) or of a worker's pipe and buffers (64 KiB and more) long before."""

GAUGES = ("seawall_queue_depth", RECEIVING, QUEUED, RUNNING)

FLAGS = (
    "--rehearsal", "--queue-limit", "16", "--receive-timeout-ms", str(round(RECEIVE_S * 1000)),
    "--max-body-bytes", str(MAX_BODY_BYTES), "--breaker-failures", "1",
    "--breaker-probe-ms", "100", "--restart-limit", "1000", "--restart-window-s", "300",
    "--drain-timeout-ms", "3000",
)  # fmt: skip
"""Small, so that things happen; deaths alone do not end the process."""

SYNTHETIC = (
    *FLAGS, "--model", "synthetic:cpu", "--deadline-ms", "3000", "--watchdog-ms", "600",
    "--load-timeout-s", "20",
)  # fmt: skip

PACKAGED = (*FLAGS, "--deadline-ms", "5000", "--watchdog-ms", "2000", "--load-timeout-s", "60")


class Saboteur:
    """Does to workers what a schedule says.

    Args:
        server: whose workers.

    Attributes:
        done: what was done, and what came too late or too early.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.done: Counter[str] = Counter()

    async def act(self, deed: Deed) -> None:
        """Do it."""
        if deed.what == "terminate":
            self._server.terminate()
            return
        pid = await self._wait_for(deed.args["worker"], ready=deed.what == "stop")
        if pid is None:
            self.done[f"{deed.what} of nobody"] += 1
        elif deed.what == "kill":
            os.kill(pid, signal.SIGKILL)
            self.done["kill"] += 1
        else:
            os.kill(pid, signal.SIGSTOP)
            resume_ms = deed.args["resume_ms"]
            self.done["stop and resume" if resume_ms else "stop"] += 1
            if resume_ms:
                await asyncio.sleep(resume_ms / 1000)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    async def _wait_for(self, worker: int, *, ready: bool) -> int | None:
        """The worker of that place, once there is one."""
        for _ in range(round(PATIENCE_S / LOOK_S)):
            if (pid := self._pid(worker, ready=ready)) is not None:
                return pid
            await asyncio.sleep(LOOK_S)
        return None

    def _pid(self, worker: int, *, ready: bool) -> int | None:
        """The worker of that place, if there is one now.

        Only a ready one is stopped for good: a start that stands still costs the load time-out.
        """
        pids = [line["pid"] for line in self._server.events("worker.started", worker=worker)]
        if not pids or (ready and not self._server.event("worker.ready", pid=pids[-1])):
            return None
        try:
            process = psutil.Process(pids[-1])
            ours = process.ppid() == self._server.pid
            return pids[-1] if ours and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def state_faults(server: Server, workers: int, fds: int) -> list[str]:
    """What is not as it is in a server where nothing has ever happened."""
    if server.dead:
        return [f"the server has ended with {server.process.poll()}"]
    values = server.scrape()
    faults = [f"{gauge} is {values[gauge]:.0f}" for gauge in GAUGES if values[gauge]]
    if values["seawall_connections"] != 1:
        faults.append(f"{values['seawall_connections']:.0f} connections, one is asking")
    if values["seawall_log_lines_dropped_total"]:
        faults.append("log lines were dropped")
    faults += _sums_faults(server, values, workers)
    if server.get("/livez").status_code != 200:
        faults.append("not alive")
    if server.get("/readyz").status_code != 200 or values["seawall_ready"] != 1:
        faults.append(f"not ready: {server.status()['reason']}")
    if server.breaker != "closed":
        faults.append(f"the breaker is {server.breaker}")
    children = server.children()
    states = Counter(child.status() for child in children if child.is_running())
    if states.total() != workers or {psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED} & set(states):
        faults.append(f"{workers} workers wanted, there are {dict(states)}")
    now_fds = psutil.Process(server.pid).num_fds()
    if now_fds > fds + MORE_FDS:
        faults.append(f"{now_fds} descriptors, there were {fds}")
    return faults


def _sums_faults(server: Server, values: dict[str, float], workers: int) -> list[str]:
    """Numbers that are counted in two places."""

    def total(name: str) -> float:
        return sum(value for series, value in values.items() if series.startswith(f"{name}{{"))

    outcome = 'seawall_requests_total{{outcome="{}"}}'
    lost = len(list(server.events("worker.lost")))
    started = len(list(server.events("worker.started")))
    pairs = {
        "requests and durations": (
            total("seawall_requests_total"),
            total("seawall_request_duration_seconds_count"),
        ),
        "gone and gone by stage": (
            values[outcome.format("client_gone")],
            total("seawall_client_gone_total"),
        ),
        "late and late by stage": (
            values[outcome.format("deadline_exceeded")],
            total("seawall_deadline_exceeded_total"),
        ),
        "restarts and lost workers": (total("seawall_worker_restarts_total"), lost),
        "started and lost workers": (started, lost + workers),
    }
    return [
        f"{name} do not agree: {one:.0f}, {other:.0f}"
        for name, (one, other) in pairs.items()
        if one != other
    ]


def growth_faults(rss_bytes: Sequence[int]) -> list[str]:
    """Whether the front is larger than after its first round, which warmed it up."""
    growth = rss_bytes[-1] - rss_bytes[0] if rss_bytes else 0
    return [f"the front grew by {growth} bytes: {rss_bytes}"] if growth > MORE_RSS_BYTES else []


def until_right(faults: Callable[[], list[str]], limit_s: float = SETTLE_S) -> list[str]:
    """Ask until nothing is wrong; what is still wrong after so long is."""
    end = time.monotonic() + limit_s
    while (found := faults()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def left_behind(server: Server) -> list[str]:
    """Workers that are still there although their server is not."""
    pids = [line["pid"] for line in server.events("worker.started")]
    return [f"worker {pid} outlives the server" for pid in pids if alive(pid)]
