"""The virtual-time loop itself: every other test in virtual time stands on it."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.virtual import START_S, NothingLeft, RanAway, VirtualLoop, run_virtual


def _now() -> float:
    return asyncio.get_running_loop().time()


def test_sleep_is_exact_and_costs_no_real_time() -> None:
    """An hour of sleep takes no real time and ends exactly an hour later."""

    async def main() -> float:
        began = _now()
        await asyncio.sleep(3600.0)
        return _now() - began

    real = time.monotonic()
    assert run_virtual(main()) == 3600.0
    assert time.monotonic() - real < 60.0


def test_timers_fire_in_the_order_of_their_times() -> None:
    """Timers fire by time, whatever the order in which they were set, each at its own time."""

    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []
        done = asyncio.Event()

        def note(name: str) -> None:
            seen.append((name, loop.time() - START_S))
            if name == "c":
                done.set()

        loop.call_later(3.0, note, "c")
        loop.call_at(START_S + 1.0, note, "a")
        loop.call_later(2.0, note, "b")
        loop.call_later(2.5, note, "never").cancel()
        await done.wait()
        return seen

    assert run_virtual(main()) == [("a", 1.0), ("b", 2.0), ("c", 3.0)]


def test_wait_for_times_out_at_its_time() -> None:
    """wait_for gives up exactly at its limit."""

    async def main() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.25)
        return _now() - START_S

    assert run_virtual(main()) == 0.25


def test_work_takes_no_virtual_time() -> None:
    """While a task can go on the clock stands still."""

    async def main() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return _now()

    assert run_virtual(main()) == START_S


def test_tasks_meet_in_virtual_time() -> None:
    """Tasks that wait for each other see one clock."""

    async def main() -> list[float]:
        queue: asyncio.Queue[int] = asyncio.Queue()

        async def feed() -> None:
            for number in range(3):
                await asyncio.sleep(10.0)
                queue.put_nowait(number)

        async with asyncio.TaskGroup() as group:
            group.create_task(feed())
            times = []
            for _ in range(3):
                await queue.get()
                times.append(_now() - START_S)
        return times

    assert run_virtual(main()) == [10.0, 20.0, 30.0]


def test_nothing_left_names_who_waits() -> None:
    """A wait that nothing can end fails at once and says which task it is."""

    async def stuck() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(stuck(), name="the-stuck-one")

    with pytest.raises(NothingLeft, match=r"the-stuck-one \(.*stuck, line \d+\)"):
        run_virtual(main())


def test_timers_for_ever_run_away() -> None:
    """A periodic timer cannot keep a stuck test alive for ever."""

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def tick() -> None:
            loop.call_later(1.0, tick)

        tick()
        await asyncio.Event().wait()

    with pytest.raises(RanAway, match="still running at"):
        run_virtual(main(), limit_s=100.0)


def test_spinning_runs_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callbacks that never let the clock move are found too."""
    monkeypatch.setattr("tests.virtual.MOST_IDLE_TURNS", 1000)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def spin() -> None:
            loop.call_soon(spin)

        spin()
        await asyncio.Event().wait()

    with pytest.raises(RanAway, match="time stands still"):
        run_virtual(main())


def test_threads_are_refused() -> None:
    """A thread cannot be waited for in virtual time, so asking for one says so."""

    async def main() -> None:
        with pytest.raises(RuntimeError, match="no threads in virtual time"):
            await asyncio.to_thread(time.monotonic)

    run_virtual(main())


def test_exceptions_and_results_pass_through() -> None:
    """What the coroutine raises or returns is what the runner raises or returns."""

    async def main(*, fail: bool) -> str:
        await asyncio.sleep(1.0)
        if fail:
            raise KeyError("mine")
        return "done"

    assert run_virtual(main(fail=False)) == "done"
    with pytest.raises(KeyError, match="mine"):
        run_virtual(main(fail=True))


def test_ready_sockets_are_seen_before_time_moves() -> None:
    """Data on a socket is served before the clock jumps past it."""

    async def main() -> tuple[bytes, float]:
        import socket

        loop = asyncio.get_running_loop()
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            right.setblocking(False)
            left.send(b"now")
            data = await asyncio.wait_for(loop.sock_recv(right, 16), 5.0)
        return data, loop.time() - START_S

    assert run_virtual(main()) == (b"now", 0.0)


def test_loop_is_closed_afterwards() -> None:
    """The runner leaves no open loop behind, also after a failure."""
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        await asyncio.Event().wait()

    with pytest.raises(NothingLeft):
        run_virtual(main())
    assert isinstance(loops[0], VirtualLoop)
    assert loops[0].is_closed()
