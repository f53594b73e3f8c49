"""The command line: serve (the default), check, status, bench.

Laws
- Exit codes of ``serve``: 0 stopped as asked, 2 bad configuration or an address that cannot be
  bound, 3 the model cannot be loaded, 4 crash loop; 1 is a bug. ``check`` has 0, 2 and 3 with the
  same meaning. ``status``: 0 ready, 1 not ready or not reachable. ``bench`` has its own table.
- What is wrong with the configuration goes to stderr, one line a fault, without a traceback.
- Each command imports what it needs: version, help and check cost no server.
"""

from __future__ import annotations

import asyncio
import difflib
import http.client
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from service import NAME, __version__

if TYPE_CHECKING:  # loaded by the commands that need them
    from service.settings import Settings
    from service.worker.wire import Facts, FromWorker
    from service.workers import Loss, Worker

OK, NOT_READY, BAD_CONFIGURATION, CANNOT_LOAD, INTERRUPTED = 0, 1, 2, 3, 130

DEFAULT_URL = "http://127.0.0.1:8000"
STATUS_TIMEOUT_S = 5.0
"""A server that lives answers ``/status`` in milliseconds, whatever its load."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments without the program; ``None``: those of the process.

    Returns:
        The exit code.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if args and args[0] in ("--version", "-V"):
        print(f"{NAME} {__version__}")
        return OK
    if args and args[0] in ("--help", "-h", "help"):
        print(_usage(), end="")
        return OK
    name = args.pop(0) if args and not args[0].startswith("-") else "serve"
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean '{NAME} {near[0]}'?" if near else f"'{NAME} --help' lists them"
        return _refuse([f"no such command: {hint}"])
    try:
        return COMMANDS[name][0](args)
    except KeyboardInterrupt:
        return INTERRUPTED


def _usage() -> str:
    lines = [f"usage: {NAME} [COMMAND] [--SETTING VALUE]...", ""]
    lines += [f"  {name:8}{text}" for name, (_, text) in COMMANDS.items()]
    lines += ["", f"'{NAME} serve --help' lists every setting, '{NAME} --version' the version."]
    return "\n".join(lines) + "\n"


def _refuse(lines: Sequence[str]) -> int:
    for line in lines:
        print(f"{NAME}: {line}", file=sys.stderr)
    return BAD_CONFIGURATION


def _asks_help(args: Sequence[str]) -> bool:
    return not {"--help", "-h"}.isdisjoint(args)


# ---------------------------------------------------------------- serve


def serve(args: Sequence[str]) -> int:
    """Read the settings and serve until asked to stop."""
    from service.settings import SettingsError, help_text, load_settings

    if _asks_help(args):
        print(help_text("serve"), end="")
        return OK
    try:
        settings = load_settings(args, os.environ)
    except SettingsError as error:
        return _refuse(error.lines)
    from service.server import serve as run

    return run(settings)


# ---------------------------------------------------------------- check


def check(args: Sequence[str]) -> int:
    """Print the settings in force with their origins, and every warning."""
    from service.settings import SettingsError, help_text, load
    from service.settings.sources import value_text
    from service.settings.together import loaded_warnings, warnings

    if _asks_help(args):
        print(help_text("check [--load]"), end="")
        return OK
    try:
        loaded = load([word for word in args if word != "--load"], os.environ)
    except SettingsError as error:
        return _refuse(error.lines)
    settings = loaded.settings
    print("Settings in force:")
    for name, value in {**settings.public(), "model": settings.model}.items():
        shown = value_text(value) or "none"
        print(f"  {name:20} {shown:24} {loaded.origins.get(name, 'default')}")
    for line in warnings(settings):
        print(f"Warning: {line}")
    if "--load" not in args:
        return OK
    print(f"Loading the model, at most {settings.load_timeout_s} s ...", flush=True)
    facts, code, reason = asyncio.run(_try_model(settings))
    if facts is None:
        print(f"{NAME}: {reason}", file=sys.stderr)
        return code
    print("The model works:")
    for fact in facts.__struct_fields__:
        print(f"  {fact:20} {_plain(getattr(facts, fact))}")
    for line in loaded_warnings(settings, facts):
        print(f"Warning: {line}")
    return OK


class _FirstWord:
    """Hears a worker until it says whether it can serve."""

    def __init__(self) -> None:
        self.said: asyncio.Future[FromWorker | Loss] = asyncio.get_running_loop().create_future()

    def received(self, worker: Worker, frame: FromWorker) -> None:  # noqa: ARG002
        """READY and FAILED end the wait; nothing else comes before them but samples."""
        from service.worker.wire import Failed, Ready

        if isinstance(frame, Ready | Failed) and not self.said.done():
            self.said.set_result(frame)

    def lost(self, worker: Worker, reason: Loss, *, evidence: bool) -> None:  # noqa: ARG002
        """The process is gone before it said anything."""
        if not self.said.done():
            self.said.set_result(reason)


async def _try_model(settings: Settings) -> tuple[Facts | None, int, str]:
    """Start one real worker and wait for its first word: facts, or exit code and a sentence."""
    from service.logs import configure, shutdown
    from service.supervisor import worker_factory
    from service.worker.wire import Failed, Ready
    from service.workers import Loss

    # what goes wrong in the worker is told on stderr; its ordinary life is no news here
    configure(settings.model_copy(update={"log_level": "error"}), lambda _: None, fd=2)
    hearing = _FirstWord()
    worker = worker_factory(settings)(0, hearing)
    worker.start()
    try:
        said = await hearing.said
    finally:
        await worker.stop()
        shutdown()
    match said:
        case Ready(facts=facts):
            return facts, OK, ""
        case Failed(reason=reason, message=message):
            # a device that is not there is a wrong setting, as for serve
            return None, BAD_CONFIGURATION if reason == "no_device" else CANNOT_LOAD, message
        case Loss.HUNG:
            return None, CANNOT_LOAD, "the model was not ready in time: raise load_timeout_s"
        case _:
            return None, CANNOT_LOAD, f"the worker process ended while loading ({said})"


# ---------------------------------------------------------------- status


def status(args: Sequence[str]) -> int:
    """Ask a running server how it is; print a few lines."""
    if _asks_help(args) or len(args) > 1:
        print(f"usage: {NAME} status [URL]\n\nURL is {DEFAULT_URL} unless given, or unix:PATH")
        return OK if _asks_help(args) else BAD_CONFIGURATION
    url = args[0] if args else DEFAULT_URL
    try:
        ready_code, readiness = _fetch(url, "/readyz")
        status_code, facts = _fetch(url, "/status")
    except ValueError:
        return _refuse([f"the URL must be {DEFAULT_URL} or the like, or unix:PATH"])
    except (OSError, http.client.HTTPException):
        print(f"{NAME}: nothing answers there; is the server running?", file=sys.stderr)
        return NOT_READY
    if status_code != http.client.OK:
        why = {401: "needs an API key", 404: "is not here: see metrics_bind"}.get(status_code)
        facts = {**readiness, "details": f"/status {why or f'answers {status_code}'}"}
    for name in ("state", "ready", "reason", "queue", "breaker", "workers", "details"):
        if name in (facts := {**readiness, **facts}):
            print(f"{name:10} {_plain(facts[name])}")
    elsewhere = ready_code == http.client.NOT_FOUND  # a metrics address has /status alone
    ready = facts.get("ready") is True if elsewhere else ready_code == http.client.OK
    return OK if ready else NOT_READY


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket; the host is its path."""

    def connect(self) -> None:
        """Connect to the path."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)


def _fetch(url: str, path: str) -> tuple[int, dict[str, Any]]:
    """GET, and the JSON object of the answer, empty where it is none.

    Raises:
        ValueError: not a URL of ours.
        OSError, http.client.HTTPException: no answer.
    """
    connection: http.client.HTTPConnection
    headers = {"Accept": "application/json"}
    if url.startswith("unix:"):
        connection = _UnixConnection(url.removeprefix("unix:"), timeout=STATUS_TIMEOUT_S)
        headers["Host"] = "localhost"
    else:
        parts = urlsplit(url)
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        if parts.scheme not in kinds or not parts.hostname:
            raise ValueError("not http")
        connection = kinds[parts.scheme](parts.hostname, parts.port, timeout=STATUS_TIMEOUT_S)
        path = parts.path.rstrip("/") + path
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    return response.status, value if isinstance(value, dict) else {}


def _plain(value: object) -> str:
    """A JSON value in one line, without anything that a terminal would obey."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case dict():
            return ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
        case list() | tuple():
            return "; ".join(_plain(one) for one in value) or "none"
        case _:
            text = "none" if value in (None, "") else str(value)
            return text if text.isprintable() else ascii(text)


# ---------------------------------------------------------------- bench


def bench(args: Sequence[str]) -> int:
    """Load a running server and report."""
    from service.bench.command import bench as run

    return run(args)


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "serve": (serve, "serve the model (the default)"),
    "check": (check, "validate and print the settings in force; --load tries the model"),
    "status": (status, f"ask a running server, by default {DEFAULT_URL}; exit 0 ready, 1 not"),
    "bench": (bench, f"load a running server and report; '{NAME} bench --help' tells how"),
}
"""Every command: what it does, and its line of help."""
