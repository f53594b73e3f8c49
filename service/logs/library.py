"""What is not ours but must go the same way: libraries' loggers, warnings, uncaught exceptions.

Libraries quote inputs in their messages, so no message passes: a line says which logger, which
level and which place in its source, and for an exception its class and frames.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import structlog
from structlog.typing import FilteringBoundLogger

from service.traces import error_fields, place

LEAST_LEVEL = logging.WARNING
SILENT = ("uvicorn.access",)
"""Loggers that say again what request.done says."""


class PipeHandler(logging.Handler):
    """Turns a library's record into a ``library.message`` event."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__(LEAST_LEVEL)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Log where the record came from; its text is never formatted."""
        error = record.exc_info[1] if record.exc_info else None
        write = self._log.warning if record.levelno < logging.ERROR else self._log.error
        write(
            "library.message",
            logger=record.name,
            place=f"{place(record.pathname)}:{record.lineno}",
            **(error_fields(error) if error is not None else {}),
        )


@contextmanager
def everything_through(log: FilteringBoundLogger) -> Iterator[None]:
    """Send loggers, warnings and uncaught exceptions through ``log``; undone at the end."""
    with _loggers(log), _hooks(log):
        logging.captureWarnings(True)  # noqa: FBT003 - the library's signature
        try:
            yield
        finally:
            logging.captureWarnings(False)  # noqa: FBT003


def loop_exception_handler(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG001 - asyncio's signature
    """For ``loop.set_exception_handler``: class and frames, not asyncio's text with its reprs."""
    log: FilteringBoundLogger = structlog.get_logger()
    error = context.get("exception")
    if isinstance(error, ConnectionError):
        log.debug("library.message", logger="asyncio", **error_fields(error))
    elif error is None:
        log.error("library.message", logger="asyncio")
    else:
        log.error("internal.error", where="loop", **error_fields(error))


@contextmanager
def _loggers(log: FilteringBoundLogger) -> Iterator[None]:
    root = logging.getLogger()
    others = [one for one in root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    before = [(one, one.handlers[:], one.level, one.propagate) for one in (root, *others)]
    silent = [(logging.getLogger(name), logging.getLogger(name).disabled) for name in SILENT]
    raised = logging.raiseExceptions
    root.handlers[:] = [PipeHandler(log)]
    root.setLevel(LEAST_LEVEL)
    for one in others:
        one.handlers[:] = []
        one.propagate = True
    for one, _ in silent:
        one.disabled = True
    logging.raiseExceptions = False  # a broken record must not print its arguments
    try:
        yield
    finally:
        logging.raiseExceptions = raised
        for one, disabled in silent:
            one.disabled = disabled
        for one, handlers, level, propagate in before:
            one.handlers[:] = handlers
            one.setLevel(level)
            one.propagate = propagate


@contextmanager
def _hooks(log: FilteringBoundLogger) -> Iterator[None]:
    def main(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        else:
            log.critical("internal.error", where="main", **error_fields(error))

    def thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            log.error("internal.error", where="thread", **error_fields(args.exc_value))

    def unraisable(args: sys.UnraisableHookArgs) -> None:
        if args.exc_value is not None:
            log.error("internal.error", where="destructor", **error_fields(args.exc_value))

    before = sys.excepthook, threading.excepthook, sys.unraisablehook
    sys.excepthook, threading.excepthook, sys.unraisablehook = main, thread, unraisable
    try:
        yield
    finally:
        sys.excepthook, threading.excepthook, sys.unraisablehook = before
