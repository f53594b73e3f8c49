"""Everything at once, at random, with fixed seeds: whatever happens, the books balance.

A schedule mixes arrivals of one and of lists, deadlines, clients that leave, inputs that do each
thing an input can do, workers that die of themselves or are killed, models that break and heal, and
sometimes the end of the service in the middle of it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from service.core.fill import FillMeter
from tests.front.scripted import DEATHS, House, Script, text, virtual

SEEDS = 40
MOMENTS = 60

MARKS = {
    "error": "error",
    "oom": "oom",
    "oomalone": "oom_alone",
    "nan": "empty",
    "input": "input",
    "unfit": "unfit",
    "perror": "prepare_error",
    "pcrash": "prepare_crash",
    "phang": "prepare_hang",
    "slow": "slow=0.5",
    "slower": "slow=6",
    "hang": "hang",
    "crash": "crash",
    "killed": "stray_kill",
    "oomkill": "oom_kill",
    "device": "device_lost",
    "few": "few",
    "wrong": "wrong_batch",
}
GENTLE = ("good", "fine", "plain", "slow", "unfit", "error", "nan", "input", "oom")
ROUGH = (*GENTLE, *MARKS)


class DepthMeter(FillMeter):
    """Also integrates the depth, and finds it over its limit."""

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.item_seconds = 0.0
        self.highest = 0
        self._depth = 0
        self._since = now

    def update(self, now: float, *, depth: int, **values: Any) -> None:
        self.item_seconds += (now - self._since) * self._depth
        self._depth, self._since = depth, now
        self.highest = max(self.highest, depth)
        super().update(now, depth=depth, **values)


class Chaos:
    """One schedule."""

    def __init__(self, house: House, chance: random.Random) -> None:
        self._house = house
        self._chance = chance
        self._names = chance.choice((GENTLE, ROUGH))
        self._leaving: list[asyncio.TimerHandle] = []
        deeds: dict[Callable[[], None], int] = {
            self.arrive: 20,
            self.burst: 2,
            self.list_arrives: 6,
            self.leave: 5,
            self.deadly: 3,
            self.die: 1,
            self.kill: 1,
            self.break_model: 1,
            self.heal_model: 2,
        }
        self._deeds = [deed for deed, weight in deeds.items() for _ in range(weight)]

    async def run(self) -> None:
        """Do something at random moments."""
        for _ in range(MOMENTS):
            await self._house.until(self._house.now + self._chance.randrange(24) / 64)
            self._chance.choice(self._deeds)()
        for handle in self._leaving:
            handle.cancel()

    def input(self) -> str:
        """Some input."""
        return text(self._chance.choice(self._names), self._chance.choice((8, 8, 9, 12, 24, 40)))

    def timeout(self) -> float | None:
        """Some deadline."""
        return self._chance.choice((None, None, 1 / 4, 1 / 2, 1.0, 2.5, 10.0, 30.0))

    def arrive(self) -> None:
        caller = self._house.send(self.input(), timeout_s=self.timeout())
        if caller.ticket is not None and self._chance.random() < 0.2:
            delay_s = self._chance.randrange(64) / 64
            self._leaving.append(self._house.loop.call_later(delay_s, caller.ticket.leave))

    def burst(self) -> None:
        for _ in range(self._chance.randrange(20)):
            self.arrive()

    def list_arrives(self) -> None:
        items = [self.input() for _ in range(self._chance.randrange(1, 6))]
        self._house.send(*items, timeout_s=self.timeout(), is_list=True)

    def deadly(self) -> None:
        """The same deadly input again and again."""
        if self._names is ROUGH:
            self._house.send(text("crash"), timeout_s=30.0)

    def leave(self) -> None:
        tickets = sorted(self._house.dispatcher.tickets, key=lambda ticket: ticket.items[0].id)
        if tickets:
            self._chance.choice(tickets).leave()

    def die(self) -> None:
        ready = [worker for worker in self._house.workers if worker.facts is not None]
        if ready:
            self._chance.choice(ready).die(self._chance.choice(list(DEATHS)))

    def kill(self) -> None:
        """A worker says something that nobody asked for."""
        from service.worker.wire import Probed

        ready = [worker for worker in self._house.workers if worker.facts is not None]
        if ready:
            self._chance.choice(ready).say(Probed(10**9, ok=True))

    def break_model(self) -> None:
        script = self._house.script
        script.every = self._chance.choice(("error", "empty", "hang", "oom_alone", "crash"))
        script.canary = self._chance.choice(("good", "bad", "bad", "lost", "hang", "crash"))

    def heal_model(self) -> None:
        self._house.script.every, self._house.script.canary = "", "good"


@pytest.mark.parametrize("seed", range(SEEDS))
@virtual
async def test_books_balance(seed: int) -> None:
    """One outcome each, in time; no place, timer or ticket is lost; and it serves again."""
    chance = random.Random(seed)
    script = Script(
        marks=dict(MARKS),
        prepare_s=chance.choice((0.0, 0.0, 1 / 64, 1 / 8)),
        reload_s=chance.choice((0.5, 2.0, 8.0)),
        oom_above=chance.choice((1, 2, 4, 1000)),
        keys={"fine": "a", "plain": "b"},
        speed=chance.choice((0.5, 1.0, 1.0, 4.0)),
    )
    house = House(
        script,
        workers=chance.choice((1, 1, 2, 3)),
        queue_limit=chance.choice((6, 12, 64)),
        breaker_failures=chance.choice((1, 3, 5)),
        restart_limit=1000,
    )
    meter = house.dispatcher.fill = DepthMeter(house.loop.time())
    async with house:
        chaos = Chaos(house, chance)
        await chaos.run()
        if chance.random() < 0.3:
            house.dispatcher.stop_admitting()
            assert house.send(text("good")).outcome == "draining"
        else:
            chaos.heal_model()
            script.marks.clear()
            await house.until(house.now + 60.0)
            assert house.dispatcher.tickets == set()
            await house.ready()
            assert await house.send(text("fresh"), timeout_s=60.0).end() == "ok"
            assert house.dispatcher.circuit.state != "open"
        assert house.fatal == []
    assert meter.highest <= house.settings.queue_limit
    assert house.metric("queue_wait_seconds_sum") == pytest.approx(meter.item_seconds)


def test_the_schedules_see_everything() -> None:
    """The seeds together bring about every outcome that the dispatcher can give."""
    seen: Counter[str] = Counter()

    @virtual
    async def run(seed: int) -> None:
        chance = random.Random(seed)
        script = Script(marks=dict(MARKS), oom_above=2, reload_s=0.5)
        async with House(
            script, queue_limit=6, breaker_failures=1, restart_limit=1000, deadline_ms=30_000
        ) as house:
            await Chaos(house, chance).run()
            house.dispatcher.stop_admitting()
            house.send(text("good"))
        seen.update(house.count())

    for seed in range(SEEDS):
        run(seed)
    assert set(seen) >= {
        "ok",
        "invalid_input",
        "poisoned_input",
        "client_gone",
        "model_error",
        "queue_full",
        "overloaded",
        "draining",
        "circuit_open",
        "model_loading",
        "out_of_memory",
        "worker_lost",
        "deadline_exceeded",
    }
