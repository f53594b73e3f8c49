"""The targets are worth something: a policy without one of its rules misses them by far.

Each test takes one rule away and finds a figure beyond its bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from service.core.admission import Line
from service.core.batching import Pick
from service.core.cost import Cost
from service.core.item import Item
from tests.bench.simulation_device import CPU, GPU, Device
from tests.bench.simulation_figures import Figures, measure
from tests.bench.simulation_stories import trips
from tests.bench.simulation_story import Story, capacity, play
from tests.bench.simulation_targets import TARGETS


@pytest.fixture(autouse=True)
def true_capacity() -> None:
    """C is that of the policy with all its rules."""
    for device in (CPU, GPU):
        capacity(device)


def _bound(number: str, device: Device) -> float:
    return next(row for row in TARGETS if row.number == number).bound(device)


def _played(device: Device, load: float, seconds: float, *, lift_wait_cap: bool = False) -> Figures:
    record = play(Story(device, ((0.0, load),), seconds), lift_wait_cap=lift_wait_cap)
    return measure(device, [record], 0.15 * seconds, seconds)


def test_without_the_wait_cap() -> None:
    """With deadlines alone the backlog grows to the longest one: late, wasteful, unfair."""
    found = _played(GPU, 10.0, 8.0, lift_wait_cap=True)
    assert found.goodput < _bound("T1", GPU)
    assert found.tokens < _bound("T3", GPU)
    assert found.wasted > _bound("T4", GPU)
    assert found.p99 > _bound("T6", GPU)
    assert found.long_to_short < _bound("T8", GPU)


def _oldest_first(
    waiting: Sequence[Item], now: float, *, cost: Cost, budget: float, **_: object
) -> Pick:
    """A batch of the oldest, up to the budget, whatever their length."""
    chosen: list[Item] = []
    longest = 0.0
    for item in waiting:
        longer = max(longest, item.units)
        if chosen and longer * (len(chosen) + 1) > budget:
            break
        chosen.append(item)
        longest = longer
    return Pick(tuple(chosen), (), longest * len(chosen))


@pytest.mark.parametrize("device", [CPU, GPU], ids=lambda device: device.name)
def test_without_regard_to_length(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches in the order of arrival pad most of the model's time away."""
    monkeypatch.setattr("service.dispatcher.pool.pick", _oldest_first)
    assert _played(device, 2.0, 12.0).goodput < _bound("T1", device)


def test_without_the_idle_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle worker that refuses on a prediction locks everybody out for good."""

    def never_idle(_: bool, *rest: Any) -> Line:
        return Line(False, *rest)

    monkeypatch.setattr("service.dispatcher.intake.Line", never_idle)
    record = play(Story(GPU, ((0.0, 0.9),), 7.0, fit_error=100.0))
    assert not any(user.ok for user in record.users)


def test_without_the_canary() -> None:
    """A breaker that believes every failed batch opens although only a tenth of them fails."""
    assert sum(trips(hour, 0.1, 1.0) for hour in range(6)) > 0
