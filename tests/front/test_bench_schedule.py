"""What the load generator sends, and when: fixed before the first request."""

from __future__ import annotations

import itertools
import math
import statistics
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.bench.retries import MOST_RETRIES, Retries, RetryKind
from service.bench.schedule import (
    BURST_STATES,
    STRATA,
    Arrivals,
    Deadlines,
    Lengths,
    Segment,
    arrival_times,
    make_schedule,
)
from service.bench.texts import Texts

SEEDS = st.integers(0, 2**31)


@given(SEEDS, st.floats(1, 2000), st.floats(0.5, 20), st.sampled_from(Arrivals))
def test_rate_is_kept(seed: int, rate: float, seconds: float, arrivals: Arrivals) -> None:
    """As many requests as rate times seconds, within six standard deviations of a Poisson count."""
    times = list(arrival_times([Segment(seconds, rate)], arrivals, Random(seed)))
    mean = rate * seconds
    assert abs(len(times) - mean) <= 6 * math.sqrt(mean) + 6
    assert times == sorted(times)
    assert all(0 <= time < seconds for time in times)


@given(SEEDS)
def test_segments_follow_each_other(seed: int) -> None:
    """Each stretch of time has its own rate, one after the other; rate 0 is silence."""
    segments = [Segment(2.0, 300.0), Segment(1.0, 0.0), Segment(2.0, 30.0)]
    times = list(arrival_times(segments, Arrivals.POISSON, Random(seed)))
    counts = [sum(start <= t < start + 1 for t in times) for start in range(5)]
    assert counts[2] == 0
    assert min(counts[:2]) > 3 * max(counts[3:])
    assert times == sorted(times)


def test_poisson_gaps() -> None:
    """Gaps of Poisson arrivals have the mean 1 / rate and the same standard deviation."""
    times = list(arrival_times([Segment(400.0, 50.0)], Arrivals.POISSON, Random(1)))
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(1 / 50, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(1 / 50, rel=0.03)


def test_bursts_are_bursty() -> None:
    """Bursty arrivals keep the mean rate, but their counts by second spread far more."""

    def counts(arrivals: Arrivals) -> list[int]:
        times = arrival_times([Segment(300.0, 100.0)], arrivals, Random(3))
        found = [0] * 300
        for time in times:
            found[int(time)] += 1
        return found

    smooth, bursty = counts(Arrivals.POISSON), counts(Arrivals.BURSTY)
    assert statistics.mean(bursty) == pytest.approx(statistics.mean(smooth), rel=0.05)
    assert statistics.stdev(bursty) > 4 * statistics.stdev(smooth)


def test_burst_states_have_the_mean_one() -> None:
    """The states' factors, weighted with their stays, are 1 in the mean."""
    stay = sum(state.stay_s for state in BURST_STATES)
    mean = sum(state.factor * state.stay_s for state in BURST_STATES) / stay
    assert mean == pytest.approx(1.0)


@given(
    SEEDS, st.floats(1, 600), st.floats(0, 3), st.integers(1, 50), st.integers(0, 600),
)  # fmt: skip
def test_lengths_stay_in_range(
    seed: int, median: float, sigma: float, least: int, more: int
) -> None:
    """A length is never outside the range, whatever the distribution asks for."""
    lengths = Lengths(median, sigma, least, least + more)
    chance = Random(seed)
    assert all(least <= lengths.draw(chance) <= least + more for _ in range(50))
    assert all(
        least <= words <= least + more for words in itertools.islice(lengths.draws(chance), 50)
    )


def test_lengths_are_lognormal() -> None:
    """The median is the median, and the logarithm's standard deviation is sigma."""
    lengths = Lengths(200.0, 0.5, 1, 100_000)
    chance = Random(1)
    drawn = [lengths.draw(chance) for _ in range(20_000)]
    assert statistics.median(drawn) == pytest.approx(200, rel=0.02)
    assert statistics.stdev(math.log(one) for one in drawn) == pytest.approx(0.5, rel=0.03)
    assert lengths.mean(Random(2)) == pytest.approx(statistics.mean(drawn), rel=0.02)


@given(SEEDS, st.integers(0, 3))
def test_lengths_come_as_often_as_they_should(seed: int, before: int) -> None:
    """Whatever the seed, each run of lengths holds one of each equally likely part."""
    lengths = Lengths(median=1e12, sigma=0.8, least=1, most=10**18)  # rounding moves nothing
    drawn = list(
        itertools.islice(lengths.draws(Random(seed)), before * STRATA, (before + 1) * STRATA)
    )
    normal = statistics.NormalDist()
    parts = [normal.cdf(math.log(words / 1e12) / 0.8) * STRATA for words in drawn]
    assert sorted(map(math.floor, parts)) == list(range(STRATA))
    assert drawn != sorted(drawn)


@given(SEEDS, st.floats(0.001, 100), st.floats(0, 0.99))
def test_deadlines_are_whole_milliseconds(seed: int, mean_s: float, spread: float) -> None:
    """A deadline lies in its range and is what can be sent: whole milliseconds, at least one."""
    due = Deadlines(mean_s, spread).draw(Random(seed))
    milliseconds = round(1000 * due)
    assert due == milliseconds / 1000
    assert milliseconds >= 1
    assert mean_s * (1 - spread) - 0.001 <= due <= max(0.001, mean_s * (1 + spread) + 0.001)


@given(SEEDS, st.sampled_from(Arrivals))
def test_same_seed_same_schedule(seed: int, arrivals: Arrivals) -> None:
    """A seed gives one schedule; lengths do not change when only deadlines do."""
    segments = [Segment(2.0, 40.0)]
    first, again = (
        make_schedule(segments, arrivals, Lengths(), Deadlines(1.0), seed) for _ in range(2)
    )
    plain = make_schedule(segments, arrivals, Lengths(), None, seed)
    assert first == again
    assert [(one.at_s, one.words) for one in first] == [(one.at_s, one.words) for one in plain]
    assert all(one.deadline_s is None for one in plain)


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=60), st.sampled_from(["", "[MASK]"]))
def test_texts_have_their_words(sizes: list[int], mask: str) -> None:
    """An input has as many words as asked for, exactly one of them the mask if there is one."""
    texts = Texts(mask, 1)
    for words in sizes:
        found = texts.cut(words).decode().split(" ")
        assert len(found) == words
        assert all(found)
        assert found.count("[MASK]") == bool(mask)


def test_texts_differ() -> None:
    """Inputs of the same length differ from each other."""
    texts = Texts("[MASK]", 1)
    assert len({texts.cut(12) for _ in range(300)}) > 290


# ---------------------------------------------------------------- retries


def pauses(kind: RetryKind, retry_after_s: float, seed: int) -> list[float | None]:
    """What the rule says after each attempt of one user."""
    chance = Random(seed)
    rule = Retries(kind)
    return [
        rule.pause_s(n, retryable=True, retry_after_s=retry_after_s, chance=chance)
        for n in range(1, MOST_RETRIES + 3)
    ]


@given(SEEDS, st.sampled_from(RetryKind), st.floats(0, 30))
def test_retries_end(seed: int, kind: RetryKind, retry_after_s: float) -> None:
    """Nobody retries more often than three times, and nobody what cannot succeed."""
    found = pauses(kind, retry_after_s, seed)
    allowed = 0 if kind is RetryKind.NONE else MOST_RETRIES
    assert [pause is None for pause in found] == [n >= allowed for n in range(len(found))]
    rule = Retries(kind)
    chance = Random(seed)
    assert rule.pause_s(1, retryable=False, retry_after_s=1.0, chance=chance) is None


@given(SEEDS, st.floats(0, 30))
def test_retry_pauses(seed: int, retry_after_s: float) -> None:
    """At once, within a doubling back-off, or never before what the server asked for."""
    assert pauses(RetryKind.IMMEDIATE, retry_after_s, seed)[:3] == [0.0, 0.0, 0.0]
    backoff = pauses(RetryKind.BACKOFF, retry_after_s, seed)[:3]
    assert all(
        pause is not None and 0 <= pause <= most
        for pause, most in zip(backoff, (0.1, 0.2, 0.4), strict=True)
    )
    polite = pauses(RetryKind.RETRY_AFTER, retry_after_s, seed)[:3]
    assert all(
        pause is not None and retry_after_s <= pause <= max(0.4, 2 * retry_after_s)
        for pause in polite
    )
