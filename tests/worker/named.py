"""Every place of a task's input and parameters in which a client can name a host or a file."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator
from typing import Any, Protocol

from service.core.errors import Refused
from service.tasks import Task
from service.worker.wire import Fault, Prepare, Prepared, Result, Run, Unfit, WireItem
from tests.trap import Trap
from tests.worker.line import Line
from tests.worker.served import Case, ids


class Asked(Protocol):
    """A task that is served, and the way from a case to its item."""

    task: Task
    line: Line

    def item(self, case: Case) -> WireItem:
        """The item.

        Raises:
            Refused: by the front.
        """
        ...


def with_name(value: Any, name: str) -> Iterator[Any]:
    """The value with the name in one place after the other."""
    if isinstance(value, dict):
        for key, part in value.items():
            for other in with_name(part, name):
                yield {**value, key: other}
        yield {**value, "url": name}
    elif isinstance(value, list):
        for index, part in enumerate(value):
            for other in with_name(part, name):
                yield [*value[:index], other, *value[index + 1 :]]
    else:
        encoded = base64.b64encode(name.encode()).decode()
        yield from (name, encoded, f"data:image/png;base64,{encoded}", f"data:image/png,{name}")


def named(task: Task, name: str) -> Iterator[Case]:
    """Inputs and parameters of the task that hold the name."""
    fine = dict(task.example_parameters) or dict(task.canary_parameters)
    odd: list[Any] = [
        name, [name], {"image": name}, {"url": name}, {"path": name, "bytes": None},
        {"audio": name}, {"raw": name, "sampling_rate": 1}, {"images": [name], "text": name},
        {"array": name}, [{"role": "user", "content": [{"type": "image", "url": name}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": name}}]}],
        {"question": name, "image": name}, {"text": name, "text_pair": name},
    ]  # fmt: skip
    for value in (*odd, *with_name(task.canary, name)):
        yield value, fine
    for parameter in (*task.parameters, "timeout", "url", "image", "model", "generate_kwargs"):
        for value in (name, [name], {"url": name}):
            yield copy.deepcopy(task.canary), {**fine, parameter: value}


def leave_untouched(served: Asked, trap: Trap) -> int:
    """Ask for all of it; whatever is no refusal is run. Returns how many were.

    Raises:
        AssertionError: somebody came, or an answer was neither a refusal nor a result.
    """
    ran = 0
    for name in trap.names:
        for case in named(served.task, name):
            try:
                item = served.item(case)
            except Refused:
                continue
            answer = served.line.ask(Prepare(item))
            if isinstance(answer, Prepared):
                answer = served.line.ask(Run(next(ids), [item]))
                ran += 1
            assert isinstance(answer, Result | Unfit), (case, answer)
            assert not isinstance(answer, Fault)
            assert not isinstance(answer, Unfit) or answer.code == "invalid_input", (case, answer)
        assert trap.untouched(), name
    return ran
