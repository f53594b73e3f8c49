"""The shape of a task's entry: inputs, parameters, example, canary, batch key.

Laws
- An unknown parameter is a 422; a known one is checked by type and range. Nothing a client sends
  reaches a pipeline's call under another name.
- ``key`` is made of the prepare and forward parameters only: items of one batch agree in it;
  post parameters need not.
- A refusal names the field by JSON pointer and says what to send instead, never what was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from service.core.errors import FieldError, Refused, invalid, problem

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
    """

    name: str
    role: Role
    describe: str
    check: Callable[[Json, Mapping[str, int]], Json]


@dataclass(frozen=True, slots=True)
class Task:
    """One task.

    Attributes:
        name: the transformers task name.
        media: ``text`` (others come with later tasks).
        parameters: every parameter that passes, by name.
        example: an input that works on any model of the task; ``{mask}`` is its mask token.
        canary: the input of the self-test, same convention.
        bad_examples: inputs that must be refused with 422, with the reason, for tests and pages.
        unit: what one unit of cost is.
    """

    name: str
    media: Literal["text"]
    example: str
    canary: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    bad_examples: tuple[tuple[str, str], ...] = ()
    unit: str = "tokens"

    def parse_input(self, value: Json, pointer: str) -> str:
        """One input as the pipeline takes it.

        Args:
            value: the decoded JSON value.
            pointer: its JSON pointer, for the message.

        Raises:
            Refused: ``invalid_input`` that names the pointer and says what to send.
        """
        if not isinstance(value, str):
            raise Refused(invalid(pointer, "send a string"))
        if not value.strip():
            raise Refused(invalid(pointer, "send a text that is not empty"))
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refused(
                invalid(pointer, "send text of valid Unicode (no lone surrogates)")
            ) from None
        return value

    def parse_parameters(self, value: Json, facts: Mapping[str, int]) -> dict[str, Json]:
        """The parameters of one request, checked and normalised; all faults at once.

        Args:
            value: the decoded ``parameters`` member, ``None`` if absent.
            facts: the model's integer facts, for ranges.

        Raises:
            Refused: ``invalid_input`` with one entry for each parameter at fault.
        """
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise Refused(invalid("/parameters", "send an object of parameters"))
        faults: list[FieldError] = []
        result: dict[str, Json] = {}
        if not value.keys() <= self.parameters.keys():  # one entry, however many were sent
            allowed = ", ".join(sorted(self.parameters)) or "none"
            faults.append(FieldError("/parameters", f"unknown parameter; known are: {allowed}"))
        for name, known in self.parameters.items():
            given = value.get(name)
            if given is not None:
                try:
                    result[name] = known.check(given, facts)
                except Reject as reject:
                    faults.append(FieldError(f"/parameters/{name}", reject.message))
        if faults:
            raise Refused(problem("invalid_input", errors=tuple(faults)))
        return result

    def key(self, parameters: Mapping[str, Json]) -> str:
        """The batch key: items whose keys differ are never in one batch."""
        parts = [
            f"{name}={parameters[name]!r}"
            for name in sorted(parameters)
            if self.parameters[name].role != "post"
        ]
        return ";".join(parts)
