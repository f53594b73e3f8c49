"""A virtual-time event loop: hours pass in milliseconds, and every time is exact.

The selector never waits. When nothing is ready it jumps the clock to the next timer; ``loop.time``
is that clock. So ``asyncio.sleep``, ``wait_for``, ``call_later`` and ``call_at`` work unchanged,
and code that takes a clock gets ``loop.time``.

Laws
- Between two timers no time passes: what a callback does costs nothing.
- A test never hangs. Nothing left to wait for is :class:`NothingLeft`, with the tasks that still
  wait; timers that go on for ever, or callbacks that never let the clock move, end as
  :class:`RanAway`.
- No threads: one could not be waited for in virtual time, so asking for one is an error.
- The clock does not start at 0, or a time of 0 that means "never" would pass for a real one.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

START_S = 1000.0
"""Where the clock starts, in seconds."""

LIMIT_S = 7 * 86_400.0
"""Virtual seconds after which a run has gone astray."""

MOST_IDLE_TURNS = 1_000_000
"""Turns of the loop without the clock moving after which a run has gone astray."""


class NothingLeft(RuntimeError):
    """Somebody waits, but nothing that could wake it will ever happen."""


class RanAway(RuntimeError):
    """The run passed its limit of virtual time, or spins without time passing."""


class _JumpingSelector(selectors.BaseSelector):
    """A real selector that is never allowed to wait; it tells its loop how far to jump."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.loop: VirtualLoop | None = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if not ready and self.loop is not None:
            self.loop.jump(timeout)
        return ready

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock moves only when everybody waits."""

    def __init__(self, *, start_s: float = START_S, limit_s: float = LIMIT_S) -> None:
        selector = _JumpingSelector()
        self._now = start_s
        self._until = start_s + limit_s
        self._idle_turns = 0
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self._now

    def jump(self, timeout: float | None) -> None:
        """Nothing is ready: move the clock to the next timer, ``timeout`` seconds away."""
        if timeout is None:
            raise NothingLeft(f"nothing will ever wake: {self._waiting()}")
        if timeout <= 0:
            self._idle_turns += 1
            if self._idle_turns > MOST_IDLE_TURNS:
                self._idle_turns = 0  # the tasks may still be cancelled in peace
                raise RanAway(f"time stands still at {self._now}: {self._waiting()}")
            return
        self._idle_turns = 0
        self._now += timeout
        if self._now > self._until:
            raise RanAway(f"still running at {self._now}: {self._waiting()}")

    def run_in_executor(  # type: ignore[override]  # it never returns
        self, executor: Any, func: Any, *args: Any
    ) -> NoReturn:
        raise RuntimeError(f"no threads in virtual time ({func!r} asked for one)")

    def _waiting(self) -> str:
        tasks = sorted(task.get_name() + " " + _place(task) for task in asyncio.all_tasks(self))
        return "; ".join(tasks) or "no task at all"


def _place(task: asyncio.Task[Any]) -> str:
    stack = task.get_stack(limit=1)
    name = getattr(task.get_coro(), "__qualname__", "?")
    return f"({name}, line {stack[-1].f_lineno})" if stack else f"({name})"


def run_virtual(
    main: Coroutine[Any, Any, T], *, start_s: float = START_S, limit_s: float = LIMIT_S
) -> T:
    """Run ``main`` in a fresh virtual loop and return its result; the counterpart of asyncio.run.

    Raises:
        NothingLeft: it waits for something that can never happen.
        RanAway: it runs for more than ``limit_s`` virtual seconds.
    """

    def new_loop() -> VirtualLoop:
        return VirtualLoop(start_s=start_s, limit_s=limit_s)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
