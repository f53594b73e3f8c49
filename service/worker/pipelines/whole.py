"""The stock call itself, one input after the other: for tasks whose steps cannot be shared.

Laws
- Inputs are sized by their characters and by their pictures: nothing is tokenised beforehand, and
  the stock call alone touches its parts, in the model thread. Media are opened beforehand, by our
  own decoders.
- The cost is fitted to the example: half of its time counts as fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from service.worker.interface import Answer, Foreign, PreparedInput, Unsuitable
from service.worker.opening import kept_bytes, opened
from service.worker.pipelines.owned import Owned
from service.worker.pipelines.warmup import UNKNOWN_LENGTH, length_limit

CHARS_PER_UNIT = 4
"""About the characters of a token."""

_RUNS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One stock call."""

    value: Foreign
    call: Mapping[str, Any]


class Whole(Owned):
    """Calls the stock pipeline."""

    max_tokens = UNKNOWN_LENGTH

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """Take the input apart and open what it holds.

        Raises:
            Unsuitable: it has more characters than tokens could be, or see :func:`opened`.
        """
        task = self.task
        units = max(1, len(inputs) // CHARS_PER_UNIT)
        if units > self.max_units:
            most = self.max_units * CHARS_PER_UNIT
            raise Unsuitable(f"send an input of at most {most} characters", limit=most)
        value = opened(task.arrived(inputs, media), task)
        nbytes = len(inputs) + kept_bytes(value)
        return PreparedInput(units, nbytes, Call(value, task.call(parameters)))

    @property
    def max_units(self) -> int:
        """Most units of one input: 32 characters a token, as the front counts."""
        return 8 * self.max_tokens

    def run(self, items: Sequence[PreparedInput]) -> list[Answer]:
        """The stock call for each."""
        with torch.inference_mode():
            return [
                # A copy: the stock call may change what it is given, and a batch may run again.
                self.pipe(_fresh(item.payload.value), **_fresh(item.payload.call))
                for item in items
            ]

    def warm_up(self) -> None:
        """Run the example, note its time."""
        task = self.task
        if self.pipe.tokenizer is not None:
            self.max_tokens = length_limit(self.pipe.model, self.pipe.tokenizer)
        taken = task.taken(task.example, "")
        started = perf_counter()
        example = self.prepare(*taken, task.example_parameters)
        prepare_s = perf_counter() - started
        self._canary = self.prepare(*task.taken(task.canary, ""), task.canary_parameters)
        times = []
        for _ in range(_RUNS):
            started = perf_counter()
            self.run([example])
            times.append(perf_counter() - started)
        half_s = min(times) / 2
        self.note(
            max_tokens=self.max_units,
            batchable=False,
            cost_fixed_s=half_s,
            cost_unit_s=half_s / example.units,
            typical_units=example.units,
            units_per_char=1 / CHARS_PER_UNIT if task.media == "text" else example.units,
            prepare_s_per_char=1e-8 if task.media == "text" else prepare_s,
            path="whole",
        )


def _fresh(value: Foreign) -> Foreign:
    """The same in containers of its own; what an opened medium is made of is never changed."""
    if isinstance(value, dict):
        return {name: _fresh(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_fresh(part) for part in value]
    return value
