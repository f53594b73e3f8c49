"""What is counted in portions is whole at every scrape."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from service.core.errors import OUTCOMES, Stage, outcome_class
from service.metrics import Metrics
from service.metrics.portion import MOST

ACCEPT = "application/openmetrics-text"
COUNTS = [0, 1, MOST - 1, MOST, MOST + 1, 2 * MOST - 1, 2 * MOST, 200]

Count = Callable[[Metrics], tuple[float, float, float]]
"""Reads how many requests ended, how many were timed, and how many were told to wait."""

NAMES = (
    "seawall_requests_total",
    "seawall_request_duration_seconds_count",
    "seawall_retry_after_seconds_count",
)


def by_registry(metrics: Metrics) -> tuple[float, float, float]:
    """As whoever embeds the registry reads them; each reading is a scrape of its own."""
    value = metrics.registry.get_sample_value
    return (
        value(NAMES[0], {"outcome": "queue_full"}) or 0.0,
        value(NAMES[1], {"outcome_class": "shed"}) or 0.0,
        value(NAMES[2]) or 0.0,
    )


def by_text(metrics: Metrics) -> tuple[float, float, float]:
    """As one page of text says."""
    families = parse_text(metrics.render(None)[0].decode())
    samples = [one for family in families for one in family.samples]
    first, second, third = (sum(one.value for one in samples if one.name == name) for name in NAMES)
    return first, second, third


def by_openmetrics(metrics: Metrics) -> tuple[float, float, float]:
    """As one page of OpenMetrics says."""
    page = metrics.render(ACCEPT)[0].decode()
    families = openmetrics.text_string_to_metric_families(page)  # type: ignore[no-untyped-call]
    samples = [one for family in families for one in family.samples]
    first, second, third = (sum(one.value for one in samples if one.name == name) for name in NAMES)
    return first, second, third


READERS = [by_registry, by_text, by_openmetrics]


def refuse(metrics: Metrics) -> None:
    """One refusal."""
    metrics.request_done("queue_full", 0.001)
    metrics.retry_after(1.0)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("count", COUNTS)
def test_every_call_is_on_the_next_page(count: int, read: Count) -> None:
    """Whatever their number, all calls are on the next page, and none is there twice later."""
    metrics = Metrics()
    for _ in range(count):
        refuse(metrics)
    assert read(metrics) == (count,) * 3
    assert read(metrics) == (count,) * 3
    refuse(metrics)
    assert read(metrics) == (count + 1,) * 3


@settings(max_examples=30)
@given(steps=st.lists(st.integers(0, 2 * MOST), max_size=6), reader=st.sampled_from(READERS))
def test_scrapes_between_calls(steps: list[int], reader: Count) -> None:
    """Scrapes at any moments see what was called until then, and the waits add up."""
    metrics = Metrics()
    total = 0
    for more in steps:
        for _ in range(more):
            refuse(metrics)
        total += more
        assert reader(metrics) == (total,) * 3
    assert metrics.registry.get_sample_value("seawall_retry_after_seconds_sum") == total


def test_a_portion_is_bounded() -> None:
    """Without any scrape, however many calls: fewer than a portion are uncounted."""
    metrics = Metrics()
    for _ in range(10 * MOST + 7):
        refuse(metrics)
        assert len(metrics._ends._notes) < MOST
        assert len(metrics._waits._notes) < MOST
    assert by_registry(metrics) == (10 * MOST + 7,) * 3


def test_all_of_an_end_is_kept() -> None:
    """Outcome, class, duration and stage of each end arrive, however mixed a portion is."""
    metrics = Metrics()
    seconds = {outcome: 2.0**-i for i, outcome in enumerate(OUTCOMES)}
    for _ in range(5):
        for outcome in OUTCOMES:
            metrics.request_done(outcome, seconds[outcome], stage=Stage.QUEUED)
    value = metrics.registry.get_sample_value
    for outcome in OUTCOMES:
        assert value("seawall_requests_total", {"outcome": outcome}) == 5
        shared = outcome_class(outcome)
        told = sum(5 * s for other, s in seconds.items() if outcome_class(other) is shared)
        labels: dict[str, str] = {"outcome_class": shared}
        assert value("seawall_request_duration_seconds_sum", labels) == pytest.approx(told)
    for name in ("deadline_exceeded", "client_gone"):
        assert value(f"seawall_{name}_total", {"stage": "queued"}) == 5


@pytest.mark.parametrize("before", [0, MOST - 1])
def test_an_unknown_outcome_is_a_bug_at_the_call(before: int) -> None:
    """A word that is no outcome raises where it is said, and what was said before is not lost."""
    metrics = Metrics()
    for _ in range(before):
        refuse(metrics)
    with pytest.raises(KeyError, match="bad_luck"):
        metrics.request_done("bad_luck", 0.1)
    refuse(metrics)
    assert by_text(metrics) == (before + 1,) * 3


def exemplars(metrics: Metrics) -> Iterator[str]:
    """The traces on the page."""
    page = metrics.render(ACCEPT)[0].decode()
    for family in openmetrics.text_string_to_metric_families(page):  # type: ignore[no-untyped-call]
        yield from (one.exemplar.labels["trace_id"] for one in family.samples if one.exemplar)


@pytest.mark.parametrize("untraced", [0, MOST - 1, MOST])
def test_exemplars_are_kept(untraced: int) -> None:
    """The latest trace of each latency bucket is on the page, however many untraced ends follow."""
    metrics = Metrics()
    for trace_id, seconds in (("a" * 32, 0.03), ("b" * 32, 3.0), ("c" * 32, 0.03)):
        metrics.request_done("ok", seconds, trace_id=trace_id)
    for _ in range(untraced):
        metrics.request_done("ok", 0.03)
    for _ in range(2):
        assert list(exemplars(metrics)) == ["c" * 32, "b" * 32]


def test_any_thread_may_count() -> None:
    """Calls and scrapes from many threads at once lose nothing and count nothing twice."""
    metrics = Metrics()
    start = threading.Barrier(6)

    def call() -> None:
        start.wait()
        for _ in range(2_000):
            refuse(metrics)

    def scrape() -> None:
        start.wait()
        for _ in range(40):
            metrics.registry.get_sample_value(NAMES[2])

    threads = [threading.Thread(target=job) for job in (call, call, call, call, scrape, scrape)]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval_s)
    assert by_text(metrics) == (8_000,) * 3
