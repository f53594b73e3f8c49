"""What the runner needs of a pipeline, and the failures that have a name here.

Laws
- ``prepare`` is called by the prepare thread alone, everything else by the model thread alone.
  They share nothing that either of them changes: ``prepare`` works on its own tokenizer.
- ``run`` gives exactly one answer for each item, in order; what it raises fails the whole batch.
- An answer is what the stock pipeline returns for that input alone: nothing of a neighbour, its
  padding or its parameters shows in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from service.worker.wire import Facts

Answer = Any
"""What a pipeline returns for one input: lists, dicts, strings, numbers (also numpy's, torch's)."""

Foreign = Any
"""An object of a library whose types are not declared."""


class Unsuitable(Exception):
    """The input cannot be run; ``message`` says what to send instead and is written by us.

    Attributes:
        message: for the client.
        limit: the token limit, if that is what was passed, else 0.
        pointer: JSON pointer of the parameter at fault, empty for the input itself.
    """

    def __init__(self, message: str, *, limit: int = 0, pointer: str = "") -> None:
        super().__init__("unsuitable")
        self.message = message
        self.limit = limit
        self.pointer = pointer


class CannotLoad(Exception):
    """The model cannot be served; ``reason`` and ``message`` as in the FAILED frame."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.message = message


class Mismatch(Exception):
    """A batch of n items gave another number of answers; ``message`` has both and is ours."""

    def __init__(self, answers: int | None, items: int) -> None:
        super().__init__("mismatch")
        count = "no list of" if answers is None else str(answers)
        self.message = f"the pipeline gave {count} answers for {items} items"


@dataclass(frozen=True, slots=True, eq=False)
class PreparedInput:
    """One tokenised input.

    Attributes:
        units: its own length, before padding.
        nbytes: what it costs to keep.
        payload: the pipeline's own.
        key: what items of its batch must agree in, beside their parameters.
    """

    units: int
    nbytes: int
    payload: Any
    key: str = ""


@dataclass(frozen=True, slots=True)
class DeviceBytes:
    """Device memory in bytes, all 0 where the device does not count it."""

    allocated: int = 0
    reserved: int = 0
    total: int = 0


class Pipeline(Protocol):
    """A loaded and warmed-up model."""

    @property
    def facts(self) -> Facts:
        """What is known of the model; ``load_s`` is filled in by the runner."""
        ...

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """Tokenise one input, untruncated.

        Raises:
            Unsuitable: the input does not fit the model.
        """
        ...

    def run(self, items: Sequence[PreparedInput]) -> Answer:
        """Run one batch; a list of answers is expected, the runner checks that it is one."""
        ...

    def canary(self) -> Answer:
        """The answer for the self-test's input, from a run of its own."""
        ...

    def release(self) -> None:
        """Give cached memory back to the device; called after a failure, outside its handler."""
        ...

    def device_works(self) -> bool:
        """Whether the device still takes work: the test after an error that may have lost it."""
        ...

    def device_bytes(self) -> DeviceBytes:
        """Device memory in use; called from the sampler's thread."""
        ...
