"""Two devices, as the synthetic pipelines know them, and what is sent to them.

The service models are those of ``service/worker/synthetic.py``, so that the simulation and a live
run of ``synthetic:cpu`` and ``synthetic:gpu`` mean the same. Lengths are lognormal: most texts are
short, a few are ten times as long, which is what makes padding the first cost of a batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from random import Random

from service.worker.synthetic import MAX_TOKENS, MODELS, ServiceModel

SIGMA = 0.8
"""Spread of the lengths (of the logarithm)."""

LETTERS = (3, 4, 5, 6, 7)
"""Letters in a word, the same in one text: what a guess from characters has to live with."""


@dataclass(frozen=True)
class Device:
    """A service model and its usual traffic.

    Attributes:
        name: ``cpu`` or ``gpu``.
        shortest: fewest words of a text; the median is the service model's own.
        runs: the default deadline, in runs of one text of mean length.
    """

    name: str
    shortest: int
    runs: int

    @property
    def model(self) -> str:
        """The ``model`` setting."""
        return f"synthetic:{self.name}"

    @property
    def times(self) -> ServiceModel:
        """How long a batch takes."""
        return MODELS[self.model]

    def draw(self, random: Random) -> int:
        """The length of one text in words."""
        words = round(self.times.median_units * math.exp(SIGMA * random.gauss(0.0, 1.0)))
        return min(max(words, self.shortest), MAX_TOKENS)

    @cached_property
    def sample(self) -> tuple[int, ...]:
        """Many lengths, in order, for mean and quantiles."""
        random = Random(7)
        return tuple(sorted(self.draw(random) for _ in range(20_000)))

    @cached_property
    def mean_words(self) -> float:
        """The mean length."""
        return sum(self.sample) / len(self.sample)

    @cached_property
    def deadline_s(self) -> float:
        """The default deadline in force, D, in whole milliseconds as the setting has it."""
        return round(1000 * self.runs * self.times.seconds(self.mean_words)) / 1000

    @property
    def short(self) -> int:
        """A text of at most so many words is in the shortest quarter."""
        return self.sample[len(self.sample) // 4]

    @property
    def long(self) -> int:
        """A text of at least so many words is in the longest tenth."""
        return self.sample[len(self.sample) * 9 // 10]


CPU = Device("cpu", shortest=4, runs=30)
GPU = Device("gpu", shortest=8, runs=20)
DEVICES = {device.name: device for device in (CPU, GPU)}


@cache
def text(words: int, letters: int) -> str:
    """A text of so many words."""
    return " ".join(["w" * letters] * words)
