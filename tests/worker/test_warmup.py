"""The warm-up finds the line of a batch's cost and the longest input, whatever the model does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.worker.interface import CannotLoad
from service.worker.pipelines.room import step_units
from service.worker.pipelines.warmup import (
    FIT_S,
    LEAST_UNIT_S,
    MAX_FIT_UNITS,
    UNKNOWN_LENGTH,
    fit_cost,
    fit_line,
    fit_sizes,
    length_limit,
    prove_length,
)


class Machine:
    """A clock that a batch moves on by its cost, and the sizes that were run."""

    def __init__(self, cost: Callable[[int], float]) -> None:
        self.now = 100.0
        self.cost = cost
        self.ran: list[tuple[int, int]] = []

    def clock(self) -> float:
        return self.now

    def run(self, items: int, length: int) -> None:
        self.ran.append((items, length))
        self.now += self.cost(items * length)

    def fit(self, *, batchable: bool = True) -> tuple[float, float]:
        sizes = fit_sizes(9, 512, MAX_FIT_UNITS, batchable=batchable)
        return fit_cost(self.run, sizes, self.clock)


@given(st.floats(0, 1), st.floats(1e-7, 0.1))
def test_line_is_found(fixed: float, unit: float) -> None:
    """Points on a line give that line."""
    points = [(units, fixed + unit * units) for units in (9, 64, 128, 4096)]
    assert fit_line(points) == pytest.approx((fixed, unit), rel=1e-3, abs=1e-8)


@given(st.lists(st.tuples(st.integers(1, 10_000), st.floats(1e-6, 100)), min_size=1, max_size=8))
def test_line_is_usable(points: list[tuple[float, float]]) -> None:
    """Whatever was measured, a is not negative, b is positive, and both are finite."""
    fixed, unit = fit_line(points)
    assert 0 <= fixed < 1e6
    assert LEAST_UNIT_S <= unit < 1e6


def test_growing_cost_without_a_fixed_part() -> None:
    """A curve that would cross zero is taken through it."""
    fixed, unit = fit_line([(10, 0.01), (1000, 10.0)])
    assert fixed == 0.0
    assert 0.001 < unit < 0.01


def test_cpu_is_fitted_with_little() -> None:
    """Where cost grows at once a few small batches are enough, and the line is right."""
    machine = Machine(lambda units: 0.005 + 0.0005 * units)
    assert machine.fit() == pytest.approx((0.005, 0.0005))
    assert max(items * length for items, length in machine.ran) <= 256


def test_gpu_is_fitted_beyond_its_flat_part() -> None:
    """Where small batches cost the same, sizes grow until the cost does."""
    machine = Machine(lambda units: 0.004 + 1e-6 * units + 2e-6 * max(0, units - 2048))
    fixed, unit = machine.fit()
    assert 4096 <= max(items * length for items, length in machine.ran) <= MAX_FIT_UNITS
    assert fixed + unit * 9 == pytest.approx(0.004, rel=0.2)
    assert fixed + unit * 16384 == pytest.approx(machine.cost(16384), rel=0.4)


def test_slow_model_is_not_measured_for_minutes() -> None:
    """After the time for it no further size is begun, but two there are."""
    machine = Machine(lambda units: 1.0 + 0.001 * units)
    machine.fit()
    assert len(set(machine.ran)) == 2
    quick = Machine(lambda units: FIT_S / 20)
    quick.fit()
    assert quick.now - 100 < 1.5 * FIT_S


def test_one_slow_run_does_not_count() -> None:
    """The first run of a shape and a single stall leave no trace in the line."""
    machine = Machine(lambda units: 0.005 + 0.0005 * units)
    plain = machine.cost
    machine.cost = lambda units: plain(units) * (100 if len(machine.ran) % 4 == 1 else 1)
    assert machine.fit() == pytest.approx((0.005, 0.0005))
    machine = Machine(lambda units: plain(units) * (100 if len(machine.ran) % 4 == 3 else 1))
    assert machine.fit() == pytest.approx((0.005, 0.0005))


def test_a_slope_lost_in_noise_is_no_free_ride() -> None:
    """Where larger batches seem to cost nothing, a share of their time counts as their size."""
    machine = Machine(lambda units: 0.1 if units < 64 else 0.08)
    fixed, unit = machine.fit()
    largest = max(items * length for items, length in machine.ran)
    assert unit * largest == pytest.approx(0.05 * 0.08)
    assert fixed + unit * largest == pytest.approx(0.08)


def test_unbatchable_model_is_measured_alone() -> None:
    """Where items cannot share a batch, longer inputs stand for larger ones."""
    machine = Machine(lambda units: 0.005 + 1e-9 * units)
    machine.fit(batchable=False)
    assert {items for items, _ in machine.ran} == {1}
    assert max(length for _, length in machine.ran) == 512


def model(positions: object, padding_idx: int | None = None) -> Any:
    """As much of a model as the limit is read from."""
    config = SimpleNamespace(max_position_embeddings=positions)
    modules = [
        ("embeddings.word_embeddings", SimpleNamespace(padding_idx=0)),
        ("embeddings.position_embeddings", SimpleNamespace(padding_idx=padding_idx)),
    ]
    return SimpleNamespace(
        config=SimpleNamespace(get_text_config=lambda: config), named_modules=lambda: modules
    )


@pytest.mark.parametrize(
    "positions,padding_idx,tokenizer_limit,limit",
    [
        (512, None, 512, 512),
        (512, None, 10**30, 512),
        (514, 1, 512, 512),
        (514, 1, 10**30, 512),
        (512, None, 128, 128),
        (None, None, 512, 512),
        (-1, None, 512, 512),
        (None, None, 10**30, UNKNOWN_LENGTH),
    ],
)
def test_length_limit(
    positions: object, padding_idx: int | None, tokenizer_limit: int, limit: int
) -> None:
    """The smaller of both limits counts, positions without those before the offset."""
    tokenizer = SimpleNamespace(model_max_length=tokenizer_limit)
    assert length_limit(model(positions, padding_idx), tokenizer) == limit


def fails_above(most: int, error: type[Exception]) -> Callable[[int], None]:
    """A model that takes no more than that."""

    def run(length: int) -> None:
        if length > most:
            raise error

    return run


@pytest.mark.parametrize("most,proved", [(600, 512), (512, 512), (510, 510), (509, 256)])
@pytest.mark.parametrize("error", [IndexError, RuntimeError, MemoryError])
def test_length_is_proved(most: int, proved: int, error: type[Exception]) -> None:
    """A length counts only if the model ran at it."""
    assert prove_length(fails_above(most, error), 512, 9) == proved


def test_no_length_is_no_model() -> None:
    """A model that fails at every length is refused, and so is one shorter than the example."""
    with pytest.raises(CannotLoad, match="model_broken"):
        prove_length(fails_above(0, IndexError), 512, 9)
    with pytest.raises(CannotLoad, match="model_broken"):
        prove_length(fails_above(512, IndexError), 8, 9)


def test_lost_device_ends_the_search() -> None:
    """Where the device is lost there is nothing left to try."""

    def run(_: int) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    with pytest.raises(RuntimeError, match="assert"):
        prove_length(run, 512, 9)


@pytest.mark.parametrize("step_s, units", [(0.25, 0.5), (0.0, 0.05 / 9 / 0.5)])
def test_a_step_is_measured_by_the_best(step_s: float, units: float) -> None:
    """Nine new tokens against one, the best of each; what is lost in noise still costs a little."""
    now = 0.0
    slow = iter([5.0, 0.0, 0.0, 5.0, 5.0, 0.0])

    def run(steps: int) -> None:
        nonlocal now
        now += 1.0 - step_s + steps * step_s + next(slow)

    assert step_units(run, 0.5, lambda: now) == pytest.approx(units)
