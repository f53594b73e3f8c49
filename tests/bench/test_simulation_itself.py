"""The simulation keeps its own promises: the same each time, the books balance, nobody is lost."""

from __future__ import annotations

import pytest

from tests.bench.simulation import row
from tests.bench.simulation_clients import bursty, users
from tests.bench.simulation_device import CPU, GPU, Device
from tests.bench.simulation_figures import wasted
from tests.bench.simulation_story import Record, Story, capacity, play
from tests.bench.simulation_targets import TARGETS
from tests.tools import ROOT

DEVICES = pytest.mark.parametrize("device", [CPU, GPU], ids=lambda device: device.name)


def _busy() -> Record:
    return play(Story(GPU, ((0.0, 3.0),), 4.0))


def test_same_story_twice() -> None:
    """A seed is a story: every user has the same end at the same moment in each run."""
    first, second = (
        [(user.at, user.outcome, user.ended) for user in _busy().users] for _ in range(2)
    )
    assert first == second


def test_books_agree() -> None:
    """The product's own count of useful and wasted model time is what users saw."""
    record = _busy()
    seconds = sum(batch.seconds for batch in record.batches)
    assert record.wasted_s > 0
    assert record.wasted_s + record.useful_s == pytest.approx(seconds)
    share = wasted([record], 0.0, seconds)
    assert record.wasted_s / seconds == pytest.approx(share)


@DEVICES
def test_offered_load_is_what_was_asked_for(device: Device) -> None:
    """Poisson or bursty, over a long time users come at the rate that the story names."""
    for rate in (((0.0, 2.0),), bursty(2.0, 400.0, device.times.stretch, 1)):
        crowd = users(device, rate, 50.0, 400.0, 1)
        assert len(crowd) == pytest.approx(2.0 * 50.0 * 400.0, rel=0.03)
        mean = sum(user.words for user in crowd) / len(crowd)
        assert mean == pytest.approx(device.mean_words, rel=0.03)


@DEVICES
def test_capacity_is_far_above_one_by_one(device: Device) -> None:
    """C counts batches: it is more than the mean text alone would allow, and no more than none."""
    alone = 1.0 / device.times.seconds(device.mean_words)
    assert capacity(device) > alone
    least = min(device.sample) * device.times.unit_s * device.times.stretch
    assert capacity(device) < 1.0 / least


def test_paper_names_every_target() -> None:
    """The table of targets in the paper on performance has the bounds that are held here."""
    paper = (ROOT / "docs" / "performance.md").read_text()
    for target in TARGETS:
        found = [line for line in paper.splitlines()
                 if line.startswith(row((target.number, target.what, target.wanted(CPU)))[:-1])
                 and f"| {target.wanted(GPU)} |" in line]  # fmt: skip
        assert found, f"{target.number} {target.what}: not in docs/performance.md, or other bounds"
