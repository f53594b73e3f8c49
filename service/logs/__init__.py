"""Logs: one JSON line for each event, through a pipe that never blocks and never quotes input.

Laws
- Everything goes one way: our events, libraries' loggers, warnings, uncaught exceptions. One
  event, one line, one JSON object, whose keys we chose.
- A library's message is never shown: it may quote input. Its logger, level and place are.
- An exception is shown as class and frames (:func:`error_fields`), never its message.
- Fields are passed with each event; nothing is remembered between events, so one request cannot
  inherit another's.
- A log that nobody reads costs lines, never time; lost lines are counted.
"""

from __future__ import annotations

from service.logs.events import EVENTS
from service.logs.library import loop_exception_handler
from service.logs.setup import LogSettings, configure, get_log, shutdown
from service.logs.writer import LineWriter
from service.traces import error_fields

__all__ = [
    "EVENTS",
    "LineWriter",
    "LogSettings",
    "configure",
    "error_fields",
    "get_log",
    "loop_exception_handler",
    "shutdown",
]
