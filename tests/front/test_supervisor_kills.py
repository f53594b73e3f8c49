"""The kernel's memory kills: each belongs to one worker."""

from __future__ import annotations

from service.supervisor.kills import KernelKills
from tests.front.supervised import FakeKernel


def test_a_kill_is_claimed_once() -> None:
    """One kill explains one SIGKILL, however many workers there are."""
    kernel = FakeKernel()
    kills = KernelKills(kernel)
    assert not kills.claim()
    kernel.kills = 1
    assert [kills.claim(), kills.claim()] == [True, False]
    kernel.kills = 3
    assert [kills.claim(), kills.claim(), kills.claim()] == [True, True, False]


def test_kills_before_us_and_beside_us() -> None:
    """What was killed before the start, or was none of ours, explains nothing later."""
    kernel = FakeKernel()
    kernel.kills = 5
    kills = KernelKills(kernel)
    assert not kills.claim()
    kernel.kills = 6
    kills.forget()
    assert not kills.claim()
