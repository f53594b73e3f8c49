"""The idle and the taking timer of a connection, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.http.protocol.flow import IdleTimer, TakingTimer
from tests.virtual import run_virtual

IDLE_S = 5.0

PAUSES = st.floats(0.0, IDLE_S - 0.001)
USES = st.floats(0.0, 3 * IDLE_S)


class Watched:
    """An idle timer in the running loop; it notes when it called, and every timer that it set."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.calls: list[float] = []
        self.set: list[asyncio.TimerHandle] = []
        self.timer = IdleTimer(self, IDLE_S, lambda: self.calls.append(self.time()))  # type: ignore[arg-type]

    def time(self) -> float:
        return self.loop.time()

    def call_later(self, seconds: float, then: Any) -> asyncio.TimerHandle:
        self.set.append(self.loop.call_later(seconds, then))
        return self.set[-1]

    @property
    def waiting(self) -> int:
        """How many timers of its wait to fire."""
        return sum(not one.cancelled() and one.when() > self.time() for one in self.set)


@given(life=st.lists(st.tuples(PAUSES, USES), max_size=20))
def test_it_calls_exactly_when_idle_for_so_long(life: list[tuple[float, float]]) -> None:
    """However often it was used: one call, so long after the last use, and none before."""

    async def main() -> None:
        watched = Watched()
        for pause_s, use_s in life:
            watched.timer.begin()
            await asyncio.sleep(pause_s)
            watched.timer.end()
            await asyncio.sleep(use_s)
            assert watched.calls == []
            assert watched.waiting <= 1
        began = watched.time()
        watched.timer.begin()
        await asyncio.sleep(10 * IDLE_S)
        assert watched.calls == pytest.approx([began + IDLE_S], abs=1e-6)

    run_virtual(main())


def test_it_never_calls_while_in_use() -> None:
    """A use may last for ever, whether it began before the timer fired or never paused at all."""

    async def main() -> None:
        fresh, used = Watched(), Watched()
        used.timer.begin()
        await asyncio.sleep(IDLE_S - 0.001)
        used.timer.end()
        await asyncio.sleep(1000 * IDLE_S)
        fresh.timer.end()
        assert (fresh.calls, used.calls) == ([], [])
        assert (fresh.waiting, used.waiting) == (0, 0)

    run_virtual(main())


def test_use_sets_no_timers() -> None:
    """A connection used a hundred times a second has one timer, set anew once an idle time."""

    async def main() -> None:
        watched = Watched()
        for _ in range(10_000):
            watched.timer.begin()
            await asyncio.sleep(0.005)
            watched.timer.end()
            await asyncio.sleep(0.005)
            assert watched.waiting <= 1
        assert len(watched.set) <= 10_000 * 0.01 / (IDLE_S - 0.005) + 1
        assert watched.calls == []

    run_virtual(main())


@pytest.mark.parametrize("idle_s", [0.0, 1.0])
def test_cancelled_is_never(idle_s: float) -> None:
    """A cancelled timer calls no more and leaves nothing that waits; cancelling twice is fine."""

    async def main() -> None:
        watched = Watched()
        watched.timer.cancel()
        watched.timer.begin()
        await asyncio.sleep(idle_s)
        watched.timer.cancel()
        watched.timer.cancel()
        assert watched.waiting == 0
        await asyncio.sleep(10 * IDLE_S)
        assert watched.calls == []
        watched.timer.begin()
        assert watched.waiting == 1  # nothing is left of the cancelling either

    run_virtual(main())


def test_beginning_again_begins_anew() -> None:
    """Whoever becomes idle while idle is idle from then on."""

    async def main() -> None:
        watched = Watched()
        watched.timer.begin()
        await asyncio.sleep(IDLE_S - 1)
        began = watched.time()
        watched.timer.begin()
        await asyncio.sleep(10 * IDLE_S)
        assert watched.calls == pytest.approx([began + IDLE_S])

    run_virtual(main())


def test_idle_again_after_a_call() -> None:
    """Whoever lives on after the call, and becomes idle again, is called again."""

    async def main() -> None:
        watched = Watched()
        began = watched.time()
        for _ in range(2):
            watched.timer.begin()
            await asyncio.sleep(2 * IDLE_S)
        assert watched.calls == pytest.approx([began + IDLE_S, began + 3 * IDLE_S])

    run_virtual(main())


@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_a_slow_client_is_waited_for_as_long_as_it_takes_something(rounds: int) -> None:
    """It is given up when it has taken nothing for so long, and not before."""

    async def main() -> None:
        loop, left, calls = asyncio.get_running_loop(), [1000], []
        timer = TakingTimer(loop, IDLE_S, lambda: left[0], lambda: calls.append(loop.time()))
        began = loop.time()
        timer.arm()
        for _ in range(rounds):
            await asyncio.sleep(IDLE_S - 0.5)
            left[0] -= 1
            await asyncio.sleep(0.5)
        assert calls == []
        await asyncio.sleep(3 * IDLE_S)
        assert calls == pytest.approx([began + (rounds + 1) * IDLE_S], abs=1e-6)
        assert not timer.armed

    run_virtual(main())


def test_a_client_that_caught_up_is_not_watched() -> None:
    """Disarmed it never calls."""

    async def main() -> None:
        calls: list[float] = []
        timer = TakingTimer(asyncio.get_running_loop(), IDLE_S, lambda: 1, lambda: calls.append(1))
        timer.arm()
        timer.disarm()
        await asyncio.sleep(3 * IDLE_S)
        assert calls == []

    run_virtual(main())
