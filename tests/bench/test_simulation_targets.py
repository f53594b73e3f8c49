"""The targets of the policy, on both devices: a change that harms it fails here, each time alike.

Each docstring is the law; the bounds stand in ``simulation_targets``.
"""

from __future__ import annotations

import pytest

from tests.bench.simulation_device import CPU, GPU, Device
from tests.bench.simulation_targets import broken

pytestmark = pytest.mark.parametrize("device", [CPU, GPU], ids=lambda device: device.name)


def test_overload_costs_a_tenth_of_the_goodput(device: Device) -> None:
    """Target T1: whatever the load over C, nearly all of C comes out as answers in time."""
    assert not broken("T1", device)


def test_no_load_is_refused_without_need(device: Device) -> None:
    """Target T2: under C nearly everybody is served, and at half of it everybody."""
    assert not broken("T2", device)


def test_goodput_is_not_made_of_short_requests(device: Device) -> None:
    """Target T3: counted in tokens the goodput at ten times C is as good as counted in answers."""
    assert not broken("T3", device)


def test_model_time_is_for_those_who_wait(device: Device) -> None:
    """Target T4: the model hardly ever works for somebody who has left, at any load."""
    assert not broken("T4", device)


def test_nobody_waits_for_a_no(device: Device) -> None:
    """Target T5: under overload nearly everybody who is not served is told so at once."""
    assert not broken("T5", device)


def test_answers_come_soon(device: Device) -> None:
    """Target T6: even under overload an answer that comes does not come at the last moment."""
    assert not broken("T6", device)


def test_nobody_waits_past_the_deadline(device: Device) -> None:
    """Target T7: everybody is told something by his own deadline."""
    assert not broken("T7", device)


def test_long_and_short_are_treated_alike(device: Device) -> None:
    """Target T8: under overload long requests succeed nearly as often as short ones."""
    assert not broken("T8", device)


def test_no_timer_makes_anybody_wait(device: Device) -> None:
    """Target T9: at half the load the median is little more than the time of one batch."""
    assert not broken("T9", device)


def test_burst_leaves_nothing_behind(device: Device) -> None:
    """Target T10: two seconds after a burst of ten times C all is as before, retries or none.

    Clients that obey ``Retry-After`` prolong the burst by what it says, a second for each retry.
    """
    assert not broken("T10", device)


def test_slow_device_is_noticed(device: Device) -> None:
    """Target T11: while the device is three times slower most of what it can do is goodput."""
    assert not broken("T11", device)


def test_wrong_estimator_never_locks_anybody_out(device: Device) -> None:
    """Target T12: however wrong the warm-up was, the first request is served, and soon all are."""
    assert not broken("T12", device)


def test_bursts_are_ridden_out(device: Device) -> None:
    """Target T13: with bursty traffic the model serves what it can and wastes next to nothing."""
    assert not broken("T13", device)


def test_breaker_stays_closed_by_independent_failures(device: Device) -> None:
    """Target T16: a tenth of all runs fails, each by itself, and the breaker never opens."""
    assert not broken("T16", device)


def test_stalled_worker_is_noticed(device: Device) -> None:
    """Target T17: while a batch is overdue whoever comes is told so at once."""
    assert not broken("T17", device)
