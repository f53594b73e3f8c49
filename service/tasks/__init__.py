"""What each pipeline task takes and returns; one entry for each task, in one file.

Both sides import this room: the front validates requests with it, the worker finds the task's
example and canary in it and runs the stock pipeline as it says. It knows neither torch nor HTTP.

A module of this room that has a ``TASK`` is a task; nothing else names it. Tasks that transformers
offers and that are not served stand in ``reasons``; whatever is newer than both may be tried as
``generic:NAME``.
"""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules

from service.tasks.base import Task
from service.tasks.generic import PREFIX, generic
from service.tasks.reasons import REASONS


def _entries() -> dict[str, Task]:
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    tasks = [task for module in modules if isinstance(task := getattr(module, "TASK", None), Task)]
    return {task.name: task for task in tasks}


TASKS: dict[str, Task] = _entries()
"""Every task that has an entry, by its transformers name."""

ALIASES: dict[str, str] = {alias: task.name for task in TASKS.values() for alias in task.aliases}
"""Other names of tasks."""

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+){0,8}")


def is_generic(name: str) -> bool:
    """Whether it asks for a task without an entry; what has one, or a reason, is not asked so."""
    task = name.removeprefix(PREFIX)
    if not name.startswith(PREFIX) or not _NAME.fullmatch(task):
        return False
    return task not in TASKS and task not in ALIASES and task not in REASONS


def task_named(name: str) -> Task:
    """The entry of a task.

    Raises:
        KeyError: there is none.
    """
    return generic(name.removeprefix(PREFIX)) if is_generic(name) else TASKS[name]


__all__ = ["ALIASES", "PREFIX", "REASONS", "TASKS", "Task", "is_generic", "task_named"]
