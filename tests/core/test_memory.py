"""The memory budget: what fitted or half of what failed, back in sixteenths, never for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.memory import (
    FLOOR_PARTS,
    GROW_AFTER,
    GROW_PARTS,
    HOLD,
    MemoryBudget,
    padded_units,
)
from tests.core.items import new_item


def _good(budget: MemoryBudget, batches: int, padded: float = 1.0) -> None:
    for _ in range(batches):
        budget.good(padded)


def test_padded_is_items_times_the_longest() -> None:
    """A batch is as large as its longest member times its number; nothing is nothing."""
    assert padded_units([new_item(units=3.0), new_item(units=7.0)]) == 14.0
    assert padded_units([]) == 0.0


def test_unlimited_at_first() -> None:
    """Before any failure time alone bounds a batch."""
    budget = MemoryBudget()
    assert budget.limit(500.0) == 500.0
    assert budget.tokens == 500.0
    _good(budget, 10 * GROW_AFTER)
    assert budget.limit(800.0) == 800.0


def test_failure_halves_what_failed() -> None:
    """The next batch is at most half as large as the one that did not fit."""
    budget = MemoryBudget()
    budget.limit(1000.0)
    budget.failed(600.0)
    assert budget.limit(1000.0) == 300.0
    assert budget.tokens == 300.0


def test_large_lone_failure_does_not_raise_the_budget() -> None:
    """A lone item larger than the budget fails: half of it may be more than was allowed before."""
    budget = MemoryBudget()
    budget.limit(1000.0)
    budget.failed(200.0)
    budget.failed(900.0)
    assert budget.limit(1000.0) == 100.0


def test_grows_by_a_sixteenth_for_every_fifty_good_batches() -> None:
    """It rises after exactly fifty good batches, by a sixteenth of the maximum, step by step."""
    budget = MemoryBudget()
    budget.limit(1600.0)
    budget.failed(800.0)
    for expected in (400.0, 500.0, 600.0):
        _good(budget, 49)
        assert budget.limit(1600.0) == expected
        _good(budget, 1)
        assert budget.limit(1600.0) == expected + 100.0


def test_unlimited_again_when_it_reaches_the_maximum() -> None:
    """At the maximum the bound is gone: a larger maximum later is allowed at once."""
    budget = MemoryBudget()
    budget.limit(1600.0)
    budget.failed(3000.0)
    assert budget.limit(1600.0) == 1500.0
    _good(budget, 50)
    assert budget.limit(9999.0) == 9999.0


def test_never_under_a_thirty_second_of_the_maximum() -> None:
    """One strange small item that never fits must not end batching for everybody."""
    budget = MemoryBudget()
    budget.limit(3200.0)
    budget.failed(4.0)
    assert budget.limit(3200.0) == 100.0


def test_good_sizes_are_remembered() -> None:
    """The largest size that went through is known, whatever came after; nothing at first."""
    budget = MemoryBudget()
    assert budget.largest_good == 0.0
    for size in (10.0, 70.0, 30.0):
        budget.good(size)
    budget.failed(200.0)
    assert budget.largest_good == 70.0


def test_failure_starts_the_count_anew() -> None:
    """Good batches before a failure do not help the budget up after it."""
    budget = MemoryBudget()
    budget.limit(1600.0)
    budget.failed(800.0)
    _good(budget, GROW_AFTER - 1)
    budget.failed(400.0)
    _good(budget, GROW_AFTER - 1)
    assert budget.limit(1600.0) == 200.0


def test_slow_phase_does_not_end_the_bound_early() -> None:
    """A small maximum, while the device is slow, does not make it forget what failed."""
    budget = MemoryBudget()
    budget.limit(1600.0)
    budget.failed(1600.0)
    assert budget.limit(100.0) == 100.0
    _good(budget, GROW_AFTER)
    assert budget.limit(1600.0) == 900.0


def _bounded() -> MemoryBudget:
    """One of 400 of 1600, under which a batch of 380 has fitted."""
    budget = MemoryBudget()
    budget.limit(1600.0)
    budget.failed(800.0)
    budget.good(380.0)
    return budget


def test_falls_to_what_has_fitted() -> None:
    """A size that fitted since the lack began is known to: less than that is not called for."""
    budget = _bounded()
    budget.failed(480.0)
    assert budget.limit(1600.0) == 380.0


def test_tries_more_than_what_has_fitted_three_times_as_seldom() -> None:
    """The step that failed is tried again after a hundred good batches more than the others."""
    budget = _bounded()
    budget.failed(480.0)
    for more, expected in ((HOLD, 380.0), (GROW_AFTER, 480.0), (GROW_AFTER, 580.0)):
        _good(budget, more - 1)
        assert budget.limit(1600.0) < expected or more == HOLD
        _good(budget, 1)
        assert budget.limit(1600.0) == expected


def test_comes_back_twice_as_fast_once_what_failed_fits() -> None:
    """Where a size fits that had failed there is more memory again; a new failure ends that."""
    budget = _bounded()
    budget.failed(480.0)
    _good(budget, HOLD + GROW_AFTER, 380.0)
    assert budget.limit(1600.0) == 480.0
    budget.good(480.0)
    _good(budget, GROW_AFTER // 2 - 1)
    assert budget.limit(1600.0) == 580.0
    _good(budget, GROW_AFTER // 2)
    assert budget.limit(1600.0) == 680.0
    budget.failed(600.0)
    _good(budget, HOLD + GROW_AFTER - 1)
    assert budget.limit(1600.0) == 480.0


@pytest.mark.parametrize("failed", [380.0, 300.0])
def test_what_had_fitted_and_fails_is_no_bound(failed: float) -> None:
    """Where there is less memory than there was it halves, as if nothing had ever fitted."""
    budget = _bounded()
    budget.failed(failed)
    assert budget.limit(1600.0) == failed / 2
    budget.failed(failed)
    assert budget.limit(1600.0) == failed / 2


def test_what_fitted_before_the_lack_proves_nothing() -> None:
    """The sizes of better times do not keep it up: neither those before, nor of the last lack."""
    budget = MemoryBudget()
    budget.limit(1600.0)
    budget.good(1500.0)
    budget.failed(1600.0)
    assert budget.limit(1600.0) == 800.0
    _good(budget, GROW_AFTER * GROW_PARTS, 790.0)
    budget.failed(800.0)
    assert budget.limit(1600.0) == 400.0


@given(part=st.floats(0.1, 0.9))
def test_lies_just_under_what_fits(part: float) -> None:
    """Under a lack that stays it comes to lie within a step of what fits, and seldom tries more."""
    budget, maximum = MemoryBudget(), 3200.0
    fits = part * maximum
    sizes, failures = [], 0
    for _ in range(5000):
        size = budget.limit(maximum)
        if size > fits:
            budget.failed(size)
            failures += 1
        else:
            budget.good(size)
            sizes.append(size)
    late = sizes[len(sizes) // 2 :]
    assert min(late) >= fits - maximum / GROW_PARTS
    assert failures <= 5 + 5000 / (HOLD + GROW_AFTER)


@given(
    failures=st.lists(st.floats(1.0, 1e6), min_size=1, max_size=20),
    fitted=st.lists(st.floats(1.0, 1e6), max_size=20),
)
def test_comes_back_within_the_promised_batches(failures: list[float], fitted: list[float]) -> None:
    """After any failures, 900 good batches make it unlimited again: nothing is lost for ever."""
    budget = MemoryBudget()
    budget.limit(1e6)
    for padded in failures:
        budget.failed(padded)
        for size in fitted:
            budget.good(size)
    budget.failed(failures[-1])
    _good(budget, HOLD + GROW_AFTER * GROW_PARTS)
    assert budget.limit(1e6) == 1e6
    assert budget.limit(1e9) == 1e9


@given(
    maximum=st.floats(1.0, 1e6),
    events=st.lists(st.tuples(st.booleans(), st.floats(0.1, 1e6)), max_size=60),
)
def test_stays_in_its_bounds(maximum: float, events: list[tuple[bool, float]]) -> None:
    """Never over the maximum nor under a thirty-second of it; a failure never raises it.

    Until fifty good batches have passed, of which those count twice that come once the size that
    failed last fits, it is at most half of that size, or a smaller one that fitted after the first
    failure.
    """
    budget = MemoryBudget()
    floor = maximum / FLOOR_PARTS
    good, most, failed = 0, maximum, maximum
    fitted: set[float] = set()
    eased = False
    for ok, padded in events:
        before = budget.limit(maximum)
        if ok:
            budget.good(padded)
            fitted |= {padded} if before < maximum else set()
            good += 2 if padded >= failed or eased else 1
            eased = eased or padded >= failed
        else:
            budget.failed(padded)
            smaller = max((size for size in fitted if size < padded), default=0.0)
            good, most = 0, max(padded / 2, floor, smaller)
            failed, eased = padded, False
        after = budget.limit(maximum)
        assert floor <= after <= maximum
        assert ok or after <= before
        assert good >= GROW_AFTER or after <= most


@pytest.mark.parametrize("unlimited", [True, False])
def test_fitted_sizes_are_remembered_without_growth(unlimited: bool) -> None:
    """What the warm-up proved counts as having fitted, but is no good batch."""
    budget = MemoryBudget()
    budget.limit(1600.0)
    if not unlimited:
        budget.failed(800.0)
    before = budget.limit(1600.0)
    for size in [*range(GROW_AFTER), 77, 3]:
        budget.fitted(float(size))
    assert budget.largest_good == 77.0
    assert budget.limit(1600.0) == before


def test_failure_before_any_maximum_is_its_own_maximum() -> None:
    """A failure before anybody asked for the limit still leaves room to grow."""
    budget = MemoryBudget()
    budget.failed(160.0)
    assert budget.tokens == 80.0
    _good(budget, GROW_AFTER)
    assert budget.tokens == 90.0
