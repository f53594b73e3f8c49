"""Isolation: what happens after a batch failed, until each member has exactly one end.

::

    batch failed ──▶ ERROR ──▶ canary ──▶ bad:  all that are still open get circuit_open
                     │           │
                     │           └──────▶ good: one item? model_error : run the halves
                     ├─▶ OOM ──▶ one item? payload_too_large or out_of_memory, then the canary
                     │           more?     run the halves
                     └─▶ INPUT ▶ that item gets invalid_input, run the rest at once

Laws
- Every member gets exactly one end: a good run, or one :class:`Verdict`. Members whose client is
  gone (``abandoned``) or that are DONE are skipped: no run, no verdict.
- Nobody is called a culprit unless it failed alone and the canary passed.
- One canary per recovery: it tells a broken model from a poisoned item, and a model that breaks
  in mid-recovery is found by the next batch's canary. The caller tells the breaker of a bad one.
- Memory that runs out for one member alone, while its neighbours fit, is that member's: the memory
  budget is afterwards what it was. Otherwise an input that never fits, sent again and again, would
  end batching for everybody.
- It ends: a run that fails takes one item out or is cut into two smaller ones, so n items need at
  most 2n - 2 further runs (2n - 1 with the one that failed first).
- Depth first: the halves of a failed half run before its neighbour, so that answers leave early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.core.item import Item, ItemState
from service.core.memory import MemoryBudget, padded_units


class FaultSort(StrEnum):
    """How a batch failed. A lost device is none of these: it is never retried or halved."""

    OOM = "oom"
    ERROR = "error"
    INPUT = "input"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of one item: an error code, with the sentence and limit of an invalid input."""

    item: Item
    code: str
    message: str = ""
    limit: int = 0


@dataclass(frozen=True, slots=True)
class CanaryStep:
    """Run the canary on the same worker and report it with :meth:`Recovery.canary`."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """Run these items on the same worker and report :meth:`Recovery.good` or ``failed``."""

    items: tuple[Item, ...]


class Recovery:
    """One failed batch until every member has its end.

    Ask :meth:`next_step`, do it, report it, ask again; ``None`` means finished. A step stays the
    next one until it is reported.

    Attributes:
        items: the batch that failed first.
        verdicts: the ends that the first failure decided at once.
        confirmed: the canary was bad: one failure for the breaker.
        runs: runs asked for so far, the first one not counted.
        splits: how often a failed run was cut into halves.
    """

    def __init__(
        self,
        items: Sequence[Item],
        sort: FaultSort,
        *,
        index: int = -1,
        message: str = "",
        limit: int = 0,
        budget: MemoryBudget,
    ) -> None:
        """Begin with the first failure; the arguments are those of :meth:`failed`."""
        self.items = tuple(items)
        self.confirmed = False
        self.runs = 0
        self.splits = 0
        self._budget = budget
        self._before = self._after = budget.mark
        self._alone_failed = 0
        self._fitted = False
        self._todo: list[tuple[Item, ...]] = []
        self._suspended: tuple[Item, ...] | None = None
        self._canary_wanted = False
        self._canary_good = False
        self._running: tuple[Item, ...] = self.items
        self.verdicts = self.failed(items, sort, index, message, limit)

    @property
    def running(self) -> tuple[Item, ...]:
        """What the worker is running for it now; empty before and between runs."""
        return self._running

    @property
    def open(self) -> tuple[Item, ...]:
        """Members that still wait for their end."""
        groups = [self._running, self._suspended or (), *reversed(self._todo)]
        return tuple(item for group in groups for item in _live(group))

    def next_step(self) -> CanaryStep | RunStep | None:
        """What to do now on the worker; ``None``: every member has its end."""
        if self._canary_wanted:
            return CanaryStep()
        while not self._running and self._todo:
            self._running = _live(self._todo.pop())
            self.runs += bool(self._running)
        if self._running:
            return RunStep(self._running)
        self._absolve()
        return None

    def canary(self, *, ok: bool) -> list[Verdict]:
        """The canary's verdict on the model.

        Raises:
            ValueError: none was asked for.
        """
        if not self._canary_wanted:
            raise ValueError("no canary was asked for")
        self._canary_wanted = False
        if not ok:
            self.confirmed = True
            return self.abort("circuit_open")
        self._canary_good = True
        suspended, self._suspended = self._suspended, None
        return self._divide(suspended) if suspended else []

    def good(self, items: Sequence[Item]) -> None:
        """The running sub-batch was answered.

        Raises:
            ValueError: it is not the one that is running.
        """
        self._budget.good(padded_units(self._take(items)))
        self._fitted = True

    def failed(
        self,
        items: Sequence[Item],
        sort: FaultSort,
        index: int = -1,
        message: str = "",
        limit: int = 0,
    ) -> list[Verdict]:
        """The running sub-batch failed; returns the ends that this decides.

        Args:
            items: what ran.
            sort: how it failed.
            index: which item is at fault (INPUT only; outside the batch it is taken for ERROR).
            message: for ``invalid_input``: what to send instead.
            limit: for ``invalid_input``: the limit that was passed, 0 for none.

        Raises:
            ValueError: it is not the one that is running.
        """
        ran = self._take(items)
        if sort is FaultSort.INPUT and 0 <= index < len(ran):
            rest = ran[:index] + ran[index + 1 :]
            self._push(rest)
            return _verdicts(ran[index : index + 1], "invalid_input", message, limit)
        if sort is FaultSort.OOM:
            return self._shrink(ran)
        if self._canary_good:
            return self._divide(ran)
        self._canary_wanted = True
        self._suspended = ran
        return []

    def abort(self, code: str) -> list[Verdict]:
        """Give every member that is still open this end: the model is broken, the worker lost."""
        verdicts = _verdicts(self.open, code)
        self._todo.clear()
        self._running = ()
        self._suspended = None
        self._canary_wanted = False
        return verdicts

    def _shrink(self, ran: tuple[Item, ...]) -> list[Verdict]:
        padded = padded_units(ran)
        self._budget.failed(padded)
        self._after = self._budget.mark
        if len(ran) > 1:
            self._push_halves(ran)
            return []
        self._alone_failed += 1
        # The answer is known; the canary only decides whether the breaker hears of it.
        self._canary_wanted = not self._canary_good
        too_large = padded > self._budget.largest_good
        return _verdicts(ran, "payload_too_large" if too_large else "out_of_memory")

    def _absolve(self) -> None:
        """At the end: if one item alone was to blame, the size of the batch was not."""
        alone = self._fitted or len(self.items) == 1
        if self._alone_failed == 1 and alone and not self.confirmed:
            self._budget.restore(self._before, self._after)
            self._alone_failed = 0

    def _divide(self, ran: tuple[Item, ...]) -> list[Verdict]:
        if len(ran) == 1:
            return _verdicts(ran, "model_error")
        self._push_halves(ran)
        return []

    def _push_halves(self, ran: tuple[Item, ...]) -> None:
        self.splits += 1
        middle = (len(ran) + 1) // 2
        self._push(ran[middle:])
        self._push(ran[:middle])

    def _push(self, items: tuple[Item, ...]) -> None:
        if items:
            self._todo.append(items)

    def _take(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """End the running step; items are the same only if they are the same objects."""
        ran = self._running
        same = len(items) == len(ran) and all(a is b for a, b in zip(items, ran, strict=True))
        if not ran or not same:
            raise ValueError("these items are not running")
        self._running = ()
        return ran


def _live(items: Sequence[Item]) -> tuple[Item, ...]:
    return tuple(i for i in items if not i.abandoned and i.state is not ItemState.DONE)


def _verdicts(items: Sequence[Item], code: str, message: str = "", limit: int = 0) -> list[Verdict]:
    return [Verdict(item, code, message, limit) for item in _live(items)]
