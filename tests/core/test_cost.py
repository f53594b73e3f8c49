"""The cost model: never zero, never endless, moved a little by each batch, never locked in."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.cost import MEASURED_BATCHES, Cost

FIXED_S, UNIT_S = 0.005, 0.0005


def _cost(**given_: float) -> Cost:
    values = {
        "fixed_s": FIXED_S,
        "unit_s": UNIT_S,
        "units_per_char": 0.25,
        "prepare_s_per_char": 1e-6,
    }
    return Cost(**(values | given_))


def test_estimate_is_the_fit_until_something_is_learnt() -> None:
    """An untaught model says what the warm-up measured."""
    assert _cost().batch_s(100.0) == pytest.approx(0.055)
    assert _cost().batch_s(0.0) == pytest.approx(FIXED_S)
    assert not _cost().measured


@given(
    seconds=st.lists(
        st.one_of(st.floats(0.0, 1e6), st.just(math.nan), st.just(math.inf), st.just(-1.0)),
        max_size=60,
    ),
    padded=st.floats(1.0, 1e6),
)
def test_one_batch_moves_speed_a_little(seconds: list[float], padded: float) -> None:
    """Whatever one batch took, speed moves by at most 1.4 up or 0.86 down; nonsense is ignored.

    Only a second one in a row that is off by more than 3 the same way moves it by 3.
    """
    cost = _cost()
    last = 0
    for taken in seconds:
        before = cost.speed
        nonsense = not math.isfinite(taken) or taken < 0
        ratio = 1.0 if nonsense else taken / cost.batch_s(padded)
        off = (ratio > 3) - (ratio < 1 / 3)
        cost.learn_batch(padded, padded, taken)
        most = 3.0 if off and off == last else 1.4
        least = 1 / 3 if off and off == last else 13 / 15
        close = 1 + 1e-9
        assert before * least / close <= cost.speed <= before * most * close or cost.speed == 1e-6
        if nonsense:
            assert cost.speed == before
        else:
            last = off
        assert 0 < cost.batch_s(padded) < math.inf


def test_one_stall_is_an_accident_two_in_a_row_are_not() -> None:
    """A stall moves speed a little, also if it comes again later; two together are believed."""
    cost = _cost()
    stalled, usual = 10.0, FIXED_S + UNIT_S * 100.0
    for taken in (stalled, usual, stalled, usual):
        cost.learn_batch(100.0, 100.0, taken)
    assert cost.speed < 1.7
    cost.speed = 1.0
    cost.learn_batch(100.0, 100.0, stalled)
    cost.learn_batch(100.0, 100.0, stalled)
    assert cost.speed == pytest.approx(1.4 * 3)


@given(
    batches=st.lists(
        st.tuples(st.integers(0, 10**5), st.integers(0, 10**5), st.floats(0.0, 1e4)), max_size=50
    ),
    items=st.lists(
        st.tuples(
            st.integers(0, 10**6),
            st.integers(0, 10**5),
            st.one_of(st.floats(0.0, 1e3), st.just(math.nan), st.just(math.inf)),
        ),
        max_size=30,
    ),
    fit=st.tuples(*[st.one_of(st.floats(-1.0, 10.0), st.just(math.nan))] * 4),
)
def test_estimates_are_positive_and_finite(
    batches: list[tuple[int, int, float]],
    items: list[tuple[int, int, float]],
    fit: tuple[float, float, float, float],
) -> None:
    """No fit and no history makes an estimate negative, endless or not a number."""
    cost = Cost(*fit)
    for padded, units, seconds in batches:
        cost.learn_batch(padded, units, seconds)
    for chars, count, seconds in items:
        cost.learn_item(chars, count, seconds)
    for size in (0.0, 1.0, 1e6):
        assert 0 < cost.batch_s(size) < math.inf
        assert 0 <= cost.padded_within(size) < math.inf
        assert 0 <= cost.line_s(size, 10, 100.0) < math.inf
    assert 1 <= cost.units(1000) < math.inf
    assert 0 <= cost.prepare_s(1000) < math.inf
    assert 1 <= cost.padding < math.inf


@pytest.mark.parametrize("wrong", [0.01, 100.0])
def test_wrong_start_is_unlearnt(wrong: float) -> None:
    """A fit that is a hundred times off, either way, is within a tenth after twenty batches."""
    cost = _cost()
    cost.speed = wrong
    for _ in range(20):
        cost.learn_batch(200.0, 150.0, FIXED_S + UNIT_S * 200.0)
    assert cost.speed == pytest.approx(1.0, rel=0.1)


def test_measured_after_ten_batches() -> None:
    """Only real batches make the model sure enough to call a deadline impossible."""
    cost = _cost()
    for n in range(MEASURED_BATCHES):
        assert not cost.measured, n
        cost.learn_batch(10.0, 10.0, math.nan)
        cost.learn_batch(10.0, 10.0, 0.01)
    assert cost.measured


@given(speed=st.floats(0.01, 100.0), seconds=st.floats(0.0, 1e3))
def test_budget_is_the_inverse_of_the_estimate(speed: float, seconds: float) -> None:
    """The largest batch for a time takes that time; none is promised where not even one fits."""
    cost = _cost()
    cost.speed = speed
    padded = cost.padded_within(seconds)
    if padded > 0:
        assert cost.batch_s(padded) == pytest.approx(seconds)
    else:
        assert cost.batch_s(0.0) >= seconds * (1 - 1e-9)


@given(units=st.lists(st.floats(0.0, 1e5), min_size=2, max_size=6), budget=st.floats(1.0, 1e5))
def test_longer_lines_take_longer(units: list[float], budget: float) -> None:
    """The time of a line never falls with its length, and nothing takes no time."""
    cost = _cost()
    lines = [cost.line_s(size, 1000, budget) for size in sorted(units)]
    assert lines == sorted(lines)
    assert cost.line_s(0.0, 0, budget) == 0.0


def test_line_pays_the_fixed_cost_for_every_batch() -> None:
    """A line that does not fit one batch pays the fixed cost several times."""
    cost = _cost()
    cost.padding = 1.0
    assert cost.line_s(100.0, 10, 1000.0) == pytest.approx(FIXED_S + 100 * UNIT_S)
    assert cost.line_s(100.0, 10, 30.0) == pytest.approx(4 * FIXED_S + 100 * UNIT_S)


def test_a_line_of_which_nothing_may_join_is_run_one_by_one() -> None:
    """With no budget every item pays the fixed cost, and no line has more batches than items."""
    cost = _cost()
    cost.padding = 1.0
    assert cost.line_s(100.0, 10, 0.0) == pytest.approx(10 * FIXED_S + 100 * UNIT_S)
    assert cost.line_s(100.0, 2, 1.0) == pytest.approx(2 * FIXED_S + 100 * UNIT_S)


def test_padding_follows_what_batches_had() -> None:
    """The share of padding is learnt from batches, never below none."""
    cost = _cost()
    for _ in range(100):
        cost.learn_batch(300.0, 100.0, 0.1)
    assert cost.padding == pytest.approx(3.0, rel=0.01)
    for _ in range(100):
        cost.learn_batch(50.0, 100.0, 0.1)
    assert cost.padding == pytest.approx(1.0, rel=0.01)


def test_characters_teach_units_and_preparation() -> None:
    """The guess for a text follows the texts that came; an empty one teaches nothing."""
    cost = _cost()
    for _ in range(200):
        cost.learn_item(100, 50.0, 0.001)
    assert cost.units(1000) == pytest.approx(500.0, rel=0.01)
    assert cost.prepare_s(1000) == pytest.approx(0.01, rel=0.01)
    before = (cost.units_per_char, cost.prepare_s_per_char)
    cost.learn_item(0, 50.0, 0.001)
    assert (cost.units_per_char, cost.prepare_s_per_char) == before


@given(chars=st.integers(0, 10**6))
def test_guessed_units_are_whole(chars: int) -> None:
    """Tokens are counted, so guesses are whole numbers, and the queue's sum of them is exact."""
    cost = _cost(units_per_char=0.2371)
    assert cost.units(chars) == int(cost.units(chars)) >= 1
