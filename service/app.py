"""The composition root: every room is made here, once, and given what it needs.

:func:`create_app` returns an ASGI application that any ASGI server can run; its lifespan starts the
workers without waiting for them, so the port answers probes from the first second. ``server`` is
the process that Seawall itself runs round it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from service import __version__
from service.core.errors import problem
from service.dispatcher import Dispatcher
from service.http import build_front, build_metrics_app
from service.http.context import HttpContext
from service.logs import get_log, loop_exception_handler
from service.metrics import LoopLag, Metrics
from service.settings import Settings, load_settings
from service.supervisor import worker_count, worker_factory
from service.tasks import task_named
from service.workers import WorkerFactory

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class App:
    """The service as an ASGI application.

    Args:
        settings: the settings in force.
        factory: makes the workers.

    Attributes:
        dispatcher: the service behind the HTTP room.
        context: what the HTTP room works with.
        door: refuses predictions from their heads alone; for ``make_protocol``.
        metrics_app: ``/metrics`` and ``/status`` alone, for a second address.
        on_fatal: called with an exit code when the process should give up; ``server`` sets it.
            Under another ASGI server nobody does: ``/livez`` then fails, and the platform restarts.
    """

    def __init__(self, settings: Settings, factory: WorkerFactory) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.on_fatal: Callable[[int], None] | None = None
        self._factory = factory
        self._lag: asyncio.Task[None] | None = None
        task = task_named(settings.task)
        self.dispatcher = Dispatcher(
            settings=settings,
            task=task,
            metrics=self.metrics,
            clock=time.monotonic,
            on_fatal=self._give_up,
        )
        self.context = HttpContext(
            settings=settings,
            metrics=self.metrics,
            dispatcher=self.dispatcher,
            task=task,
            log=get_log(),
            clock=time.monotonic,
            version=__version__,
        )
        self._http, self.door = build_front(self.context)
        self.metrics_app = build_metrics_app(self.context)
        self.metrics.build_info(
            version=__version__,
            task=settings.task,
            model=settings.model_name,
            device=settings.device,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI call."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def start(self) -> None:
        """Start the workers and return; nothing waits for the model."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(loop_exception_handler)
        self._lag = loop.create_task(LoopLag(self.metrics.loop_lag).run())
        self.dispatcher.start(self._factory, worker_count(self.settings))

    async def stop(self) -> None:
        """End what is left, and the workers."""
        if self._lag is not None:
            self._lag.cancel()
            with suppress(asyncio.CancelledError):
                await self._lag
        await self.dispatcher.stop()
        self.context.shed.tell()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _give_up(self, code: int) -> None:
        self.dispatcher.refuse_all(problem("model_loading"))
        if self.on_fatal is not None:
            self.on_fatal(code)


def create_app(
    settings: Settings | None = None, *, worker_factory: WorkerFactory | None = None
) -> App:
    """Make the application.

    Args:
        settings: the settings; without them they are read from the environment.
        worker_factory: makes the workers; by default real processes that load the model.

    Raises:
        SettingsError: the environment holds a setting that cannot be used.
    """
    if settings is None:
        settings = load_settings([], os.environ)
    return App(settings, worker_factory or _real_workers(settings))


def _real_workers(settings: Settings) -> WorkerFactory:
    return worker_factory(settings)
