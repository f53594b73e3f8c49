"""Limits: every auto becomes a number that fits the model measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.batching import pick
from service.core.cost import Cost
from service.core.limits import (
    DEADLINE_LADDER_S,
    MOST_CHARS,
    Limits,
    LimitSettings,
    derive,
    rung,
)
from tests.core.items import waiting_item

AUTO = LimitSettings(
    deadline_ms=None,
    max_deadline_ms=60_000,
    max_wait_ms=None,
    batch_ms=None,
    watchdog_ms=None,
    max_chars=None,
)


def _derive(
    settings: LimitSettings = AUTO,
    *,
    fixed_s: float = 0.005,
    unit_s: float = 0.0005,
    typical_units: float = 33.0,
    max_tokens: int = 512,
) -> Limits:
    return derive(
        settings,
        fixed_s=fixed_s,
        unit_s=unit_s,
        typical_units=typical_units,
        max_tokens=max_tokens,
    )


@given(seconds=st.floats(0.0, 1e4))
def test_rung_rounds_up_to_the_ladder(seconds: float) -> None:
    """The next step that is at least as long; the top one for anything longer."""
    step = rung(seconds)
    assert step in DEADLINE_LADDER_S
    assert step >= seconds or step == DEADLINE_LADDER_S[-1]
    assert not [s for s in DEADLINE_LADDER_S if seconds <= s < step]


def test_auto_limits_of_a_known_model() -> None:
    """5 ms and 0.5 ms a token, 33 tokens: 30 runs are 645 ms, so a deadline of one second."""
    limits = _derive()
    assert limits.deadline_s == 1.0
    assert limits.wait_cap_s == 0.5
    assert limits.batch_s == 0.125
    assert limits.max_deadline_s == 60.0


@given(
    fixed_s=st.floats(1e-6, 10.0),
    unit_s=st.floats(1e-7, 0.1),
    typical_units=st.floats(1.0, 1000.0),
)
def test_auto_limits_fit_each_other(fixed_s: float, unit_s: float, typical_units: float) -> None:
    """The wait cap is half the deadline; a batch takes an eighth, or twice the fixed cost."""
    limits = _derive(fixed_s=fixed_s, unit_s=unit_s, typical_units=typical_units)
    typical_s = 30 * (fixed_s + unit_s * typical_units)
    assert limits.deadline_s >= min(typical_s, 60.0)
    assert limits.deadline_s <= limits.max_deadline_s
    assert limits.wait_cap_s == limits.deadline_s / 2
    assert limits.deadline_s / 8 <= limits.batch_s <= limits.deadline_s / 2
    assert limits.batch_s >= min(2 * fixed_s, limits.deadline_s / 2)


def test_set_values_are_taken_as_they_are() -> None:
    """What the operator sets is not second-guessed; the deadline stays under its maximum."""
    settings = replace(AUTO, deadline_ms=2500, max_wait_ms=100, batch_ms=40, watchdog_ms=7000)
    limits = _derive(settings)
    assert (limits.deadline_s, limits.wait_cap_s, limits.batch_s) == (2.5, 0.1, 0.04)
    assert limits.watchdog(100.0) == 7.0
    assert _derive(replace(AUTO, deadline_ms=90_000)).deadline_s == 60.0
    assert _derive(replace(AUTO, max_deadline_ms=700)).deadline_s == 0.7


def test_wait_cap_follows_a_set_deadline() -> None:
    """An auto value derives from the deadline in force, whoever set it."""
    limits = _derive(replace(AUTO, deadline_ms=8000))
    assert (limits.wait_cap_s, limits.batch_s) == (4.0, 1.0)


@pytest.mark.parametrize(
    "predicted_s, limit_s", [(0.0, 5.0), (0.1, 5.0), (0.5, 5.0), (0.6, 6.0), (3.0, 30.0)]
)
def test_watchdog_is_ten_times_predicted_and_five_seconds_at_least(
    predicted_s: float, limit_s: float
) -> None:
    """A short batch is not killed for a hiccup, a long one has time in proportion."""
    assert _derive().watchdog(predicted_s) == pytest.approx(limit_s)


@pytest.mark.parametrize(
    "max_tokens, items, chars",
    [(128, 1, 4096), (128, 2, 8192), (512, 4, 65536), (512, 64, MOST_CHARS), (128, 0, 4096)],
)
def test_characters_grow_with_items_up_to_the_most(max_tokens: int, items: int, chars: int) -> None:
    """32 characters a token and item, never more than can be tokenised in time."""
    assert _derive(max_tokens=max_tokens).max_chars(items) == chars


@pytest.mark.parametrize("items", [1, 64])
def test_set_characters_hold_for_the_whole_request(items: int) -> None:
    """A set limit is a limit per request, however many items."""
    assert _derive(replace(AUTO, max_chars=777)).max_chars(items) == 777


def test_batch_time_grows_with_a_slow_device() -> None:
    """An auto batch time is at least twice the present fixed cost, at most half the deadline."""
    limits = _derive(replace(AUTO, deadline_ms=8000))
    assert limits.batch_time(0.01) == limits.batch_s == 1.0
    assert limits.batch_time(0.7) == 1.4
    assert limits.batch_time(50.0) == 4.0
    assert _derive(replace(AUTO, deadline_ms=8000, batch_ms=40)).batch_time(0.7) == 0.04


def test_batch_time_does_not_rest_on_the_warm_up() -> None:
    """A fixed cost that was measured far too high does not allow long batches for ever."""
    limits = _derive(replace(AUTO, deadline_ms=8000), fixed_s=1.5)
    assert limits.batch_s == 3.0
    assert limits.batch_time(0.015) == 1.0


def test_batching_goes_on_while_the_device_is_slow() -> None:
    """Three times slower than in warm-up, many items still share a batch."""
    fixed_s, unit_s = 0.06, 8e-6
    cost = Cost(fixed_s, unit_s, 0.25, 0.0)
    cost.speed = 3.0
    limits = _derive(replace(AUTO, deadline_ms=1228), fixed_s=fixed_s, unit_s=unit_s)
    assert cost.padded_within(limits.batch_s) == 0
    budget = cost.padded_within(limits.batch_time(cost.batch_s(0.0)))
    waiting = [waiting_item(units=100.0) for _ in range(40)]
    assert len(pick(waiting, 0.0, cost=cost, budget=budget).items) > 10
