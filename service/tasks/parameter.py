"""One parameter of a task: what may be sent, and what to say to whoever sends something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from service.tasks.schemas import ANY, Schema

Json = Any
"""A decoded JSON value."""

Role = Literal["prepare", "forward", "post"]


class Reject(Exception):
    """A parameter value that does not fit; ``message`` says what to send instead."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a task.

    Attributes:
        name: as in the Transformers pipeline.
        role: which step uses it; ``prepare`` and ``forward`` are part of the batch key.
        describe: what to send, for messages and pages ("an integer from 1 to the vocabulary size").
        check: takes the JSON value and the model's facts (``vocab_size`` and the like, may be
            empty before the model is ready) and returns the normalised value; raises
            :class:`Reject`. ``null`` never reaches it: it means "as if absent".
        required: whether a request without it is refused.
        stock: the pipeline's own name for it, where that is another.
        schema: of the values that ``check`` takes, from the same facts.
    """

    name: str
    role: Role
    describe: str
    check: Callable[[Json, Mapping[str, int]], Json]
    required: bool = False
    stock: str = ""
    schema: Callable[[Mapping[str, int]], Schema] = lambda _: ANY
