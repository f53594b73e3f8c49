"""The command: prints settings, what they serve, what it costs, and every warning."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable

from service import NAME
from service.check import words
from service.settings import Loaded
from service.settings.sources import value_text
from service.settings.together import loaded_warnings, warnings
from service.tasks import task_named

OK = 0


def check(loaded: Loaded, *, try_model: bool) -> int:
    """Print it.

    Args:
        loaded: the settings with their origins.
        try_model: whether a worker shall load the model and measure it.

    Returns:
        The exit code.
    """
    settings = loaded.settings
    print("Settings in force:")
    for name, value in {**settings.public(), "model": settings.model}.items():
        shown = value_text(value) or "none"
        print(f"  {name:20} {shown:24} {loaded.origins.get(name, 'default')}")
    for line in warnings(settings):
        print(f"Warning: {line}")
    _table("Would be served", words.serving(settings))
    if not try_model:
        _table("Limits", words.limits_before(settings))
        return OK
    print(f"Loading the model, at most {settings.load_timeout_s} s ...", flush=True)
    from service.check.trial import try_model as run

    facts, code, reason = asyncio.run(run(settings))
    if facts is None:
        print(f"{NAME}: {reason}", file=sys.stderr)
        return code
    _table("The model works", words.found(settings, facts))
    _table("Cost", words.costs(facts, task_named(settings.task).unit))
    _table("Limits", words.limits(settings, facts))
    for line in loaded_warnings(settings, facts):
        print(f"Warning: {line}")
    return OK


def _table(title: str, rows: Iterable[words.Row]) -> None:
    print(f"{title}:")
    for name, text in rows:
        print(f"  {name:20} {text}")
