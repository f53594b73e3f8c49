"""The stock call itself, one input after the other: for tasks whose steps cannot be shared.

Laws
- Inputs are sized by their characters: nothing is tokenised beforehand, and the stock call alone
  touches its tokenizer, in the model thread.
- The cost is fitted to the example: half of its time counts as fixed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from time import perf_counter
from typing import Any

import torch

from service.tasks import Task
from service.worker.interface import Answer, Foreign, PreparedInput, Unsuitable
from service.worker.pipelines.stock import StockPipeline
from service.worker.pipelines.warmup import length_limit
from service.worker.wire import Facts, Load

CHARS_PER_UNIT = 4
"""About the characters of a token."""

_RUNS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One stock call."""

    value: Foreign
    call: Mapping[str, Any]


class Whole(StockPipeline):
    """Calls the stock pipeline."""

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        side = pipe.tokenizer.padding_side
        super().__init__(load, task, pipe)
        pipe.tokenizer.padding_side = side  # the call is the stock's in everything
        self.batchable = False

    def text(self, template: Foreign) -> str:
        """An example of the entry as it would travel."""
        return self.task.travelling(template)

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """Take the input apart.

        Raises:
            Unsuitable: it has more characters than tokens could be.
        """
        del media
        units = max(1, len(inputs) // CHARS_PER_UNIT)
        if units > self.max_units:
            most = self.max_units * CHARS_PER_UNIT
            raise Unsuitable(f"send an input of at most {most} characters", limit=most)
        value = Call(self.task.arrived(inputs), self.task.call(parameters))
        return PreparedInput(units, len(inputs), value)

    @property
    def max_units(self) -> int:
        """Most units of one input: 32 characters a token, as the front counts."""
        return 8 * self.max_tokens

    def run(self, items: Sequence[PreparedInput]) -> list[Answer]:
        """The stock call for each."""
        with torch.inference_mode():
            return [
                # A copy: the stock call may change what it is given, and a batch may run again.
                self.pipe(copy.deepcopy(item.payload.value), **item.payload.call)
                for item in items
            ]

    def warm_up(self) -> None:
        """Run the example, note its time."""
        self.max_tokens = length_limit(self.pipe.model, self.pipe.tokenizer)
        parameters = self.task.example_parameters
        example = self.prepare(self.text(self.task.example), b"", parameters)
        canary = self.text(self.task.canary)
        self._canary = self.prepare(canary, b"", self.task.canary_parameters)
        times = []
        for _ in range(_RUNS):
            started = perf_counter()
            self.run([example])
            times.append(perf_counter() - started)
        half_s = min(times) / 2
        self._facts = Facts(
            task=self.task.name,
            model=PurePath(self._load.model).name,
            device=str(self.pipe.device),
            dtype=str(self.pipe.model.dtype).removeprefix("torch."),
            mask_token="",
            max_tokens=self.max_units,
            vocab_size=0,
            batchable=False,
            cost_fixed_s=half_s,
            cost_unit_s=half_s / example.units,
            typical_units=example.units,
            units_per_char=1 / CHARS_PER_UNIT,
            prepare_s_per_char=1e-8,
            load_s=0.0,
            torch_threads=torch.get_num_threads(),
            path="whole",
        )
