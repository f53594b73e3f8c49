"""Seawall: a resilient HTTP server for Hugging Face Transformers pipelines.

The map of the house (who may know what is checked by import-linter):

- ``core``        plain objects that decide everything; no I/O, no clock: ``now`` is an argument
- ``tasks``       what each pipeline task takes and returns; one entry for each task
- ``worker``      the process that owns the model; only ``runner`` and ``pipelines`` know torch
- ``supervisor``  one worker process: start, feed, watch, kill, restart
- ``dispatcher``  where asyncio, time and core meet
- ``http``        protocol, gate, predict, pages, problems
- ``app``         composition root (``create_app``); ``server`` is the process round it
- ``settings``, ``metrics``, ``logs``  every setting, metric and log event, once
- ``bench``       the load generator behind ``seawall bench``; knows a server by HTTP alone

Public API: :func:`create_app` and :class:`Settings`, imported lazily so that looking at the
version costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.app import create_app
    from service.settings import Settings

NAME = "seawall"
"""The one constant behind the command's name and every prefix."""

ENV_PREFIX = f"{NAME.upper()}_"
METRIC_PREFIX = f"{NAME}_"

__version__ = "0.1.0"
__all__ = ["ENV_PREFIX", "METRIC_PREFIX", "NAME", "Settings", "__version__", "create_app"]


def __getattr__(name: str) -> object:
    if name == "create_app":
        from service.app import create_app

        return create_app
    if name == "Settings":
        from service.settings import Settings

        return Settings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
