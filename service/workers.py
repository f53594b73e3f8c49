"""The two halves of the wall between dispatcher and supervisor: what each may ask of the other.

``dispatcher`` and ``http`` see a :class:`Worker`, never the supervisor, so that a scripted worker
in virtual time, a stub process and a real one are the same to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from service.worker.wire import Facts, FromWorker, WireItem


class WorkerState(StrEnum):
    """Where one worker process is (the values of the ``state`` label)."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


class Loss(StrEnum):
    """Why a worker was lost (the values of the ``reason`` label)."""

    CRASHED = "crashed"
    HUNG = "hung"
    OOM_KILLED = "oom_killed"
    DEVICE_LOST = "device_lost"
    PROBE_FAILED = "probe_failed"


class Worker(Protocol):
    """One worker process, as the dispatcher sees it. All calls return at once."""

    @property
    def index(self) -> int:
        """Its place in the pool, the ``worker`` label."""
        ...

    @property
    def state(self) -> WorkerState:
        """Where it is now."""
        ...

    @property
    def facts(self) -> Facts | None:
        """What it knows of its model; ``None`` unless READY."""
        ...

    @property
    def pid(self) -> int | None:
        """Its process id, ``None`` while there is none."""
        ...

    def start(self) -> None:
        """Start the process and load the model."""
        ...

    def prepare(self, item: WireItem) -> None:
        """Have one item tokenised; the answer is a Prepared or Unfit frame."""
        ...

    def run(self, batch: int, items: Sequence[WireItem]) -> None:
        """Run a batch; the answer is a Result or Fault frame, or the worker's loss."""
        ...

    def probe(self, probe: int) -> None:
        """Run the canary; the answer is a Probed frame."""
        ...

    def drop(self, ids: Sequence[int]) -> None:
        """Forget prepared items."""
        ...

    def kill(self, reason: Loss) -> None:
        """End the process now; its loss is reported and it is restarted with back-off."""
        ...

    async def stop(self) -> None:
        """End the process for good, within seconds; nothing is reported any more."""
        ...


class WorkerEvents(Protocol):
    """What a worker tells the dispatcher, always on the event loop's thread."""

    def received(self, worker: Worker, frame: FromWorker) -> None:
        """A frame arrived. For Ready the worker's state and facts are set before."""
        ...

    def lost(self, worker: Worker, reason: Loss, *, evidence: bool) -> None:
        """The process is gone; it restarts by itself.

        ``evidence``: what it ran may have killed it. A SIGKILL that nobody here sent and that the
        kernel's counter of memory kills does not explain is none.
        """
        ...


WorkerFactory = Callable[[int, WorkerEvents], Worker]
"""Makes the worker with that index."""
