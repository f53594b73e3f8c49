"""What each pipeline task takes and returns; one entry for each task.

Both sides import this room: the front validates requests with it, the worker finds the task's
example and canary in it. It knows neither torch nor HTTP.
"""

from __future__ import annotations

from service.tasks.base import Task
from service.tasks.fill_mask import FILL_MASK
from service.tasks.synthetic import SYNTHETIC

TASKS: dict[str, Task] = {task.name: task for task in (FILL_MASK, SYNTHETIC)}
"""Every task that can be served, by its transformers name."""

__all__ = ["TASKS", "Task"]
