"""The one pipe: from an event and its fields to a line.

A line is plain values only, and short strings of printable characters: what a client sent cannot
start a line, colour a terminal or choose a key. Each request writes one, so its price counts: the
usual types take a short way, and the logger is bound once and not at each call.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Protocol, cast

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from service.logs.library import everything_through
from service.logs.writer import LineWriter
from service.traces import error_fields

MOST_CHARS = 500
"""Of one string value; paths and sentences of ours are shorter."""

MOST_ENTRIES = 100
MOST_DEPTH = 12
"""Of nested values: a cause of a cause of a group's member is deep."""

FIRST = ("timestamp", "level", "event")


class LogSettings(Protocol):
    """The two settings that matter here."""

    @property
    def log_level(self) -> str:
        """``debug``, ``info``, ``warning`` or ``error``."""
        ...

    @property
    def log_format(self) -> str:
        """``auto`` (JSON unless on a terminal), ``json`` or ``console``."""
        ...


class _Sink:
    """What structlog calls with a finished line, whatever the level."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer

    def msg(self, line: str | bytes) -> None:
        self._writer.put((line if isinstance(line, bytes) else line.encode()) + b"\n")

    debug = info = warning = error = critical = msg


class _Log:
    """The logger in force, whoever asked for it and when."""

    def __init__(self) -> None:
        self.bound = structlog.get_logger()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return cast("Callable[..., None]", getattr(self.bound, name))


_log = _Log()
_undo = ExitStack()


def get_log() -> FilteringBoundLogger:
    """The log. An event is a dotted name; everything else is a field: ``log.info("a.b", n=1)``.

    May be kept: it follows each :func:`configure`.
    """
    return cast("FilteringBoundLogger", _log)


def configure(settings: LogSettings, on_drop: Callable[[int], None], *, fd: int = 1) -> None:
    """Send everything that logs through one pipe to ``fd``, standard output.

    Args:
        settings: level and format.
        on_drop: told how many lines were lost; called on any thread.
        fd: the file descriptor that lines go to.
    """
    shutdown()
    writer = LineWriter(fd, on_drop)
    _undo.callback(writer.close)
    structlog.configure(
        processors=_processors(settings.log_format, terminal=os.isatty(fd)),
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[settings.log_level.upper()]
        ),
        logger_factory=lambda *_: _Sink(writer),
        cache_logger_on_first_use=False,
    )
    _log.bound = structlog.get_logger().bind()
    _undo.enter_context(everything_through(get_log()))
    atexit.register(shutdown)
    _undo.callback(atexit.unregister, shutdown)


def shutdown() -> None:
    """Write what is queued, for a second at most, and let go of loggers and hooks.

    Later events are lost. Does nothing where nothing is set up.
    """
    _undo.close()


def _processors(form: str, *, terminal: bool) -> list[Processor]:
    console = form == "console" or (form == "auto" and terminal)
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _describe_error,
        _make_plain,
        structlog.dev.ConsoleRenderer(colors=terminal) if console else _to_json,
    ]


def _describe_error(_log: object, _method: str, event: EventDict) -> EventDict:
    """``exc_info`` (from ``log.exception`` as well) becomes class and frames."""
    info = event.pop("exc_info", None)
    event.pop("stack_info", None)
    if info is True:
        info = sys.exc_info()
    error = info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event.update(error_fields(error))
    return event


def _make_plain(_log: object, _method: str, event: EventDict) -> EventDict:
    """Plain, bounded values; time, level and name first."""
    plain = {key: event.pop(key) for key in FIRST if key in event}
    plain.update(event)
    for key, value in plain.items():
        kind = type(value)
        if kind is str:
            if len(value) > MOST_CHARS or not value.isprintable():
                plain[key] = _text(value)
        elif kind is not int:
            plain[key] = _plain(value)
    return plain


def _plain(value: object, depth: int = 0) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return _text(value)
    if depth < MOST_DEPTH:
        if isinstance(value, Mapping):
            pairs = list(value.items())[:MOST_ENTRIES]
            return {_text(str(key)): _plain(one, depth + 1) for key, one in pairs}
        if isinstance(value, list | tuple):
            return [_plain(one, depth + 1) for one in value[:MOST_ENTRIES]]
    return type(value).__name__  # its repr could hold anything


def _text(value: str) -> str:
    value = str(value[:MOST_CHARS])
    if value.isprintable():
        return value
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in value)


_json = msgspec.json.Encoder()


def _to_json(_log: object, _method: str, event: EventDict) -> bytes:
    return _json.encode(event)
