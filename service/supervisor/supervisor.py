"""The supervisor of one worker: start, feed, watch, kill, restart.

::

    STARTING ──exec──▶ LOADING ──READY──▶ READY
        ▲                 │                 │
        │ back-off        │ exit, broken,   │ exit, broken, killed
        │                 │ load time-out   │
        └── RESTARTING ◀──┴─────────────────┘        stop() from anywhere: STOPPED
                          FAILED: the model cannot be loaded; whoever hears it
                          gives up, or kills it and so has it restarted

Laws
- Every life ends in exactly one ``lost`` (or in ``stop``), whatever killed it.
- Nothing is heard of a process after its loss was reported.
- A new process starts only when the old one is gone, after a back-off of 0.5 to 30 s that a good
  batch resets.
- Starting and stopping never block the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial

from service.core.lifecycle import backoff_s
from service.logs import get_log
from service.settings import Settings
from service.supervisor.kills import KernelKills
from service.supervisor.orders import Orders, first_load
from service.supervisor.process import WorkerProcess, environment
from service.worker.wire import (
    Drop,
    Facts,
    Failed,
    FromWorker,
    Load,
    Prepare,
    Probe,
    Ready,
    Result,
    Run,
    WireItem,
)
from service.workers import Loss, Worker, WorkerEvents, WorkerFactory, WorkerState

COMMAND = (sys.executable, "-P", "-m", "service.worker")

STOP_S = 2.0
"""How long a worker may take to end by itself when its socket closes."""


class Supervisor:
    """One worker process after another, behind the ``Worker`` protocol.

    Args:
        index: its place in the pool.
        events: who hears of frames and losses.
        orders: what to load; shared by all workers.
        load_timeout_s: longest time from start to READY.
        command: the process to run (its socket and our process id are added).
        kills: to tell the kernel's memory kills from others; shared by all workers.
    """

    def __init__(
        self,
        index: int,
        events: WorkerEvents,
        *,
        orders: Orders,
        load_timeout_s: float,
        command: Sequence[str] = COMMAND,
        kills: KernelKills | None = None,
    ) -> None:
        self.index = index
        self.state = WorkerState.STARTING
        self.facts: Facts | None = None
        self._events = events
        self._orders = orders
        self._load_timeout_s = load_timeout_s
        self._command = tuple(command)
        self._kills = kills or KernelKills()
        self._process: WorkerProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deaths = 0

    @property
    def pid(self) -> int | None:
        """The process id, ``None`` while there is none."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process and load the model."""
        self._task = asyncio.get_running_loop().create_task(self._start(None))

    def prepare(self, item: WireItem) -> None:
        """Have one item tokenised."""
        self._send(Prepare(item))

    def run(self, batch: int, items: Sequence[WireItem]) -> None:
        """Run a batch."""
        self._send(Run(batch, list(items)))

    def probe(self, probe: int) -> None:
        """Run the canary."""
        self._send(Probe(probe))

    def drop(self, ids: Sequence[int]) -> None:
        """Forget prepared items."""
        self._send(Drop(list(ids)))

    def kill(self, reason: Loss) -> None:
        """End the process now; its loss is reported in the next step of the loop."""
        process = self._process
        if process is None or self.state in (WorkerState.RESTARTING, WorkerState.STOPPED):
            return
        process.kill()
        self._leave()
        loop = asyncio.get_running_loop()
        evidence = reason is not Loss.PROBE_FAILED
        loop.call_soon(partial(self._report, reason, evidence=evidence))

    async def stop(self) -> None:
        """End the process for good."""
        self.state = WorkerState.STOPPED
        self._cancel()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        process = self._process
        if process is None or process.pid is None:
            return
        process.close()
        try:
            await asyncio.wait_for(process.exited.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            await process.exited.wait()

    # ------------------------------------------------------------------ one life

    async def _start(self, before: WorkerProcess | None) -> None:
        if before is not None:
            await before.exited.wait()
            await asyncio.sleep(backoff_s(self._deaths))
        self.state = WorkerState.STARTING
        process = WorkerProcess(self.index, self._frame, self._broken, self._exited)
        self._process = process
        try:
            await process.start(self._command, self._environment())
        except OSError as error:
            get_log().error("worker.start_failed", worker=self.index, errno=error.errno)
            process.exited.set()
            self._lose(Loss.CRASHED, evidence=False)
            return
        get_log().info("worker.started", worker=self.index, pid=process.pid)
        if self._process is process and self.state is WorkerState.STARTING:
            self.state = WorkerState.LOADING
            self._timer = asyncio.get_running_loop().call_later(
                self._load_timeout_s, self.kill, Loss.HUNG
            )
            self._send(self._orders.load)

    def _environment(self) -> dict[str, str]:
        model = self._orders.load.model
        hub = not model.startswith(("/", "synthetic:"))
        return environment(os.environ, self._orders.load.torch_threads, hub=hub)

    def _frame(self, frame: FromWorker) -> None:
        if isinstance(frame, Ready):
            if self.state is not WorkerState.LOADING:
                self._broken()
                return
            self._cancel()
            self.facts = frame.facts
            self._orders.settle(frame.facts)
            self._kills.forget()
            self.state = WorkerState.READY
        elif isinstance(frame, Failed):
            self._cancel()
            self.state = WorkerState.FAILED
        elif isinstance(frame, Result):
            self._deaths = 0
        self._events.received(self, frame)

    def _broken(self) -> None:
        get_log().error("worker.broken", worker=self.index)
        self.kill(Loss.CRASHED)

    def _exited(self, code: int) -> None:
        if self.state in (WorkerState.RESTARTING, WorkerState.STOPPED, WorkerState.FAILED):
            return  # reported already, or asked for
        if code == -signal.SIGKILL:
            by_kernel = self._kills.claim()
            reason, evidence = (Loss.OOM_KILLED, True) if by_kernel else (Loss.CRASHED, False)
        else:
            reason, evidence = Loss.CRASHED, True
        get_log().warning("worker.exited", worker=self.index, code=code)
        self._lose(reason, evidence=evidence)

    def _lose(self, reason: Loss, *, evidence: bool) -> None:
        self._leave()
        self._report(reason, evidence=evidence)

    def _leave(self) -> None:
        self._cancel()
        self.state = WorkerState.RESTARTING
        self.facts = None
        self._deaths += 1

    def _report(self, reason: Loss, *, evidence: bool) -> None:
        if self.state is WorkerState.STOPPED:
            return
        before = self._process
        self._task = asyncio.get_running_loop().create_task(self._start(before))
        get_log().warning("worker.restarting", worker=self.index, backoff_s=backoff_s(self._deaths))
        self._events.lost(self, reason, evidence=evidence)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self, frame: Load | Prepare | Run | Probe | Drop) -> None:
        if self._process is not None:
            self._process.send(frame)


def worker_factory(settings: Settings, command: Sequence[str] = COMMAND) -> WorkerFactory:
    """A factory of real worker processes for these settings."""
    orders, kills = Orders(first_load(settings)), KernelKills()

    def make(index: int, events: WorkerEvents) -> Worker:
        return Supervisor(
            index,
            events,
            orders=orders,
            kills=kills,
            load_timeout_s=float(settings.load_timeout_s),
            command=command,
        )

    return make
