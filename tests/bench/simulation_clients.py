"""Who asks, when, and what a client does with a refusal.

Arrivals are Poisson with a rate that is constant piece by piece; bursts are a two-state modulation
of it. Each user has a text and a patience, uniform over 0.5 to 1.5 of the default deadline, which
is named as the request's deadline: the client leaves then. A user whose attempt fails may try
again, as the kind of client that it is says; the user's success counts, not the attempt's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.bench.simulation_device import LETTERS, Device

Rate = tuple[tuple[float, float], ...]
"""Pieces of a rate: from when on, and then how many times C."""

BURST, CALM = 3.0, 0.5
BURST_S, CALM_S = 1.0, 4.0
"""Bursts of three times the load for about one second, half of it for about four. The times are
those of a device that is not stretched."""


@dataclass(slots=True, eq=False)
class User:
    """One who wants one answer.

    Attributes:
        at: when it first asks, seconds from the start.
        words, letters: its text.
        patience_s: how long each of its attempts may take.
        attempts: how many it made.
        ended: when it knew its end.
        outcome: ``ok`` or the last error code; empty while it waits.
        overtime_s: how long after its deadline an attempt ended, the most of all its attempts.
    """

    at: float
    words: int
    letters: int
    patience_s: float
    attempts: int = 0
    ended: float = 0.0
    outcome: str = ""
    overtime_s: float = -math.inf

    @property
    def ok(self) -> bool:
        """Whether it has its answer."""
        return self.outcome == "ok"

    @property
    def latency_s(self) -> float:
        """From its first attempt to its end."""
        return self.ended - self.at


@dataclass(frozen=True)
class Retry:
    """A kind of client: what it does when an attempt fails.

    Attributes:
        most: how often it tries again.
        first_s: its first pause; each next one is twice as long.
        jitter: a pause is any time from 0 to that.
        budget: retries that each first attempt earns for all clients together.
        honours: it waits at least as long as ``Retry-After`` says.
    """

    most: int = 0
    first_s: float = 0.1
    jitter: bool = False
    budget: float = math.inf
    honours: bool = False

    @property
    def lasts_s(self) -> float:
        """Where the server can stretch it: how long after the first attempt the last one comes.

        ``Retry-After`` is a whole second at least, so clients that obey it go on for so long after
        a burst is over. The pauses of the others are shorter than anything that is asserted.
        """
        return float(self.most) if self.honours else 0.0

    def pause_s(self, attempt: int, retry_after_s: float | None, random: Random) -> float:
        """Seconds until the next attempt, after ``attempt`` of them."""
        pause = self.first_s * 2.0 ** (attempt - 1)
        if self.jitter:
            pause *= random.random()
        if self.honours and retry_after_s is not None:
            pause = max(pause, math.ceil(retry_after_s))  # the header has whole seconds
        return pause


GIVES_UP = Retry()
AT_ONCE = Retry(most=3, first_s=0.005)
"""As good as no pause: 5, 10 and 20 ms, the way to the server and back."""
BACKS_OFF = Retry(most=3)
BUDGETED = Retry(most=3, jitter=True, budget=0.1)
HONOURS = Retry(most=3, jitter=True, honours=True)


def bursty(mean: float, seconds: float, stretch: float, seed: int) -> Rate:
    """A two-state modulated rate; over that time it has exactly that mean."""
    random = Random(f"bursts {seed}")
    starts, at, burst = [], 0.0, False
    while at < seconds:
        starts.append(at)
        at += stretch * random.expovariate(1.0 / (BURST_S if burst else CALM_S))
        burst = not burst
    times = [BURST if number % 2 else CALM for number in range(len(starts))]
    lasted = [end - start for start, end in zip(starts, [*starts[1:], seconds], strict=True)]
    drawn = sum(t * s for t, s in zip(times, lasted, strict=True)) / seconds
    return tuple((start, t * mean / drawn) for start, t in zip(starts, times, strict=True))


def users(device: Device, rate: Rate, capacity: float, seconds: float, seed: int) -> list[User]:
    """Everybody who comes, in order; texts and patience do not depend on the rate."""
    random = Random(f"users {seed}")
    return [
        User(
            at=at,
            words=device.draw(random),
            letters=random.choice(LETTERS),
            patience_s=device.deadline_s * random.uniform(0.5, 1.5),
        )
        for at in _arrivals(rate, capacity, seconds, Random(f"arrivals {seed}"))
    ]


def _arrivals(rate: Rate, capacity: float, seconds: float, random: Random) -> Iterator[float]:
    """Poisson arrivals; a Poisson stream has no memory, so each piece begins anew."""
    ends = [*(start for start, _ in rate[1:]), seconds]
    for (start, times), end in zip(rate, ends, strict=True):
        at = start + random.expovariate(times * capacity)
        while at < min(end, seconds):
            yield at
            at += random.expovariate(times * capacity)
