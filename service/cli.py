"""The command line: serve (the default), check, status, bench.

Laws
- Exit codes of ``serve``: 0 stopped as asked, 2 bad configuration or an address that cannot be
  bound, 3 the model cannot be loaded, 4 crash loop; 1 is a bug. ``check`` has 0, 2 and 3 with the
  same meaning. ``status``: 0 ready, 1 not ready or not reachable. ``bench`` has its own table.
- What is wrong with the configuration goes to stderr, one line a fault, without a traceback.
- Each command imports what it needs: version, help and check cost no server.
"""

from __future__ import annotations

import difflib
import http.client
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from service import NAME, __version__

OK, NOT_READY, BAD_CONFIGURATION, INTERRUPTED = 0, 1, 2, 130

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
    """Print the settings in force, what would be served with them, and every warning."""
    from service.settings import SettingsError, help_text, load

    if _asks_help(args):
        print(help_text("check [--load]"), end="")
        return OK
    try:
        loaded = load([word for word in args if word != "--load"], os.environ)
    except SettingsError as error:
        return _refuse(error.lines)
    from service.check.command import check as run

    return run(loaded, try_model="--load" in args)


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
    "check": (check, "print the settings in force and what they serve; --load tries the model"),
    "status": (status, f"ask a running server, by default {DEFAULT_URL}; exit 0 ready, 1 not"),
    "bench": (bench, f"load a running server and report; '{NAME} bench --help' tells how"),
}
"""Every command: what it does, and its line of help."""
