"""The memory budget: how large may a batch be so that it fits, learned from what did not.

Laws
- A batch that ran out of memory halves the budget; only good batches raise it again, step by step,
  until it is unlimited as before. So one overflow does not shrink batches for ever, and sizes that
  fail are not tried again at once.
- A lone item is run whatever the budget says: it bounds how many join, never who may run.
- What one item alone is to blame for does not shrink the batches of the others (:meth:`restore`).
- Sizes are padded units: items times the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from service.core.item import Item

GROW_AFTER = 50
"""Good batches before the memory budget grows (simulated: 15 memory failures a minute at most)."""

GROW_PARTS = 16
"""It grows by this part of the maximum: back to the whole within 800 good batches."""

FLOOR_PARTS = 32
"""It never falls under this part of the maximum: one strange item must not end batching."""


def padded_units(items: Sequence[Item]) -> float:
    """Size of a batch as the model sees it: items times the longest; 0 for none."""
    return len(items) * max((item.units for item in items), default=0.0)


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
        """Memory ran out at this size: half of it from now on."""
        self._maximum = self._maximum or padded
        half = max(padded / 2, self._maximum / FLOOR_PARTS)
        self._budget = min(self._budget, half)
        self._good = 0

    @property
    def bound(self) -> float:
        """The bound that failures have set; infinite for none."""
        return self._budget

    def restore(self, before: float, after: float) -> None:
        """One item alone was to blame for the failures that took the bound from one to the other.

        Does nothing if it fell further meanwhile: that was somebody else's failure.
        """
        if self._budget >= after:
            self._budget = max(self._budget, before)

    def good(self, padded: float) -> None:
        """A batch of this size went through; many of them raise the budget again."""
        self.fitted(padded)
        if self._budget == inf:
            return
        self._good += 1
        if self._good >= GROW_AFTER:
            self._good = 0
            self._budget += self._maximum / GROW_PARTS
            if self._budget >= self._maximum:
                self._budget = inf

    def fitted(self, padded: float) -> None:
        """This size is known to fit (proved in warm-up); it does not raise the budget."""
        self.largest_good = max(self.largest_good, padded)
