"""What a model of sounds is asked before it serves: window, padding, batches, longest, cost.

Laws
- As in ``warmup``: what is proved by one run counts as possible, what is lost in noise costs.
- Two sounds of different lengths that make rows of one shape mean a window.
- Rows of other lengths may share a forward only if the model gives a row beside a longer one the
  numbers that it has alone: group normalisation, for one, hears the padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from service.tasks.parameter import Json
from service.worker.interface import CannotLoad, Foreign, PreparedInput
from service.worker.pipelines.hearing import MAX_PIECE_S, UNITS_A_SECOND, Heard, shape_of
from service.worker.pipelines.pieces import Pieces
from service.worker.pipelines.rows import is_equal
from service.worker.pipelines.stock import Payload
from service.worker.pipelines.warmup import MAX_FIT_UNITS, fit_cost, prove_length, tried

LEAST_S = (0.1, 0.25, 0.5, 1.0)
"""The shortest sounds that are tried: convolutions need a few frames."""

_RUNS = 3


class Hearing(Heard):
    """A pipeline that classifies sounds."""

    def warm_up(self) -> None:
        """Run the example, prove window, batches and longest, share the cores, fit the cost."""
        parameters = self.task.example_parameters
        call = self.task.call(parameters)
        example = self._sample(self.task.example, parameters)
        self._canary = self._sample(self.task.canary, self.task.canary_parameters)
        with torch.inference_mode():
            one, two = self._of(1, call), self._of(2, call)
            self.windowed = shape_of(one.rows[0]) == shape_of(two.rows[0])
            self.padding = not self.windowed and self.pads_rightly(one.rows[0], two.rows[0])
            self.batchable = self.batches_rightly((example.payload, one))
            self.least = self._least(call)
            self.max_tokens = self._longest(call, one)

        kept: dict[int, Pieces[Payload]] = {}

        def run_batch(items: int, length: int) -> None:
            seconds = max(length / UNITS_A_SECOND, self.least / self.rate_hz)
            if length not in kept:
                kept[length] = self.fitted(self._of(seconds, call))
            self.run([PreparedInput(length, 0, kept[length])] * items)

        typical = example.payload.units
        workers = self.shared_cores(run_batch, typical)
        fixed_s, self.cost_unit_s = fit_cost(run_batch, self._fit_sizes(typical))
        self.step_units = self.measure_step()
        prepare_s, nbytes = self._measure_decoding(parameters)
        again = self._sample(self.task.example, parameters)
        self.note(
            max_tokens=self.most(again),
            batchable=self.batchable,
            cost_fixed_s=fixed_s,
            cost_unit_s=self.cost_unit_s,
            typical_units=again.units,
            units_per_char=typical / nbytes,
            prepare_s_per_char=prepare_s / nbytes,
            workers=workers,
            step_units=self.step_units,
        )

    def most(self, example: PreparedInput) -> int:
        """Units of the largest input."""
        return max(self.max_tokens, example.units)

    def fitted(self, pieces: Pieces[Payload]) -> Pieces[Payload]:
        """An input of the fit."""
        return pieces

    def batches_rightly(self, payload: Foreign) -> bool:
        """Whether two inputs of one shape have the outputs together that they have alone."""
        return self.agree([self.fitted(pieces) for pieces in payload], 0, 1)

    def pads_rightly(self, short: Payload, longer: Payload) -> bool:
        """Whether the model gives a row beside a longer one the numbers that it has alone."""
        frames = self.frames(short)
        if "attention_mask" not in short.tensors or frames is None:
            return False
        device, model = self.pipe.device, self.pipe.model
        alone = model(**{name: part.to(device) for name, part in short.tensors.items()}).logits
        both = self._collate([dict(row.tensors) for row in (short, longer)])
        beside = model(**{name: part.to(device) for name, part in both.items()}).logits[:1]
        if alone.ndim > 2:  # noqa: PLR2004 - one for each frame
            beside = beside[:, :frames]
        return is_equal(beside, alone)

    def _sample(self, value: Json, parameters: Mapping[str, Any]) -> PreparedInput:
        text, media = self.task.taken(value, "")
        return self.prepare(text, media, parameters)

    def _of(self, seconds: float, call: Mapping[str, Any]) -> Pieces[Payload]:
        times = np.arange(round(seconds * self.rate_hz)) / self.rate_hz
        tone = 0.3 * np.sin(2 * np.pi * (300 + 60 * times) * times)
        pieces: Pieces[Payload] = self.prepared(tone.astype(np.float32), dict(call)).payload
        return pieces

    def _least(self, call: Mapping[str, Any]) -> int:
        def hear(seconds: float) -> Foreign:
            return self.forward([self.fitted(self._of(seconds, call))])

        for seconds in LEAST_S:
            if tried(partial(hear, seconds)) is not None:
                return round(seconds * self.rate_hz)
        raise CannotLoad("model_broken", "The model fails with a sound of a second.")

    def _longest(self, call: Mapping[str, Any], one: Pieces[Payload]) -> int:
        if self.windowed:
            return one.length

        def run_at(length: int) -> None:
            self.forward([self.fitted(self._of(length / UNITS_A_SECOND, call))])

        return prove_length(run_at, MAX_PIECE_S * UNITS_A_SECOND, UNITS_A_SECOND)

    def _fit_sizes(self, typical: int) -> Iterable[tuple[int, int]]:
        most = self._load.batch_tokens_hint or MAX_FIT_UNITS
        yield 1, typical
        times = 2
        while times * typical <= most:
            if self.batchable:
                yield times, typical
            elif not self.windowed and times * typical <= self.max_tokens:
                yield 1, times * typical
            times *= 2

    def _measure_decoding(self, parameters: Mapping[str, Any]) -> tuple[float, int]:
        """Seconds to prepare the example, and its bytes."""
        text, media = self.task.taken(self.task.example, "")
        times = []
        for _ in range(_RUNS):
            started = perf_counter()
            self.prepare(text, media, parameters)
            times.append(perf_counter() - started)
        return median(times), len(media)


def at(pieces: Pieces[Payload], **fixed: Any) -> Pieces[Payload]:  # noqa: ANN401 - whatever generation takes
    """The same input with forward parameters that were decided here."""
    return replace(pieces, fixed=fixed)
