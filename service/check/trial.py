"""One real worker loads the model and says what it found, as it would for a server."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from service import supervisor
from service.logs import configure, shutdown
from service.settings import Settings
from service.worker.wire import Facts, Failed, FromWorker, Ready
from service.workers import Loss, Worker

BAD_CONFIGURATION, CANNOT_LOAD = 2, 3
"""The exit codes with which ``serve`` would end."""


class Trial(NamedTuple):
    """What came of it: facts, or an exit code and a sentence."""

    facts: Facts | None
    code: int = 0
    reason: str = ""


class _FirstWord:
    """Hears a worker until it says whether it can serve."""

    def __init__(self) -> None:
        self.said: asyncio.Future[FromWorker | Loss] = asyncio.get_running_loop().create_future()

    def received(self, worker: Worker, frame: FromWorker) -> None:  # noqa: ARG002
        """READY and FAILED end the wait; nothing else comes before them but samples."""
        if isinstance(frame, Ready | Failed) and not self.said.done():
            self.said.set_result(frame)

    def lost(self, worker: Worker, reason: Loss, *, evidence: bool) -> None:  # noqa: ARG002
        """The process is gone before it said anything."""
        if not self.said.done():
            self.said.set_result(reason)


async def try_model(settings: Settings) -> Trial:
    """Start one worker and wait for its first word."""
    # what goes wrong in the worker is told on stderr; its ordinary life is no news here
    configure(settings.model_copy(update={"log_level": "error"}), lambda _: None, fd=2)
    hearing = _FirstWord()
    worker = supervisor.worker_factory(settings)(0, hearing)
    worker.start()
    try:
        said = await hearing.said
    finally:
        await worker.stop()
        shutdown()
    match said:
        case Ready(facts=facts):
            return Trial(facts)
        case Failed(reason=reason, message=message):
            # a device that is not there is a wrong setting, as for serve
            return Trial(None, BAD_CONFIGURATION if reason == "no_device" else CANNOT_LOAD, message)
        case Loss.HUNG:
            return Trial(None, CANNOT_LOAD, "the model was not ready in time: raise load_timeout_s")
        case _:
            return Trial(None, CANNOT_LOAD, f"the worker process ended while loading ({said})")
