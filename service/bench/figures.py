"""From what happened to numbers.

Laws
- Goodput is of answers that came between warm-up and end, whoever asked: what is answered after
  the end is answered by a server under no load any more.
- The other figures are of users whose first attempt was due after the warm-up; counts of attempts
  are of all of them, so that they balance with the server's.
- A percentile is a value that occurred: the smallest with at least that share at or under it.
- A share of nothing is null, never 0 or 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from service import METRIC_PREFIX
from service.bench.record import REFUSED, Attempt, Phase
from service.bench.report import (
    KNEE_SHARE,
    Capacity,
    Fairness,
    GeneratorSide,
    Knee,
    Latency,
    Point,
    ServerSide,
)

SHORT_SHARE, LONG_SHARE = 0.25, 0.10


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest of ``values`` (in rising order) with ``share`` of them at or under it."""
    if not values:
        return None
    return values[max(0, math.ceil(share * len(values)) - 1)]


def ratio(part: float, whole: float | None) -> float | None:
    """``part / whole``, ``None`` if there is no whole."""
    return part / whole if whole else None


def latency(seconds: Sequence[float]) -> Latency:
    """The percentiles of latencies, given in any order."""
    ordered = sorted(seconds)
    return Latency(p50_ms=_ms(ordered, 0.5), p90_ms=_ms(ordered, 0.9), p99_ms=_ms(ordered, 0.99))


def _ms(ordered: Sequence[float], share: float) -> float | None:
    value = quantile(ordered, share)
    return None if value is None else 1000.0 * value


def measured_users(phase: Phase) -> list[Attempt]:
    """The last attempt of every user who came after the warm-up."""
    return [one for one in phase.attempts if one.last and one.user_at_s >= phase.warmup_s]


def fairness(users: Sequence[Attempt]) -> Fairness:
    """Success of the shortest quarter and the longest tenth."""
    by_length = sorted(users, key=lambda user: user.words)
    short = by_length[: math.ceil(SHORT_SHARE * len(by_length))]
    long = by_length[len(by_length) - math.ceil(LONG_SHARE * len(by_length)) :]
    of_short, of_long = _success(short), _success(long)
    return Fairness(
        shortest_quarter=of_short,
        longest_tenth=of_long,
        ratio=None if of_long is None else ratio(of_long, of_short),
    )


def _success(users: Sequence[Attempt]) -> float | None:
    return ratio(sum(user.in_time for user in users), len(users))


def make_point(label: str, rate_rps: float, phase: Phase, capacity: Capacity | None) -> Point:
    """The figures of one rate."""
    users = measured_users(phase)
    good = [user for user in users if user.in_time]
    within = [one for one in phase.attempts if phase.warmup_s <= one.end_s < phase.seconds]
    earned = [one for one in within if one.in_time]
    attempts = [one for one in phase.attempts if one.user_at_s >= phase.warmup_s]
    answered = [one for one in attempts if one.status]
    seconds = phase.seconds - phase.warmup_s
    goodput, words = len(earned) / seconds, sum(one.words for one in earned) / seconds
    return Point(
        label=label,
        rate_rps=rate_rps,
        seconds=seconds,
        offered_rps=len(users) / seconds,
        goodput_rps=goodput,
        goodput_of_capacity=ratio(goodput, capacity.rps) if capacity else None,
        goodput_words_rps=words,
        goodput_words_of_capacity=ratio(words, capacity.words_rps) if capacity else None,
        success_share=_success(users) or 0.0,
        attempts=len(phase.attempts),
        outcomes=dict(Counter(one.code for one in phase.attempts).most_common()),
        latency=latency([user.user_seconds for user in good]),
        refusal=latency([one.seconds for one in attempts if one.status == REFUSED]),
        late_share=ratio(sum(one.late for one in answered), len(answered)) or 0.0,
        fairness=fairness(users),
        server=server_side(phase),
        generator=_generator_side(phase),
    )


def _generator_side(phase: Phase) -> GeneratorSide:
    lags = sorted(one.lag_s for one in phase.attempts)
    return GeneratorSide(
        cpu_share=phase.cpu_s / phase.wall_s,
        cpu_us_per_request=1e6 * phase.cpu_s / max(1, len(phase.attempts)),
        lag_p50_ms=_ms(lags, 0.5),
        lag_p99_ms=_ms(lags, 0.99),
    )


def server_side(phase: Phase) -> ServerSide | None:
    """What the server's metrics say of the phase, ``None`` without them."""
    if not phase.before or not phase.after:
        return None
    grown = Growth(phase.before, phase.after)
    used, wasted = (
        grown("inference_seconds_total", use="useful"),
        grown("inference_seconds_total", use="wasted"),
    )
    real, padding = grown("tokens_total", kind="real"), grown("tokens_total", kind="padding")
    return ServerSide(
        outcomes=grown.outcomes(),
        wasted_share=ratio(wasted, used + wasted),
        batch_items=ratio(grown("batch_items_sum"), grown("batch_items_count")),
        padding_share=ratio(padding, real + padding),
        gap_share=ratio(grown("batch_gap_seconds_sum"), grown("batch_seconds_sum")),
        full_items_share=ratio(grown("queue_full_seconds_total", bound="items"), phase.wall_s),
        full_wait_share=ratio(grown("queue_full_seconds_total", bound="wait"), phase.wall_s),
        front_cpu_share=ratio(grown.plain("process_cpu_seconds_total"), phase.wall_s),
    )


class Growth:
    """How much each series grew between two scrapes; a series that is missing has not grown."""

    def __init__(self, before: Mapping[str, float], after: Mapping[str, float]) -> None:
        self._before = before
        self._after = after

    def __call__(self, name: str, **labels: str) -> float:
        """Of one of the server's own series, given without the prefix."""
        inside = ",".join(f'{label}="{value}"' for label, value in labels.items())
        return self.plain(f"{METRIC_PREFIX}{name}{{{inside}}}" if inside else METRIC_PREFIX + name)

    def plain(self, series: str) -> float:
        """Of a series by its full name."""
        return self._after.get(series, 0.0) - self._before.get(series, 0.0)

    def outcomes(self) -> dict[str, int]:
        """Prediction requests by how they ended, the most frequent first."""
        start = f'{METRIC_PREFIX}requests_total{{outcome="'
        grown = {
            series.removeprefix(start).removesuffix('"}'): round(self.plain(series))
            for series in self._after
            if series.startswith(start)
        }
        return dict(Counter({code: count for code, count in grown.items() if count}).most_common())


def knee(points: Sequence[Point]) -> Knee | None:
    """The largest rate with enough success, ``None`` if no rate has it."""
    good = [point for point in points if point.success_share >= KNEE_SHARE]
    if not good:
        return None
    best = max(good, key=lambda point: point.rate_rps)
    return Knee(needed_share=KNEE_SHARE, label=best.label, rate_rps=best.rate_rps)
