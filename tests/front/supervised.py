"""The real supervisor over real processes: who hears it, and the loop that it runs on."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self

import structlog

from service.cgroup import Cgroup
from service.supervisor import Orders, Supervisor
from service.supervisor.kills import KernelKills
from service.worker.wire import FromWorker, Load, Ready, Sample, WireItem
from service.workers import Loss, Worker, WorkerState
from tests.tools import ROOT

P = ParamSpec("P")

LONG_S = 60.0
"""Generous: nothing waits so long unless it is broken."""

STUB = (sys.executable, "-P", str(ROOT / "tests" / "worker" / "stub_worker.py"))


def real(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an ``async def`` test on a real loop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        asyncio.run(main())

    return run


def stub(*lives: dict[str, Any], folder: Path | None = None) -> tuple[str, ...]:
    """The command of a stub with this script; one life after another needs a ``folder``."""
    script: dict[str, Any] = lives[0] if lives else {}
    if len(lives) > 1:
        assert folder is not None
        script = {"lives": list(lives), "count": str(folder / "lives")}
    return (*STUB, json.dumps(script))


class FakeKernel(Cgroup):
    """A control group whose memory kills the test counts."""

    def __init__(self) -> None:
        super().__init__()
        self.kills = 0

    def oom_kills(self) -> int:
        return self.kills


class Listener:
    """Hears one supervisor.

    Attributes:
        frames: everything but samples.
        losses: reason and evidence of each loss.
    """

    def __init__(self) -> None:
        self.frames: list[FromWorker] = []
        self.samples = 0
        self.losses: list[tuple[Loss, bool]] = []
        self._changed = asyncio.Event()

    def received(self, worker: Worker, frame: FromWorker) -> None:
        if isinstance(frame, Ready):
            assert worker.state is WorkerState.READY
            assert worker.facts == frame.facts
        if isinstance(frame, Sample):
            self.samples += 1
        else:
            self.frames.append(frame)
        self._changed.set()

    def lost(self, worker: Worker, reason: Loss, *, evidence: bool) -> None:
        assert worker.state is WorkerState.RESTARTING
        assert worker.facts is None
        self.losses.append((reason, evidence))
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; looked at whenever something was heard."""
        async with asyncio.timeout(LONG_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Supervised:
    """One supervisor of a stub, stopped at the end."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self.heard = Listener()
        self.kernel = FakeKernel()
        load = options.pop("load", Load("synthetic:cpu", "synthetic"))
        self.orders = Orders(load)
        self.worker = Supervisor(
            0,
            self.heard,
            orders=self.orders,
            command=command,
            kills=KernelKills(self.kernel),
            load_timeout_s=options.pop("load_timeout_s", LONG_S),
        )
        assert not options
        self._capture = structlog.testing.capture_logs()
        self.log: list[Any] = []
        self.bugs: list[dict[str, Any]] = []

    async def __aenter__(self) -> Self:
        self.log = self._capture.__enter__()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.bugs.append(context))
        self.worker.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            async with asyncio.timeout(LONG_S):
                await self.worker.stop()
        finally:
            self._capture.__exit__(kind, error, at)
        assert not self.bugs
        assert self.worker.pid is None
        assert self.worker.state is WorkerState.STOPPED

    async def when(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so of which nothing is heard."""
        async with asyncio.timeout(LONG_S):
            while not condition():  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.001)

    async def ready(self, times: int = 1) -> None:
        """Wait until it was ready so often."""
        await self.heard.until(lambda: len(self.of(Ready)) >= times)

    async def lost(self, times: int = 1) -> list[tuple[Loss, bool]]:
        """Wait until so many losses were reported; returns them."""
        await self.heard.until(lambda: len(self.heard.losses) >= times)
        return self.heard.losses

    async def answer(self, kind: type[FromWorker]) -> Any:
        """Wait for a frame of that kind; returns the last one."""
        before = len(self.of(kind))
        await self.heard.until(lambda: len(self.of(kind)) > before)
        return self.of(kind)[-1]

    def of(self, kind: type[FromWorker]) -> list[FromWorker]:
        """The frames of one kind."""
        return [frame for frame in self.heard.frames if isinstance(frame, kind)]

    def events(self, name: str) -> list[Any]:
        """The log events of that name."""
        return [event for event in self.log if event["event"] == name]


def items(*texts: str) -> list[WireItem]:
    """Wire items with ids from 1."""
    return [WireItem(number, one) for number, one in enumerate(texts, start=1)]
