"""From what happened to numbers: percentiles, shares, the knee, the report's words."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.bench.figures import (
    Growth,
    fairness,
    knee,
    latency,
    make_point,
    quantile,
    ratio,
    server_side,
)
from service.bench.record import Attempt, Phase
from service.bench.report import Capacity, Limits, Point
from service.bench.table import notes
from service.bench.target import parse_metrics

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=200)

GOOD = Attempt(
    user_at_s=2.0, at_s=2.0, lag_s=0.001, seconds=0.1, status=200, code="ok", words=10,
    deadline_s=0.5,
)  # fmt: skip
REFUSED = replace(GOOD, status=503, code="overloaded", seconds=0.004)


def phase(*attempts: Attempt, seconds: float = 10.0, warmup_s: float = 1.0) -> Phase:
    """A phase with these attempts."""
    return Phase(list(attempts), seconds, warmup_s, wall_s=seconds + 1, cpu_s=0.5)


@given(VALUES, st.floats(0.01, 1.0))
def test_quantile_is_a_value_that_occurred(values: list[float], share: float) -> None:
    """A percentile occurred, has its share at or under it, and no smaller value has."""
    ordered = sorted(values)
    found = quantile(ordered, share)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-6
    assert sum(value < found for value in ordered) < share * len(ordered) + 1e-6


def test_of_nothing() -> None:
    """Percentiles and shares of nothing are null, not 0."""
    assert quantile([], 0.5) is None
    assert ratio(0, 0) is None
    assert latency([]).p99_ms is None
    assert fairness([]).ratio is None
    assert server_side(phase()) is None


@pytest.mark.parametrize(
    "change, in_time, late",
    [
        ({}, True, False),
        ({"seconds": 0.5}, True, False),
        ({"seconds": 0.51}, False, False),
        ({"seconds": 0.521}, False, True),
        ({"seconds": 9.0, "deadline_s": None}, True, False),
        ({"status": 503, "code": "overloaded"}, False, False),
        ({"status": 504, "code": "deadline_exceeded", "seconds": 0.51}, False, False),
        ({"status": 504, "code": "deadline_exceeded", "seconds": 0.53}, False, True),
        ({"status": 0, "code": "no_answer", "seconds": 9.0}, False, False),
    ],
)
def test_in_time_and_late(change: dict[str, object], in_time: bool, late: bool) -> None:
    """Good is a good answer within the deadline; late is any answer beyond it and the grace."""
    one = replace(GOOD, **change)  # type: ignore[arg-type]
    assert (one.in_time, one.late) == (in_time, late)


def test_point() -> None:
    """Goodput counts what came in the measured time, success who came in it; retries are users."""
    warm = replace(GOOD, user_at_s=0.5, at_s=0.5, seconds=0.6)  # came before, answered within
    early = replace(GOOD, user_at_s=0.1, at_s=0.1)  # before altogether
    tail = replace(GOOD, user_at_s=9.9, at_s=9.9, seconds=0.2)  # answered after the end
    first = replace(REFUSED, user_at_s=3.0, at_s=3.0, last=False)
    second = replace(GOOD, user_at_s=3.0, at_s=3.4, words=40)
    found = phase(early, GOOD, warm, tail, REFUSED, first, second)
    point = make_point("2x", 0.5, found, Capacity(rps=2.0, words_rps=None, how=""))
    assert point.seconds == 9
    assert point.goodput_rps == pytest.approx(2 / 9)  # warm's deadline was missed
    assert point.goodput_of_capacity == pytest.approx(1 / 9)
    assert point.goodput_words_rps == pytest.approx(50 / 9)
    assert point.goodput_words_of_capacity is None
    assert point.offered_rps == pytest.approx(4 / 9)
    assert point.success_share == pytest.approx(3 / 4)
    assert point.attempts == 7
    assert point.outcomes == {"ok": 5, "overloaded": 2}
    assert point.latency.p99_ms == pytest.approx(500)  # from the user's first attempt
    assert point.refusal.p50_ms == pytest.approx(4)
    assert point.late_share == 0
    assert point.generator.cpu_us_per_request == pytest.approx(0.5e6 / 7)


def test_fairness() -> None:
    """The longest tenth is compared with the shortest quarter."""
    users = [replace(GOOD, words=n) for n in range(20)]
    users.reverse()  # the order of arrival does not matter
    for words in (0, 1, 19):
        users[19 - words] = replace(REFUSED, words=words)
    found = fairness(users)
    assert (found.shortest_quarter, found.longest_tenth) == (0.6, 0.5)
    assert found.ratio == pytest.approx(5 / 6)


METRICS = """
# HELP seawall_requests_total x
# TYPE seawall_requests_total counter
seawall_requests_total{{outcome="ok"}} {ok}
seawall_requests_total{{outcome="overloaded"}} {overloaded}
seawall_requests_total{{outcome="internal_error"}} 0.0
seawall_inference_seconds_total{{use="useful"}} {useful}
seawall_inference_seconds_total{{use="wasted"}} {wasted}
seawall_batch_items_sum {items}
seawall_batch_items_count {batches}
seawall_batch_seconds_sum 20.0
seawall_batch_gap_seconds_sum {gap}
seawall_tokens_total{{kind="real"}} {real}
seawall_tokens_total{{kind="padding"}} {padding}
seawall_queue_full_seconds_total{{bound="items"}} 0.0
seawall_queue_full_seconds_total{{bound="wait"}} {full}
process_cpu_seconds_total {cpu}
"""


def test_server_side() -> None:
    """The server's side is what its metrics grew by between the two scrapes."""
    before = parse_metrics(
        METRICS.format(ok=5, overloaded=1, useful=10, wasted=1, items=10, batches=5, gap=0,
                       real=100, padding=50, full=0, cpu=1)
    )  # fmt: skip
    before["seawall_batch_seconds_sum"] = 10.0
    after = parse_metrics(
        METRICS.format(ok=105, overloaded=41, useful=19, wasted=2, items=110, batches=45, gap=0.5,
                       real=400, padding=150, full=5.5, cpu=3.2)
    )  # fmt: skip
    found = server_side(replace(phase(), before=before, after=after))
    assert found is not None
    assert found.outcomes == {"ok": 100, "overloaded": 40}
    assert found.wasted_share == pytest.approx(0.1)
    assert found.batch_items == pytest.approx(2.5)
    assert found.padding_share == pytest.approx(0.25)
    assert found.gap_share == pytest.approx(0.05)
    assert found.full_items_share == 0
    assert found.full_wait_share == pytest.approx(0.5)
    assert found.front_cpu_share == pytest.approx(0.2)


def test_missing_series_has_not_grown() -> None:
    """A series that the server does not have counts as 0, not as an error."""
    assert Growth({}, {})("batch_gap_seconds_sum") == 0


def point_at(rate: float, success: float) -> Point:
    """A point of which only rate and success matter."""
    made = make_point(f"{rate:g}/s", rate, phase(GOOD), None)
    return msgspec.structs.replace(made, success_share=success)


def test_knee() -> None:
    """The knee is the largest rate with 99 % success, in whatever order rates were offered."""
    points = [point_at(50, 0.995), point_at(10, 1.0), point_at(80, 0.98), point_at(40, 0.99)]
    found = knee(points)
    assert found is not None
    assert (found.rate_rps, found.label) == (50, "50/s")
    assert knee([point_at(80, 0.98)]) is None


def test_notes_say_what_the_limits_meant() -> None:
    """Wait cap, queue limit, batch time and a late generator are told in sentences."""
    limits = Limits(
        deadline_ms=1000, wait_cap_ms=500, batch_ms=125, batch_tokens=300, queue_limit=8
    )
    point = point_at(100, 0.5)
    side = server_side(replace(phase(), before={"x": 0.0}, after={"x": 0.0}))
    assert side is not None
    busy = msgspec.structs.replace(side, full_items_share=0.4, full_wait_share=0.3)
    lagging = msgspec.structs.replace(point.generator, lag_p99_ms=40.0)
    capacity = Capacity(rps=100.0, words_rps=None, how="")
    told = "\n".join(
        notes(limits, capacity, [msgspec.structs.replace(point, server=busy, generator=lagging)])
    )
    for words in ("about 50 requests", "at most 125 ms", "8 places", "40.0 %", "30.0 %", "40 ms"):
        assert words in told
    assert not list(notes(None, None, [point]))
