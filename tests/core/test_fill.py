"""The fill meter: integrals do not depend on when somebody looks, and no burst is missed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.fill import PEAK_DECAY_S, FillMeter


def _update(meter: FillMeter, now: float, depth: int = 0, wait_s: float = 0.0) -> None:
    meter.update(now, depth=depth, limit=10, wait_s=wait_s, wait_cap_s=0.5)


def test_integrals_add_value_times_time() -> None:
    """Each value holds until the next update; the fill is the larger of depth and wait."""
    meter = FillMeter(100.0)
    _update(meter, 100.0, depth=5)
    _update(meter, 104.0, depth=10)
    _update(meter, 105.0, depth=1, wait_s=1.0)
    _update(meter, 108.0)
    _update(meter, 200.0)
    assert meter.fill_seconds == pytest.approx(4 * 0.5 + 1 * 1.0 + 3 * 2.0)
    assert meter.full_items_seconds == pytest.approx(1.0)
    assert meter.full_wait_seconds == pytest.approx(3.0)
    assert meter.ratio == 0.0


def test_full_means_the_next_request_is_refused() -> None:
    """Full by items at the limit, full by wait above the cap: as admission decides."""
    meter = FillMeter(0.0)
    _update(meter, 0.0, depth=9, wait_s=0.5)
    _update(meter, 10.0, depth=10)
    assert meter.full_items_seconds == meter.full_wait_seconds == 0.0
    _update(meter, 20.0, wait_s=0.500001)
    _update(meter, 30.0)
    assert (meter.full_items_seconds, meter.full_wait_seconds) == (10.0, 10.0)


def test_without_a_cap_only_depth_counts() -> None:
    """Before the first worker is ready there is no cap, so no wait can fill anything."""
    meter = FillMeter(0.0)
    meter.update(0.0, depth=2, limit=10, wait_s=99.0, wait_cap_s=0.0)
    meter.update(1.0, depth=0, limit=10, wait_s=0.0, wait_cap_s=0.0)
    assert meter.fill_seconds == pytest.approx(0.2)
    assert meter.full_wait_seconds == 0.0


@given(
    steps=st.lists(
        st.tuples(st.floats(0.0, 100.0), st.integers(0, 10), st.floats(0.0, 2.0)), max_size=30
    ),
    looks=st.lists(st.floats(0.0, 1.0), max_size=30),
)
def test_looking_in_between_changes_no_integral(
    steps: list[tuple[float, int, float]], looks: list[float]
) -> None:
    """However often somebody asks for the same state, the integrals are the same."""
    plain, watched = FillMeter(0.0), FillMeter(0.0)
    now, before = 0.0, (0, 0.0)
    for number, (passed, depth, wait_s) in enumerate(steps):
        if number < len(looks):
            _update(watched, now + passed * looks[number], *before)
        now += passed
        before = (depth, wait_s)
        for meter in (plain, watched):
            _update(meter, now, depth, wait_s)
    assert watched.fill_seconds == pytest.approx(plain.fill_seconds)
    assert watched.full_items_seconds == pytest.approx(plain.full_items_seconds)
    assert watched.full_wait_seconds == pytest.approx(plain.full_wait_seconds)
    assert plain.full_items_seconds <= now + 1e-6


def test_time_never_runs_backwards() -> None:
    """An update with an older time takes nothing away and is counted once."""
    meter = FillMeter(10.0)
    _update(meter, 10.0, depth=10)
    _update(meter, 12.0, depth=10)
    _update(meter, 11.0, depth=10)
    _update(meter, 13.0)
    assert meter.full_items_seconds == pytest.approx(3.0)


def test_peak_remembers_a_burst_and_forgets_it_in_a_minute() -> None:
    """A burst between two scrapes is seen by the next, falling to nothing over 60 seconds."""
    meter = FillMeter(0.0)
    _update(meter, 0.0, depth=8)
    _update(meter, 0.1, depth=0)
    assert meter.peak(15.0) == pytest.approx(6.0)
    assert meter.peak(PEAK_DECAY_S) == 0.0
    assert meter.peak(1e6) == 0.0


def test_peak_is_never_under_the_depth() -> None:
    """A new depth over what is left of the old peak is the new peak."""
    meter = FillMeter(0.0)
    _update(meter, 0.0, depth=8)
    _update(meter, 30.0, depth=3)
    assert meter.peak(30.0) == pytest.approx(4.0)
    _update(meter, 45.0, depth=3)
    assert meter.peak(45.0) == 3.0
