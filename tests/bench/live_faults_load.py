"""The load of ``live_faults``: who asks, for how long, and what they were told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from time import monotonic

from service.bench.schedule import Lengths
from tests.e2e.load import Answer, Call, send
from tests.e2e.server import Server

CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Subject:
    """One server, its texts and what must hold."""

    name: str
    flags: tuple[str, ...]
    lengths: Lengths
    mask: str = ""
    poisoned: float | None = None
    fits: float | None = None
    stretch: float = 1.0
    """How much slower the device is made, all its times alike."""

    def call(self, chance: Random, most: int, **headers: str) -> Call:
        """A request with a text of some length."""
        words = min(most, self.lengths.draw(chance))
        text = " ".join([*["word"] * max(0, words - bool(self.mask)), self.mask]).strip()
        return Call(text, {name.replace("_", "-"): value for name, value in headers.items()})


SUBJECTS = (
    Subject("cpu", ("--model", "synthetic:cpu", "--deadline-ms", "646"), Lengths(), "", 0.85, 0.88),
    Subject("gpu", ("--model", "synthetic:gpu", "--deadline-ms", "1228"),
            Lengths(128.0, 0.8, 8, 512), "", 0.35, 0.72, stretch=4.0),
    Subject("packaged", (), Lengths(), "[MASK]"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pace:
    """How long each phase lasts, in seconds."""

    closed: float = 15.0
    broken: float = 20.0
    low: float = 60.0


QUICK = Pace(5.0, 8.0, 12.0)


@dataclass(slots=True)
class Asked:
    """What was asked and told: the words, when it was due, and the answer."""

    all: list[tuple[int, float, Answer]] = field(default_factory=list)

    def between(self, start: float, end: float) -> list[Answer]:
        """The answers to what was due from ``start`` to ``end``, by the monotonic clock."""
        return [answer for _, due, answer in self.all if start <= due < end]

    def words_per_s(self, start: float, end: float) -> float:
        """Words that were answered with 200, in each second."""
        done = sum(w for w, _, one in self.all if one.status == 200 and start <= one.at < end)
        return done / (end - start)

    def codes(self) -> Counter[str]:
        """How often each code came."""
        return Counter(answer.code for _, _, answer in self.all)


Make = Callable[[Random], Call]


async def closed(server: Server, make: Make, seconds: float, asked: Asked) -> None:
    """So many clients who ask again as soon as they are told."""
    end = monotonic() + seconds

    async def client(number: int) -> None:
        chance = Random(number)
        while (due := monotonic()) < end:
            call = make(chance)
            answer = await send(server.port, call)
            asked.all.append((len(str(call.body).split()), due, answer))
            if answer.status != 200:
                await asyncio.sleep(0.02)

    await asyncio.gather(*(client(number) for number in range(CONNECTIONS)))


async def poisson(server: Server, make: Make, rate: float, seconds: float, asked: Asked) -> None:
    """Requests at that rate, whatever becomes of those before."""
    chance, due = Random(1), monotonic()
    end = due + seconds
    tasks = set()

    async def one(call: Call, due: float) -> None:
        answer = await send(server.port, call)
        asked.all.append((len(str(call.body).split()), due, answer))

    while (due := due + chance.expovariate(rate)) < end:
        await asyncio.sleep(max(0.0, due - monotonic()))
        task = asyncio.create_task(one(make(chance), due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


async def meanwhile(load: Awaitable[None], *steps: tuple[float, Callable[[], None]]) -> None:
    """Take each step so many seconds after the one before, while the load goes on."""

    async def walk() -> None:
        for pause_s, step in steps:
            await asyncio.sleep(pause_s)
            step()

    await asyncio.gather(load, walk())
