"""The cost model: how long will it take?

``batch_s(P) = speed · (fixed + unit · P)``, P = items × the longest, in padded units (tokens).
``fixed`` and ``unit`` come from the warm-up; ``speed`` follows what batches really took: after each
it moves by 0.2 towards actual/predicted, which is clipped to a factor of 3 so that one stall or one
lucky batch cannot throw the model off. Two clipped in a row the same way are no accident: from the
second on ``speed`` follows by the whole factor, so that a start that is a hundred times wrong costs
a handful of batches and not thirty. Least-squares refits were tried and waste a third of the
model's time while a device is slow.

Laws
- Every estimate is positive and finite, whatever was learnt.
- One batch changes ``speed`` by at most a factor of 1.4 up or to 0.86 down; only where the one
  before it was off by more than 3 the same way, by 3.
"""

from __future__ import annotations

import math

SPEED_STEP = 0.2
SPEED_CLIP = 3.0
PAD_STEP = 0.1
CHAR_STEP = 0.05
TINY_S = 1e-7
"""Floor of the fitted times: a zero would make every budget infinite."""

MEASURED_BATCHES = 10
"""After so many batches ``speed`` counts as measured."""


def _step(old: float, seen: float, weight: float) -> float:
    return old + weight * (seen - old)


class Cost:
    """The estimator of one service.

    Args:
        fixed_s: seconds of a batch of no units (warm-up fit).
        unit_s: seconds for each padded unit (warm-up fit).
        units_per_char: to guess the size of a text before it is tokenised.
        prepare_s_per_char: seconds to tokenise one character.
    """

    def __init__(
        self, fixed_s: float, unit_s: float, units_per_char: float, prepare_s_per_char: float
    ) -> None:
        # In this order a fit that is not a number becomes the floor.
        self.fixed_s = max(TINY_S, fixed_s)
        self.unit_s = max(TINY_S, unit_s)
        self.units_per_char = max(0.0, units_per_char)
        self.prepare_s_per_char = max(0.0, prepare_s_per_char)
        self.speed = 1.0
        self.padding = 1.3  # padded / real units; what an untrained mix of lengths gave
        self.batches = 0
        self._off = 0  # which way the last batch was clipped: 1 slower, -1 faster, 0 not

    @property
    def measured(self) -> bool:
        """Whether ``speed`` rests on enough real batches to call a deadline impossible."""
        return self.batches >= MEASURED_BATCHES

    def batch_s(self, padded: float) -> float:
        """Seconds of one batch of ``padded`` units."""
        return self.speed * (self.fixed_s + self.unit_s * padded)

    def padded_within(self, seconds: float) -> float:
        """The largest padded size that takes at most ``seconds``; 0 if none does."""
        return max(0.0, (seconds / self.speed - self.fixed_s) / self.unit_s)

    def line_s(self, units: float, items: int, budget: float) -> float:
        """Seconds of model time for a line, cut into batches of at most ``budget`` padded units.

        Args:
            units: real units of all of them.
            items: how many they are; no batch holds less than one, so no more batches either.
            budget: most padded units of a batch; with 0 every item runs alone.

        Returns:
            0 for an empty line.
        """
        if items <= 0 or units <= 0:
            return 0.0
        padded = units * self.padding
        batches = min(items, max(1, math.ceil(padded / budget))) if budget > 0 else items
        return self.speed * (batches * self.fixed_s + self.unit_s * padded)

    def units(self, chars: int) -> float:
        """Guess the units of a text of ``chars`` characters: a whole number, 1 or more."""
        return float(max(1, math.ceil(chars * self.units_per_char)))

    def prepare_s(self, chars: int) -> float:
        """Seconds to tokenise ``chars`` characters."""
        return chars * self.prepare_s_per_char

    def learn_batch(self, padded: float, units: float, seconds: float) -> None:
        """One good batch of ``padded`` units (``units`` of them real) took ``seconds``."""
        if not (math.isfinite(seconds) and seconds >= 0):
            return
        seen = seconds / (self.fixed_s + self.unit_s * padded)
        clipped = min(max(seen, self.speed / SPEED_CLIP), self.speed * SPEED_CLIP)
        off = (seen > clipped) - (seen < clipped)
        weight = 1.0 if off and off == self._off else SPEED_STEP
        self.speed = max(_step(self.speed, clipped, weight), 1e-6)
        self._off = off
        self.batches += 1
        if units > 0:
            self.padding = _step(self.padding, max(1.0, padded / units), PAD_STEP)

    def learn_item(self, chars: int, units: float, prepare_s: float) -> None:
        """A text of ``chars`` characters had ``units`` units and took ``prepare_s`` to prepare."""
        if chars > 0 and math.isfinite(prepare_s):
            self.units_per_char = _step(self.units_per_char, units / chars, CHAR_STEP)
            self.prepare_s_per_char = _step(self.prepare_s_per_char, prepare_s / chars, CHAR_STEP)
