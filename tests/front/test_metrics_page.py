"""The page of a scrape is the library's own, written in less time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from service.metrics import CATALOGUE, Metrics
from service.metrics.page import Format, open_metrics, text

EVIL = 'a"b\\c\nd, {e="f"} # {g="h"} 1 é\u2028'


class Frozen(Collector):
    """What a registry had at one moment: nothing moves between two ways to write it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.metrics = list(registry.collect())

    def collect(self) -> Iterable[Metric]:
        return self.metrics


Make = Callable[[], Format]

LIBRARY: dict[Make, Callable[[Collector], bytes]] = {
    text: generate_latest,
    open_metrics: openmetrics.generate_latest,
}


def both(make: Make, format_: Format, registry: CollectorRegistry) -> tuple[bytes, bytes]:
    """The page as it is written here, and as the library writes it."""
    same = Frozen(registry)
    return format_.page(same), LIBRARY[make](same)


@pytest.mark.parametrize("make", LIBRARY)
def test_the_page_is_the_librarys(make: Make) -> None:
    """Whatever has been counted, at the first scrape and at every later one."""
    metrics, format_ = Metrics(), make()
    chance = random.Random(3)
    for _ in range(3):
        ours, theirs = both(make, format_, metrics.registry)
        assert ours == theirs
        for _ in range(200):
            seconds = chance.lognormvariate(-2.0, 2.0)
            metrics.request_done("ok", seconds, trace_id=f"{chance.getrandbits(128):032x}")
            metrics.request_done("queue_full", seconds / 1000)
            metrics.queue_wait(seconds)
    assert b"# {trace_id=" in ours or make is text


@pytest.mark.parametrize("make", LIBRARY)
@pytest.mark.parametrize(
    "value", [0, -1.5, 1e6, 123456789.0, 1e21, 1e-9, float("inf"), float("nan")]
)
def test_every_value_and_label_is_written_as_the_library_does(make: Make, value: float) -> None:
    """Numbers of every size, and labels that would break a line."""
    registry, format_ = CollectorRegistry(), make()
    gauge = Gauge("one", EVIL, ["label", "and"], registry=registry)
    gauge.labels(EVIL, "").set(value)
    gauge.labels("", EVIL).set(-value)
    Gauge("two", "plain", registry=registry).set(value)
    Counter("three", "counted", ["z", "a"], registry=registry).labels("1", "2").inc(abs(value))
    timed = Histogram("four", "timed", registry=registry, buckets=[0.5, 10])
    timed.observe(value, {"trace_id": "0" * 32})
    for _ in range(2):
        ours, theirs = both(make, format_, registry)
        assert ours == theirs


@pytest.mark.parametrize("make", LIBRARY)
def test_what_is_kept_is_bounded(make: Make) -> None:
    """Use makes no new entry: as many beginnings as there are lines, whatever happens."""
    metrics, format_ = Metrics(), make()
    first = format_.page(metrics.registry)
    kept = len(format_._starts), len(format_._heads)
    assert kept[0] == sum(line[:1] != b"#" for line in first.splitlines())
    assert kept[1] >= len(CATALOGUE)
    for number in range(300):
        metrics.request_done("ok", number / 1000, trace_id=f"{number:032x}")
        metrics.http_response(f"/path/{number}", number)
    format_.page(metrics.registry)
    assert (len(format_._starts), len(format_._heads)) == kept
