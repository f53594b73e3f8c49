"""The process: bind first, then serve; own signals, own drain, own exit codes.

======  =========================================================
 code    when
======  =========================================================
 0       stopped as asked, by a signal too, also while loading
 2       bad configuration, or an address that cannot be bound
 3       the model cannot be loaded
 4       crash loop: workers died again and again
======  =========================================================

Laws
- The address is bound before anything is loaded: a conflict shows within a second, not after
  minutes.
- The first signal starts the drain: not ready at once, serving for ``drain_delay_ms``, then new
  predictions get 503 ``draining`` while what is inside finishes, at most ``drain_timeout_ms``.
  A second signal skips the delay. While the model loads there is nothing to wait for.
- uvicorn's own signal handling is off: it would close the listener at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Generator
from pathlib import Path

import uvicorn
import uvloop

from service import NAME, __version__
from service.app import App, create_app
from service.core.admission import RETRY_LEAST_S
from service.core.errors import problem
from service.http import Door
from service.http.protocol import make_protocol
from service.logs import configure, get_log, shutdown
from service.settings import Address, Settings, is_open

EXIT_OK = 0
EXIT_CONFIG = 2

BACKLOG = 2048
CLOSE_S = 3
"""How long a connection may take to close after its last answer."""

SOCKET_MODE = 0o660
"""A unix socket is for the owner and the group (a proxy), nobody else."""


class BindError(Exception):
    """The address cannot be had; the message names it and says what to do."""


def bind(address: Address) -> socket.socket:
    """A listening socket on ``address``.

    Raises:
        BindError: in use, not ours, or not permitted.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with contextlib.ExitStack() as undo:
        try:
            if address.is_unix:
                listener = undo.enter_context(socket.socket(socket.AF_UNIX))
                _bind_unix(listener, Path(address.path))
            else:
                listener = undo.enter_context(socket.socket(family))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((address.host, address.port))
            listener.listen(BACKLOG)
        except OSError as error:
            # A name that cannot be looked up has a code of its own that strerror does not know.
            known = error.errno if error.errno in errno.errorcode else None
            reason = "no such host" if known is None else os.strerror(known).lower()
            raise BindError(
                f"cannot listen on {address}: {reason}; choose another address with --bind"
            ) from None
        undo.pop_all()
    return listener


def _bind_unix(listener: socket.socket, path: Path) -> None:
    if path.is_socket() and not _answers(path):
        path.unlink()  # left behind by a process that was killed
    listener.bind(str(path))
    path.chmod(SOCKET_MODE)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def printed(listener: socket.socket) -> str:
    """The address that a listener really has (port 0 picks one)."""
    name = listener.getsockname()
    if isinstance(name, str):
        return f"unix:{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class Process:
    """The running server.

    Args:
        settings: the settings in force.
        listener: the bound socket.
        metrics_listener: the second one, if metrics have their own address.
    """

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        metrics_listener: socket.socket | None = None,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._metrics_listener = metrics_listener
        self._app: App = create_app(settings)
        self._app.on_fatal = self._fatal
        self._code = EXIT_OK
        self._signals = 0
        self._hurry = asyncio.Event()
        self._drain: asyncio.Task[None] | None = None
        self._server = _Uvicorn(self._config(self._app, lifespan="on", door=self._app.door))
        self._metrics_server = _Uvicorn(self._config(self._app.metrics_app, lifespan="off"))

    def _config(self, app: object, *, lifespan: str, door: Door | None = None) -> uvicorn.Config:
        return uvicorn.Config(
            app,  # type: ignore[arg-type]  # uvicorn's own ASGI types are stricter than ASGI
            http=make_protocol(self._settings, self._app.metrics, door),
            ws="none",
            loop="none",
            lifespan=lifespan,  # type: ignore[arg-type]
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=self._settings.keep_alive_s,
            timeout_graceful_shutdown=CLOSE_S,
            backlog=BACKLOG,
            reset_contextvars=True,
        )

    async def run(self) -> int:
        """Serve until told to stop; returns the exit code."""
        configure(self._settings, self._app.metrics.log_lines_dropped)
        gc.freeze()  # imports and tables live for ever: no collection need walk them again
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signal)
        get_log().info(
            "server.started",
            address=printed(self._listener),
            pid=os.getpid(),
            version=__version__,
            model=self._settings.model_name,
            task=self._settings.task,
        )
        if self._settings.rehearsal:
            get_log().warning("server.rehearsal")
        if is_open(self._settings):
            get_log().warning("server.open")
        metrics = None
        if self._metrics_listener is not None:
            metrics = loop.create_task(self._metrics_server.serve([self._metrics_listener]))
        await self._server.serve([self._listener])
        if metrics is not None:
            self._metrics_server.should_exit = True
            await metrics
        get_log().info("server.stopped", exit_code=self._code)
        shutdown()
        return self._code

    def _signal(self) -> None:
        self._signals += 1
        if self._signals > 1:
            self._hurry.set()
        elif self._drain is None:
            self._drain = asyncio.get_running_loop().create_task(self._stop())

    async def _stop(self) -> None:
        dispatcher = self._app.dispatcher
        get_log().info("server.draining", open_requests=len(dispatcher.tickets))
        self._app.context.closing = True
        dispatcher.start_drain()
        if dispatcher.ever_ready:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._settings.drain_delay_ms / 1000)
        dispatcher.stop_admitting()
        if dispatcher.ever_ready:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    dispatcher.answered(), self._settings.drain_timeout_ms / 1000
                )
        dispatcher.refuse_all(problem("draining", retry_after_s=RETRY_LEAST_S))
        self._server.should_exit = True

    def _fatal(self, code: int) -> None:
        if self._drain is None:
            self._code = code
            self._server.should_exit = True


def raise_file_limit() -> int:
    """Raise the limit of open files to what is allowed; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def serve(settings: Settings) -> int:
    """Run the server in this process until it is told to stop.

    Returns:
        The exit code: see the table in the module's docstring.
    """
    raise_file_limit()
    listeners: list[socket.socket] = []
    try:
        listeners.append(bind(settings.address))
        if settings.metrics_address is not None:
            listeners.append(bind(settings.metrics_address))
    except BindError as error:
        for listener in listeners:
            listener.close()
        sys.stderr.write(f"{NAME}: {error}\n")
        return EXIT_CONFIG

    async def main() -> int:
        return await Process(settings, *listeners).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(main())
    if settings.address.is_unix:
        Path(settings.address.path).unlink(missing_ok=True)
    return code
