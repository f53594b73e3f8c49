"""Figures: what came of users and batches, counted over one or several stories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.bench.simulation_clients import User
from tests.bench.simulation_device import Device
from tests.bench.simulation_story import Record, capacity

INSTANT_S = 1e-9
"""What rounding makes of no time at all."""


@dataclass(frozen=True)
class Figures:
    """What came of users who arrived within some time.

    Attributes:
        goodput: answers in time, as a share of C.
        tokens: the same in words, as a share of C times the mean length.
        success: share of users who were answered in time.
        wasted: share of model time that was for nobody.
        p50, p99: latency of the answers, in default deadlines.
        long_to_short: success of the longest tenth over that of the shortest quarter.
        refused: share of users who were told at once.
        overtime_s: how long after its deadline an attempt ended, the most.
        batch_items: mean size of a batch.
    """

    goodput: float
    tokens: float
    success: float
    wasted: float
    p50: float
    p99: float
    long_to_short: float
    refused: float
    overtime_s: float
    batch_items: float


def measure(device: Device, records: Sequence[Record], start: float, end: float) -> Figures:
    """Figures over all ``records``, for who arrived and what ran from ``start`` to ``end``."""
    crowd = [user for record in records for user in record.users if start <= user.at < end]
    answered = [user for user in crowd if user.ok]
    full = capacity(device) * len(records) * (end - start)
    latencies = sorted(user.latency_s / device.deadline_s for user in answered)
    short = success(user for user in crowd if user.words <= device.short)
    long = success(user for user in crowd if user.words >= device.long)
    return Figures(
        goodput=len(answered) / full,
        tokens=sum(user.words for user in answered) / full / device.mean_words,
        success=success(crowd),
        wasted=wasted(records, start, end),
        p50=quantile(latencies, 0.50),
        p99=quantile(latencies, 0.99),
        long_to_short=long / short if short else math.nan,
        refused=share(told_at_once(user) for user in crowd),
        overtime_s=max(user.overtime_s for user in crowd),
        batch_items=mean(
            len(batch.items)
            for record in records
            for batch in record.batches
            if start <= batch.started < end
        ),
    )


def success(crowd: Iterable[User]) -> float:
    """Share of these users who have their answer."""
    return share(user.ok for user in crowd)


def told_at_once(user: User) -> bool:
    """Whether the user was refused in the instant of the one attempt."""
    return not user.ok and user.latency_s < INSTANT_S


def wasted(records: Iterable[Record], start: float, end: float) -> float:
    """Share of the model time from ``start`` to ``end`` that was for nobody."""
    busy = lost = 0.0
    for record in records:
        for batch in record.batches:
            if start <= batch.started < end:
                gone = sum(not record.owners[item].ok for item in batch.items)
                busy += batch.seconds
                lost += batch.seconds * gone / len(batch.items)
    return lost / busy if busy else 0.0


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value that so large a part stays under; not a number of nothing."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else math.nan


def share(found: Iterable[bool]) -> float:
    """How many of them are true, 0 to 1; not a number of nothing."""
    return mean(float(one) for one in found)


def mean(values: Iterable[float]) -> float:
    """Their mean; not a number of nothing."""
    given = list(values)
    return sum(given) / len(given) if given else math.nan
