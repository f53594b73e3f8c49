"""The stories that the targets speak of, each told once a run and kept.

A story at one load is told with several seeds, all of them counted together. Times are those of the
devices as they are: ``synthetic:gpu`` has every time stretched by four, so what happens there lasts
longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from random import Random

from service.core.breaker import Breaker, BreakerState
from service.core.isolation import CanaryStep, FaultSort, Recovery, Verdict
from service.core.item import ItemState
from service.core.memory import MemoryBudget
from tests.bench.simulation_clients import (
    AT_ONCE,
    BACKS_OFF,
    BUDGETED,
    GIVES_UP,
    HONOURS,
    Retry,
    User,
    bursty,
)
from tests.bench.simulation_device import Device
from tests.bench.simulation_figures import Figures, measure, success, wasted
from tests.bench.simulation_story import Record, Story, play
from tests.core.items import running_item

SEEDS = (1, 2, 3)
LOADS = (0.5, 0.9, 1.0, 1.5, 2.0, 5.0, 10.0)

WARM_PART = 0.15
"""The first part of a story at one load, which does not count: the queue is still filling."""

STEADY_S = {"cpu": 24.0, "gpu": 10.0}
"""How long each seed lasts at one load: enough answers for two digits, on both devices."""


@cache
def steady(device: Device, load: float) -> Figures:
    """A steady Poisson load of so many times C."""
    seconds = STEADY_S[device.name]
    records = [play(Story(device, ((0.0, load),), seconds, seed)) for seed in SEEDS]
    return measure(device, records, WARM_PART * seconds, seconds)


# ---------------------------------------------------------------- bursts

BURSTY_S = 60.0


@cache
def modulated(device: Device) -> Figures:
    """Bursts: 0.9 times C in the mean, three times that for a second every five."""
    records = [
        play(Story(device, bursty(0.9, BURSTY_S, device.times.stretch, seed), BURSTY_S, seed))
        for seed in SEEDS
    ]
    return measure(device, records, WARM_PART * BURSTY_S, BURSTY_S)


CLIENTS: dict[str, Retry] = {
    "give up": GIVES_UP,
    "retry at once": AT_ONCE,
    "back off": BACKS_OFF,
    "back off with a budget": BUDGETED,
    "obey Retry-After": HONOURS,
}

BASE, PEAK = 0.7, 10.0
PEAK_FROM, PEAK_TO, PEAK_END = 8, 18, 30
"""Whole seconds: when ten times the load comes, when it is over, when the story ends."""

AS_BEFORE = 0.95
STAYS_S = 5
"""Recovered: the success of new users is at 95 % of its earlier value for five seconds."""


@dataclass(frozen=True)
class Recovered:
    """What came after a burst.

    Attributes:
        seconds: from the end of the burst, or the last retry of its users, until all is as before.
        success: share of users who had their answer, from two seconds after that on.
    """

    seconds: float
    success: float


@cache
def after_burst(device: Device, clients: str) -> Recovered:
    """Ten times C for ten seconds, on a base of 0.7, with clients of one kind."""
    retry = CLIENTS[clients]
    rate = ((0.0, BASE), (float(PEAK_FROM), PEAK), (float(PEAK_TO), BASE))
    record = play(Story(device, rate, float(PEAK_END), retry=retry))
    by_second = [success(_between(record, at, at + 1)) for at in range(PEAK_END)]
    before = success(_between(record, 2, PEAK_FROM))
    good = [at for at in range(PEAK_TO, PEAK_END - STAYS_S + 1)
            if min(by_second[at : at + STAYS_S]) >= AS_BEFORE * before]  # fmt: skip
    over = PEAK_TO + retry.lasts_s
    back = good[0] if good else PEAK_END
    return Recovered(max(0.0, back - over), success(_between(record, over + 2.0, PEAK_END)))


# ---------------------------------------------------------------- a device that changes

SLOW = 3.0
THIRD_S = 15.0


@dataclass(frozen=True)
class SlowPhase:
    """What came of a device that is slow for a while.

    Attributes:
        during: goodput of the slow phase, as a share of what the device could do then.
        after: goodput of the time after it.
        wasted: share of the model time that was for nobody, over the whole.
    """

    during: float
    after: float
    wasted: float


@cache
def slow_phase(device: Device) -> SlowPhase:
    """Twice the load; for a third of the time every batch takes three times as long."""
    slow = (THIRD_S, 2 * THIRD_S, SLOW)
    seeds = SEEDS if device.name == "cpu" else SEEDS[:2]
    records = [play(Story(device, ((0.0, 2.0),), 3 * THIRD_S, s, slow=slow)) for s in seeds]
    return SlowPhase(
        during=SLOW * measure(device, records, THIRD_S, 2 * THIRD_S).goodput,
        after=measure(device, records, 2 * THIRD_S, 3 * THIRD_S).goodput,
        wasted=wasted(records, 0.0, 3 * THIRD_S),
    )


STALL_FROM_S, STALL_S = 6.0, 4.5
"""Shorter than the watchdog's five seconds: a stall, not a hang."""


@dataclass(frozen=True)
class Stalled:
    """What came of users while one batch stalled.

    Attributes:
        refused: share who were told at once.
        overtime_s: how long after its deadline anybody was told anything.
    """

    refused: float
    overtime_s: float


@cache
def stall(device: Device) -> Stalled:
    """One batch takes 4.5 s longer at 0.9 times C; counted is who comes half a deadline later."""
    seconds = STALL_FROM_S + STALL_S + 3.0
    about = (STALL_FROM_S, STALL_S)
    records = [play(Story(device, ((0.0, 0.9),), seconds, s, stall=about)) for s in SEEDS]
    noticed = STALL_FROM_S + device.deadline_s / 2
    figures = measure(device, records, noticed, STALL_FROM_S + STALL_S)
    return Stalled(figures.refused, figures.overtime_s)


# ---------------------------------------------------------------- a warm-up that measured nonsense

LEARNT_S, JUDGED_S = 3.0, 7.0
"""From when on all must be normal, and until when it is compared."""


@dataclass(frozen=True)
class Unlearnt:
    """What came of a wrong start.

    Attributes:
        first_s: when the first answer came.
        normal: answers to users after three seconds, as a share of those with a right start.
        misled: users who were told that no server could make their deadline.
    """

    first_s: float
    normal: float
    misled: int


@cache
def wrong_start(device: Device, error: float, load: float) -> Unlearnt:
    """The same users with a cost model that is wrong by a factor and with a right one."""
    wrong, right = (
        play(Story(device, ((0.0, load),), JUDGED_S, fit_error=factor)) for factor in (error, 1.0)
    )
    answered, usual = (
        sum(user.ok for user in _between(record, LEARNT_S, JUDGED_S)) for record in (wrong, right)
    )
    first = min((user.ended for user in wrong.users if user.ok), default=math.inf)
    misled = sum(user.outcome == "deadline_too_short" for user in wrong.users)
    return Unlearnt(first - wrong.users[0].at, answered / usual, misled)


# ---------------------------------------------------------------- the breaker

HOUR_BATCHES = 36_000
"""An hour of ten batches a second."""


def trips(seed: int, failing: float, canary_failing: float) -> int:
    """How often the breaker opens in an hour in which so large a share of all runs fails."""
    random = Random(f"breaker {seed}")
    breaker, opened = Breaker(), 0
    for number in range(HOUR_BATCHES):
        now = number / 10.0
        if random.random() >= failing:
            breaker.success(now, breaker.generation)
            continue
        opened += _recover(breaker, now, random, failing, canary_failing)
    return opened


def _recover(
    breaker: Breaker, now: float, random: Random, failing: float, canary_failing: float
) -> int:
    """Work off one failed batch of four; 1 if the breaker opened by it."""
    items = [running_item() for _ in range(4)]
    recovery = Recovery(items, FaultSort.ERROR, budget=MemoryBudget())
    while (step := recovery.next_step()) is not None:
        if isinstance(step, CanaryStep):
            _retire(recovery.canary(ok=random.random() >= canary_failing))
            if recovery.confirmed:
                breaker.failure(now, breaker.generation)
        elif random.random() < failing:
            _retire(recovery.failed(step.items, FaultSort.ERROR))
        else:
            recovery.good(step.items)
            breaker.success(now, breaker.generation)
    if breaker.state is BreakerState.CLOSED:
        return 0
    breaker.canary(now, ok=True)
    breaker.success(now, breaker.generation)
    breaker.success(now, breaker.generation)
    return 1


def _retire(verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        verdict.item.move(ItemState.DONE)


def _between(record: Record, start: float, end: float) -> list[User]:
    return [user for user in record.users if start <= user.at < end]
