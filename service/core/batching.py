"""Which batch next? Filled round the oldest request, by length, never past a deadline.

A batch starts the moment a worker is free; there is no timer and no fixed maximum. The head is the
oldest waiting item. Others join, nearest in length first, each only if

1. its key agrees with the head's,
2. items × longest stays in the budget (time and memory),
3. adding it costs no more than running it alone (this turns batching off where it does not pay,
   and keeps padding away), and
4. no member becomes late by it.

Of what was gathered so, the beginning that does the most work in a second is run: the units of its
members for each second that the batch takes. A short text beside longer ones is cheaper than alone,
but in the next batch, beside others of its length, it is cheaper still.

A head that cannot make its deadline is dropped, but only if others wait: the last one always runs,
or an estimator that is too pessimistic would never learn that it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.cost import Cost
from service.core.item import Item

LOOK_AHEAD = 256
"""Waiting items to look at: beyond it the gain is in the third digit, the cost is not."""


@dataclass(frozen=True, slots=True)
class Pick:
    """What to do next: run ``items`` (may be empty), give up ``doomed`` (late already)."""

    items: tuple[Item, ...]
    doomed: tuple[Item, ...]
    padded: float
    """Items × longest, in units."""


def pick(  # one decision, all its inputs are values
    waiting: Sequence[Item],
    now: float,
    *,
    cost: Cost,
    budget: float,
    most: int | None = None,
    others: int = 0,
) -> Pick:
    """Choose the next batch.

    Args:
        waiting: WAITING items in the order of arrival (at most :data:`LOOK_AHEAD` + 1 matter).
        now: the time.
        cost: the cost model.
        budget: most padded units (the smaller of the time's and the memory's); a head is run
            even when it is larger by itself.
        most: most items (half-open breaker, model that cannot batch), ``None`` for no bound.
        others: items in the queue that are not in ``waiting`` (still being prepared).
    """
    doomed: list[Item] = []
    start = 0
    while start < len(waiting):
        head = waiting[start]
        alone = len(waiting) - start == 1 and others == 0
        if alone or now + cost.batch_s(head.units) <= head.deadline:
            break
        doomed.append(head)
        start += 1
    else:
        return Pick((), tuple(doomed), 0.0)

    chosen = [head]
    longest = work = head.units
    earliest = head.deadline
    best, best_rate, best_padded = 1, work / cost.batch_s(longest), longest
    if not head.alone and (most is None or most > 1):
        rest = [i for i in waiting[start + 1 : start + 1 + LOOK_AHEAD] if _joins(i, head)]
        rest.sort(key=lambda item: abs(item.units - head.units))  # stable: ties by arrival
        for item in rest:
            if most is not None and len(chosen) >= most:
                break
            length = max(longest, item.units)
            padded = length * (len(chosen) + 1)
            together = cost.batch_s(padded)
            if (
                padded > budget
                or together - cost.batch_s(longest * len(chosen)) > cost.batch_s(item.units)
                or now + together > min(earliest, item.deadline)
            ):
                continue
            chosen.append(item)
            longest, earliest = length, min(earliest, item.deadline)
            work += item.units
            if work >= best_rate * together:
                best, best_rate, best_padded = len(chosen), work / together, padded
    return Pick(tuple(chosen[:best]), tuple(doomed), best_padded)


def _joins(item: Item, head: Item) -> bool:
    return item.key == head.key and not item.alone
