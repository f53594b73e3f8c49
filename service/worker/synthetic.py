"""The synthetic pipeline: no model, known service times, everything else as with a real one.

A batch of n items, each padded to the longest, P = n x longest tokens (words), takes ``S(P)``:

================  =======  ==============================================  ==========
model             a        per padded token                                all times x
================  =======  ==============================================  ==========
synthetic:cpu     5 ms     0.5 ms                                          1
synthetic:gpu     15 ms    2 us up to 2048 padded tokens, then 8 us        4
================  =======  ==============================================  ==========

times lognormal noise of sigma 0.08; one batch in 200 takes twice as long. The GPU-like times are
stretched by four so that the front, not the sleep's precision, is what a benchmark sees. The
answer is ``{"tokens": n, "batch": k}``: its own words, and the number of items it ran with.

Laws
- No torch, no transformers: a worker with this pipeline is ready in a fraction of a second.
- The facts come from the model itself, by the two-point fit a warm-up would do.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.tasks.synthetic import SYNTHETIC
from service.worker.interface import (
    CannotLoad,
    DeviceBytes,
    PreparedInput,
    Unsuitable,
)
from service.worker.wire import Facts, Load

MAX_TOKENS = 512
"""Longest input in words, as the lengths of the simulation end there."""

NOISE_SIGMA = 0.08
STRAGGLER_SHARE = 0.005

_DEADLINE_TIMES = 30
"""The fit's larger batch takes an eighth of 30 x the time of one median input (at least 1 s),
which is the batch time that the front derives from the same facts."""


@dataclass(frozen=True, slots=True)
class ServiceModel:
    """Seconds for a batch as a function of its padded tokens."""

    fixed_s: float
    unit_s: float
    knee_units: float
    unit_beyond_s: float
    stretch: float
    median_units: int

    def seconds(self, padded: float) -> float:
        """``S(P)`` without noise."""
        below = self.unit_s * min(padded, self.knee_units)
        beyond = self.unit_beyond_s * max(0.0, padded - self.knee_units)
        return self.stretch * (self.fixed_s + below + beyond)

    def fit(self) -> tuple[float, float]:
        """``a`` and ``b`` of the line through a median input and a batch of the batch time."""
        deadline_s = max(1.0, _DEADLINE_TIMES * self.seconds(self.median_units))
        small = large = float(self.median_units)
        while self.seconds(large) < deadline_s / 8:
            large *= 1.25
        if large == small:
            large *= 2
        slope = (self.seconds(large) - self.seconds(small)) / (large - small)
        return max(0.0, self.seconds(small) - slope * small), slope


MODELS: dict[str, ServiceModel] = {
    "synthetic:cpu": ServiceModel(0.005, 0.0005, math.inf, 0.0005, 1.0, 24),
    "synthetic:gpu": ServiceModel(0.015, 2e-6, 2048, 8e-6, 4.0, 128),
}
"""By the ``model`` setting; the medians are those of the simulated request lengths."""


class SyntheticPipeline:
    """Sleeps as its service model says."""

    def __init__(
        self,
        name: str,
        model: ServiceModel,
        *,
        seed: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._model = model
        self._random = random.Random(seed)  # noqa: S311 - noise, not a secret
        self._sleep = sleep
        fixed_s, unit_s = model.fit()
        example = SYNTHETIC.example
        self._facts = Facts(
            task=SYNTHETIC.name,
            model=name,
            device="synthetic",
            dtype="none",
            mask_token="",
            max_tokens=MAX_TOKENS,
            vocab_size=0,
            batchable=True,
            cost_fixed_s=fixed_s,
            cost_unit_s=unit_s,
            typical_units=len(example.split()),
            units_per_char=len(example.split()) / len(example),
            prepare_s_per_char=1e-8,
            load_s=0.0,
            torch_threads=0,
        )

    @classmethod
    def from_load(cls, load: Load) -> SyntheticPipeline:
        """The pipeline for ``synthetic:cpu`` or ``synthetic:gpu``, seeded from the process id.

        Raises:
            CannotLoad: no such synthetic model.
        """
        model = MODELS.get(load.model)
        if model is None:
            known = " or ".join(MODELS)
            raise CannotLoad("model_not_found", f"There is no such synthetic model; use {known}.")
        return cls(load.model, model, seed=os.getpid())

    @property
    def facts(self) -> Facts:
        """The known model as a warm-up would have found it."""
        return self._facts

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """Count the words.

        Raises:
            Unsuitable: more than :data:`MAX_TOKENS`.
        """
        del media, parameters  # none are taken
        units = max(1, len(inputs.split()))
        if units > MAX_TOKENS:
            raise Unsuitable(
                f"the text has {units} words, this model takes at most {MAX_TOKENS}; "
                "send a shorter text",
                limit=MAX_TOKENS,
            )
        return PreparedInput(units, 256, units)

    def run(self, items: Sequence[PreparedInput]) -> list[dict[str, int]]:
        """Sleep ``S(P)`` and answer."""
        padded = len(items) * max(item.units for item in items)
        seconds = self._model.seconds(padded) * math.exp(NOISE_SIGMA * self._random.gauss(0, 1))
        if self._random.random() < STRAGGLER_SHARE:
            seconds *= 2
        self._sleep(seconds)
        return [{"tokens": item.units, "batch": len(items)} for item in items]

    def canary(self) -> dict[str, int]:
        """The self-test's answer."""
        return self.run([self.prepare(SYNTHETIC.canary, b"", {})])[0]

    def release(self) -> None:
        """Nothing is held."""

    def device_works(self) -> bool:
        """There is no device to lose."""
        return True

    def device_bytes(self) -> DeviceBytes:
        """There is no device memory."""
        return DeviceBytes()
