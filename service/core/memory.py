"""The memory budget: how large may a batch be so that it fits, learned from what did not.

Laws
- A batch that ran out of memory halves the budget, but not below the largest size that has fitted
  since the lack began: so it comes to lie just under what fits, and not at half of it. A size that
  had fitted and fails proves nothing any more, and it is halves again.
- Only good batches raise it again, step by step, until it is unlimited as before. So one overflow
  does not shrink batches for ever, and sizes that fail are not tried again at once. Once the size
  that failed last fits, the lack is over or less, and each good batch counts for two.
- A lone item is run whatever the budget says: it bounds how many join, never who may run.
- What one item alone is to blame for does not shrink the batches of the others, nor keep them small
  (:meth:`restore`).
- Sizes are padded units: items times the longest.

Half alone was tried: where the fixed cost of a batch is what counts, three quarters of the words
that fit were answered; with what has fitted nearly all of them are, and no more batches fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from service.core.item import Item

GROW_AFTER = 50
"""Good batches before the memory budget grows (simulated: 15 memory failures a minute at most)."""

GROW_PARTS = 16
"""It grows by this part of the maximum: back to the whole within 900 good batches."""

HOLD = 100
"""So many more good batches before it first grows past what has fitted: there the next step is
known to have failed, and each further try costs a batch."""

FLOOR_PARTS = 32
"""It never falls under this part of the maximum: one strange item must not end batching."""


def padded_units(items: Sequence[Item]) -> float:
    """Size of a batch as the model sees it: items times the longest; 0 for none."""
    return len(items) * max((item.units for item in items), default=0.0)


@dataclass(frozen=True, slots=True)
class Mark:
    """A budget as it stood: its bound, what fitted, what failed last, the good batches in a row."""

    bound: float
    fitted: float
    unfit: float
    good: int


class MemoryBudget:
    """How large a batch may be so that it fits the memory, learned from failures.

    Attributes:
        largest_good: the largest padded size that ever fitted.
    """

    def __init__(self) -> None:
        """Start unlimited."""
        self.largest_good = 0.0
        self._budget = inf
        self._maximum = 0.0
        self._good = 0
        self._fitted = 0.0  # the largest size since it is bounded that went through
        self._unfit = inf  # the size that failed last

    @property
    def tokens(self) -> float:
        """The budget in force; the last known maximum while it is unlimited."""
        return min(self._budget, self._maximum)

    def limit(self, maximum: float) -> float:
        """Most padded units for the next batch; ``maximum`` is what time alone allows."""
        # While it is bounded the largest maximum since counts, or a slow phase (small maximum)
        # would end the bound early and the same size would fail again.
        self._maximum = maximum if self._budget == inf else max(self._maximum, maximum)
        return min(self._budget, maximum)

    def failed(self, padded: float) -> None:
        """Memory ran out at this size: what has fitted from now on, half of it at the least."""
        self._maximum = self._maximum or padded
        if padded <= self._fitted:
            self._fitted = 0.0
        half = max(padded / 2, self._maximum / FLOOR_PARTS)
        self._budget = min(self._budget, max(half, self._fitted))
        self._good = -HOLD if self._fitted else 0
        self._unfit = padded

    @property
    def mark(self) -> Mark:
        """How it stands, for :meth:`restore`; the bound is infinite for none."""
        return Mark(self._budget, self._fitted, self._unfit, self._good)

    def restore(self, before: Mark, after: Mark) -> None:
        """One item alone was to blame for the failures that took it from one to the other.

        Does nothing if it fell further meanwhile: that was somebody else's failure.
        """
        if self._budget < after.bound:
            return
        self._budget = max(self._budget, before.bound)
        self._fitted = 0.0 if self._budget == inf else max(self._fitted, before.fitted)
        self._unfit, self._good = before.unfit, max(self._good, before.good)

    def good(self, padded: float) -> None:
        """A batch of this size went through; many of them raise the budget again."""
        self.fitted(padded)
        if self._budget == inf:
            return
        self._fitted = max(self._fitted, padded)
        self._good += 2 if self._fitted >= self._unfit else 1
        if self._good >= GROW_AFTER:
            self._good = 0
            self._budget += self._maximum / GROW_PARTS
            if self._budget >= self._maximum:
                self._budget, self._fitted = inf, 0.0

    def fitted(self, padded: float) -> None:
        """This size is known to fit (proved in warm-up); it does not raise the budget."""
        self.largest_good = max(self.largest_good, padded)
