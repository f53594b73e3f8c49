"""When to send what: arrivals, lengths and deadlines, drawn before the first request is sent.

Arrivals are Poisson, or bursty: a Poisson process whose rate jumps between three states.

=======  ======  ===============  =========================================
state    rate    share of time    mean stay
=======  ======  ===============  =========================================
calm     0.5 x   60 %             3.6 s
usual    1 x     25 %             1.5 s
burst    3 x     15 %             0.9 s
=======  ======  ===============  =========================================

Laws
- The mean rate of a bursty schedule is the rate asked for in every run, not only in the long run:
  the path of states is scaled to its own mean.
- The same seed gives the same schedule.
- Lengths come as often as they should in every run, not only in the long run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from statistics import NormalDist


class Arrivals(StrEnum):
    """How requests arrive."""

    POISSON = "poisson"
    BURSTY = "bursty"


@dataclass(frozen=True, slots=True)
class BurstState:
    """One state of the bursty process: its rate, and how long it lasts in the mean."""

    factor: float
    stay_s: float


BURST_STATES = (BurstState(0.5, 3.6), BurstState(1.0, 1.5), BurstState(3.0, 0.9))
"""Visited in turn; the shares of time are as the stays, and give a mean factor of 1."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time at one mean rate, in requests per second."""

    seconds: float
    rate: float


STRATA = 256
"""Requests after which lengths have come as often as they should: a few seconds of any load."""

_NORMAL = NormalDist()
_LEAST = 1e-9
"""Away from 0 and 1, where a normal distribution has no value."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lognormal lengths in words, cut to a range."""

    median: float = 24.0
    sigma: float = 0.8
    least: int = 4
    most: int = 512

    def draw(self, chance: Random) -> int:
        """One length, whatever came before it."""
        return self._cut(chance.gauss(0.0, 1.0))

    def draws(self, chance: Random) -> Iterator[int]:
        """Lengths without end, each part of the distribution as often as it should come.

        A few hundred independent draws differ by some percent in their mean, and so would what a
        server answers in a second: here each :data:`STRATA` of them in a row hold one of each
        equally likely part, in random order.
        """
        order = list(range(STRATA))
        while True:
            chance.shuffle(order)
            for part in order:
                share = (part + chance.random()) / STRATA
                yield self._cut(_NORMAL.inv_cdf(min(max(share, _LEAST), 1 - _LEAST)))

    def _cut(self, normal: float) -> int:
        words = round(self.median * math.exp(self.sigma * normal))
        return min(max(words, self.least), self.most)

    def mean(self, chance: Random, draws: int = 20_000) -> float:
        """The mean after cutting, by drawing."""
        return sum(self.draw(chance) for _ in range(draws)) / draws


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Deadlines uniform between ``(1 - spread)`` and ``(1 + spread)`` times ``mean_s``."""

    mean_s: float
    spread: float = 0.5

    def draw(self, chance: Random) -> float:
        """One deadline in seconds, whole milliseconds as it will be sent."""
        factor = 1.0 + self.spread * (2.0 * chance.random() - 1.0)
        return max(1, round(1000.0 * self.mean_s * factor)) / 1000.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request to send.

    Attributes:
        at_s: seconds after the start of the phase.
        words: length of its input.
        deadline_s: the deadline that it names; ``None`` names none.
    """

    at_s: float
    words: int
    deadline_s: float | None


def make_schedule(
    segments: Sequence[Segment],
    arrivals: Arrivals,
    lengths: Lengths,
    deadlines: Deadlines | None,
    seed: int,
) -> list[Call]:
    """Every request of a phase, in the order of sending."""
    times, sizes, dues = (Random(f"{seed}/{what}") for what in ("times", "sizes", "dues"))  # noqa: S311 - load, no secret
    return [
        Call(at_s, words, deadlines.draw(dues) if deadlines else None)
        for at_s, words in zip(  # lengths never end
            arrival_times(segments, arrivals, times), lengths.draws(sizes), strict=False
        )
    ]


def arrival_times(
    segments: Sequence[Segment], arrivals: Arrivals, chance: Random
) -> Iterator[float]:
    """Send times in seconds from the start, rising."""
    start = 0.0
    for segment in segments:
        if arrivals is Arrivals.BURSTY:
            pieces = _bursts(segment.seconds, chance)
        else:
            pieces = [(segment.seconds, 1.0)]
        for seconds, factor in pieces:
            yield from _poisson(start, seconds, segment.rate * factor, chance)
            start += seconds


def _poisson(start: float, seconds: float, rate: float, chance: Random) -> Iterator[float]:
    if rate <= 0:
        return
    at = start + chance.expovariate(rate)
    while at < start + seconds:
        yield at
        at += chance.expovariate(rate)


def _bursts(seconds: float, chance: Random) -> list[tuple[float, float]]:
    """Stays and factors that fill the time, with a mean factor of exactly 1."""
    stays = [state.stay_s for state in BURST_STATES]
    at = chance.choices(range(len(BURST_STATES)), stays)[0]
    pieces: list[tuple[float, float]] = []
    left = seconds
    while left > 0:
        state = BURST_STATES[at % len(BURST_STATES)]
        stay = min(left, chance.expovariate(1.0 / state.stay_s))
        pieces.append((stay, state.factor))
        left -= stay
        at += 1
    mean = sum(stay * factor for stay, factor in pieces) / seconds if pieces else 1.0
    return [(stay, factor / mean) for stay, factor in pieces]
