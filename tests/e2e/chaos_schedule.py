"""Schedules of chaos as plain data: what happens when, from a seed alone.

A schedule is one round of load and faults. Every deed of :data:`DEEDS` happens at least once in a
full round; the rest of the time is filled with more of them at random, mostly plain requests. What
costs a worker is spread over the round, since a service without a worker has nothing to break.

Laws
- The same seed, round and kind give the same schedule, on every machine.
- A schedule survives JSON, so that it can be printed, changed by hand and played again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

Args = dict[str, Any]
"""What a deed needs to know, as JSON values."""


class Kind(StrEnum):
    """What a round is for."""

    FULL = "full"
    GENTLE = "gentle"
    """One worker is lost, no more: for a model that takes long to load."""
    DRAIN = "drain"
    """In the middle of it the server is told to stop."""


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that somebody does at a moment.

    Attributes:
        at_s: seconds since the round began.
        what: a row of the table in ``chaos``.
        number: which one of the round; its texts and ids are made from it.
        args: how it is done.
    """

    at_s: float
    what: str
    number: int
    args: Args = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One round, on a server with so many workers."""

    seed: int
    round: int
    workers: int
    kind: Kind
    deeds: tuple[Deed, ...]

    def dumps(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def loads(cls, line: str) -> Self:
        """Read what :meth:`dumps` wrote."""
        value = json.loads(line)
        deeds = tuple(Deed(**deed) for deed in value["deeds"])
        return cls(value["seed"], value["round"], value["workers"], Kind(value["kind"]), deeds)


def _each(what: str, **choices: tuple[Any, ...]) -> Iterator[tuple[str, Args]]:
    """Every combination of the choices."""
    combinations: list[Args] = [{}]
    for name, values in choices.items():
        combinations = [args | {name: value} for args in combinations for value in values]
    return ((what, args) for args in combinations)


FORMS = ("text", "json", "list", "keep", "pipeline")
MOMENTS = ("head", "half", "sent", "due")
WAYS = ("fin", "rst")
BAD = (
    "empty", "torn", "number", "none", "no_utf8", "image", "zipped", "soon", "unknown_fault",
    "unknown_parameter", "deep",
)  # fmt: skip
ODD = ("garbage", "length", "endless_header", "nowhere", "put")
HUGE = ("declared", "sent", "chunks", "flood", "items", "words", "fits")

CLIENTS: tuple[tuple[str, Args], ...] = (
    *_each("plain", form=FORMS),
    *_each("fault", fault=("slow=60", "slow=250", "raise", "oom", "oom-always", "nan")),
    *_each("hasty", timeout_ms=(1, 30, 120, 400)),
    *_each("leave", when=MOMENTS, how=WAYS),
    *_each("bad", which=BAD),
    *_each("odd", which=ODD),
    *_each("huge", which=HUGE),
    *_each("dribble", part=("body", "head")),
    *_each("stall", after=(0, 5)),
    *_each("slow_head", after=(0, 9)),
    *_each("deaf", pages=(40,)),
    *_each("burst", requests=(40,)),
)
"""What costs no worker."""

KILLING = ("hang", "exit", "segfault", "device-lost")
"""Faults that cost the worker."""

DEADLY: tuple[tuple[str, Args], ...] = (
    *_each("fault", fault=KILLING),
    *_each("poison", text=(1,)),
    *_each("kill", worker=(0,)),
    *_each("stop", worker=(0,), resume_ms=(0, 150)),
)
"""What costs a worker, or may (a worker that is resumed in time goes on)."""

DEEDS = (*CLIENTS, *DEADLY)

MOSTLY = (
    *("plain",) * 12,
    *("fault", "leave") * 3,
    *("hasty", "bad") * 2,
    *("huge", "dribble", "stall", "burst", "slow_head", "deaf", "odd"),
)
"""What fills a round up, with weights."""

_BY_NAME = {name: [deed for deed in CLIENTS if deed[0] == name] for name in MOSTLY}

POISON_TIMES = 3
"""How often a round sends the same deadly text: two lone kills make it poisoned, if there were."""


def make_schedule(
    seed: int,
    number: int,
    kind: Kind = Kind.FULL,
    *,
    seconds: float,
    rate: float,
    workers: int = 1,
    shares: int = 1,
) -> Schedule:
    """One round.

    Args:
        seed: of the whole run.
        number: of the round.
        kind: of the round.
        seconds: how long deeds begin.
        rate: deeds in a second, but for the worst of them.
        workers: how many the server has.
        shares: over so many rounds the deeds that cost a worker are spread, or it would have none
            for most of a short one.
    """
    chance = random.Random(f"{seed} {number} {kind}")
    fill = round(seconds * rate) - len(CLIENTS)
    dealt = [*CLIENTS, *(chance.choice(_BY_NAME[chance.choice(MOSTLY)]) for _ in range(fill))]
    deeds = [(round(chance.uniform(0, seconds), 3), *deed) for deed in dealt]
    deadly = _deadly(seed, number // shares, kind, workers)[number % shares :: shares]
    if kind is Kind.DRAIN:
        deadly = chance.sample(DEADLY, 2)
    for place, deed in enumerate(deadly):
        at_s = (place + chance.random()) * seconds / len(deadly)
        deeds.append((round(at_s, 3), *deed))
    if kind is Kind.DRAIN:
        deeds.append((round(seconds / 2, 3), "terminate", {}))
    deeds.sort(key=lambda deed: deed[0])
    numbered = (Deed(at_s, what, n, args) for n, (at_s, what, args) in enumerate(deeds))
    return Schedule(seed, number, workers, kind, tuple(numbered))


def probe(number: int) -> Deed:
    """One plain request after the chaos."""
    return Deed(0.0, "probe", number)


def _deadly(seed: int, turn: int, kind: Kind, workers: int) -> list[tuple[str, Args]]:
    chance = random.Random(f"{seed} {turn} deadly")
    if kind is Kind.GENTLE:
        return [chance.choice(DEADLY)]
    poison = [deed for deed in DEADLY if deed[0] == "poison"]
    deeds = [*DEADLY, *poison * (POISON_TIMES - 1)]
    chance.shuffle(deeds)
    return [
        (what, args | {"worker": chance.randrange(workers)} if "worker" in args else args)
        for what, args in deeds
    ]
