"""The targets under faults, on both devices: poison, a broken model, a lack of memory.

The real dispatcher in virtual time, with fixed seeds: the same figures in every run.
"""

from __future__ import annotations

import pytest

from tests.bench import simulation_closed
from tests.bench.simulation_device import CPU, GPU, Device
from tests.bench.simulation_faults import broken, poison, short_of_memory

both = pytest.mark.parametrize("device", [CPU, GPU], ids=lambda device: device.name)


@both
def test_poison_costs_its_own_answer_and_some_time(device: Device) -> None:
    """Target T14: no innocent fails, the poisoned are told, and most of the goodput is left."""
    found = poison(device)
    assert found.innocent == 0
    assert found.guilty > 5
    assert found.goodput >= (0.85 if device is CPU else 0.35)
    assert found.runs <= (8.0 if device is CPU else 15.0)


@both
def test_a_broken_model_costs_five_batches(device: Device) -> None:
    """Target T15: five batches are lost before it opens; soon after the fault all is well."""
    found = broken(device)
    assert 1 <= found.batches <= 5
    assert found.users <= 0.02
    assert found.back_s <= 2.0


@both
def test_less_memory_costs_size_and_no_request(device: Device) -> None:
    """Target T18: with less memory nearly all that fits is served, and nobody hears of it."""
    found = short_of_memory(device)
    assert 0 < found.overflows <= 30.0
    assert found.tokens >= (0.88 if device is CPU else 0.72)
    assert found.back_s <= 30.0
    assert found.errors == 0


def test_less_memory_under_a_load_that_takes_all_there_is() -> None:
    """Target T18 in a closed loop: where batches have a large fixed cost too.

    There half of what fits answers half of the words, so the budget has to lie just under it.
    """
    found = simulation_closed.short_of_memory(GPU)
    assert 0 < found.overflows <= 15.0
    assert found.tokens >= 0.88
    assert found.errors == 0
