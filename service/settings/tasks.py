"""Which task a server may be asked for, and why not another.

An alias stands for its task from here on: everything behind the settings knows one name of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from service.settings.values import Rule
from service.tasks import ALIASES, PREFIX, REASONS, TASKS, is_generic

SYNTHETIC = "synthetic:"
"""How the name of a model begins that is none."""

MEDIA_BODY_BYTES = 16 * 2**20
"""The default of ``max_body_bytes`` with tasks of images, sound and video."""


@dataclass(frozen=True, slots=True)
class TaskName(Rule):
    """The name of a task that has an entry, or ``generic:NAME`` for one that has none."""

    def says(self) -> str:
        """See :meth:`Rule.says`."""
        return f"one of {', '.join(TASKS)}, or {PREFIX}NAME for a newer one of transformers"

    def check(self, value: object) -> str:
        """See :meth:`Rule.check`; for a known task that is not served the error has the reason."""
        if not isinstance(value, str):
            raise ValueError(self.says())  # noqa: TRY004 - one error type for every rule
        name = ALIASES.get(value, value)
        if name in TASKS or is_generic(name):
            return name
        task = value.removeprefix(PREFIX)
        if task in REASONS:
            raise ValueError(f"{self.says()}; {task} is not served: {REASONS[task]}")
        if task != value and (task in TASKS or task in ALIASES):
            raise ValueError(f"{self.says()}; {task} has an entry: leave {PREFIX} out")
        raise ValueError(self.says())


def implied(data: dict[str, Any]) -> dict[str, Any]:
    """Settings as given, with the defaults that others of them imply."""
    if "task" not in data and str(data.get("model", "")).startswith(SYNTHETIC):
        data = {**data, "task": "synthetic"}
    task = TASKS.get(ALIASES.get(str(data.get("task")), str(data.get("task"))))
    if "max_body_bytes" not in data and task is not None and task.media != "text":
        data = {**data, "max_body_bytes": MEDIA_BODY_BYTES}
    return data
