"""The judge of expressions sees each kind of mistake, and none where there is none."""

from __future__ import annotations

import pytest

from tests.contract.expressions import Selector, faults, selectors

GOOD = [
    "sum(rate(seawall_requests_total[5m]))",
    'sum by (stage) (rate(seawall_client_gone_total{stage=~"queued|running"}[5m])) > 0',
    "max by (instance) (seawall_queue_depth_peak)",
    "max(max_over_time(seawall_queue_depth_peak[1m]))",
    "histogram_quantile(0.9, sum by (le) (rate(seawall_batch_seconds_bucket[5m]))) >= 0",
    "up unless on (job, instance) seawall_ready",
    "sum(changes(process_start_time_seconds[30m]))",
    'label_replace(sum(rate(seawall_requests_total[5m])), "outcome", "none", "", "")',
    "seawall_queue_depth / on (instance) group_left () seawall_queue_limit",
]

BAD = [
    ("vector(0)", "nothing"),
    ("sum(rate(seawal_requests_total[5m]))", "no seawal_requests_total"),
    ("sum(rate(requests_total[5m]))", "no requests_total"),
    ("sum(seawall_requests_total)", "by rates"),
    ("sum(rate(seawall_queue_depth[5m]))", "of counters"),
    ("sum(increase(seawall_ready[5m]))", "of counters"),
    ("sum(rate(process_resident_memory_bytes[5m]))", "of counters"),
    ("rate(sum(seawall_requests_total))", "by rates"),
    ("sum(rate(seawall_requests_total))", "belong together"),
    ("max(seawall_queue_depth[5m])", "belong together"),
    ("sum(seawall_batch_seconds)", "a part of it"),
    ('sum(rate(seawall_requests_total{code="ok"}[5m]))', "no label code"),
    ('sum(rate(seawall_requests_total{outcome="okay"}[5m]))', "never okay"),
    ('sum(rate(seawall_requests_total{outcome=~"ok|full"}[5m]))', "never ok|full"),
    ('sum(rate(seawall_requests_total{outcome!="full"}[5m]))', "never full"),
    ("sum by (reason) (rate(seawall_requests_total[5m]))", "has reason"),
    ("seawall_ready / on (replica) seawall_workers", "has replica"),
    ("histogram_quantile(0.9, sum(rate(seawall_batch_seconds_bucket[5m])))", "over all replicas"),
    ("histogram_quantile(0.9, rate(seawall_batch_seconds_bucket[5m]))", "over all replicas"),
    (
        "histogram_quantile(0.9, sum by (job) (rate(seawall_batch_seconds_bucket[5m])))",
        "needs le",
    ),
    (
        "histogram_quantile(0.9, sum by (le) (rate(seawall_batch_seconds_count[5m])))",
        "of buckets",
    ),
    ("sum by (le) (rate(seawall_batch_seconds_bucket[5m]))", "for quantiles"),
]


@pytest.mark.parametrize("expr", GOOD)
def test_nothing_is_wrong_with_a_right_one(expr: str) -> None:
    """An expression that a real Prometheus answers has no fault."""
    assert faults(expr) == []


@pytest.mark.parametrize("expr, word", BAD)
def test_each_mistake_is_named(expr: str, word: str) -> None:
    """A name, label, value or function that is not right is told."""
    assert word in " ".join(faults(expr)), faults(expr)


def test_selectors_are_taken_apart() -> None:
    """Name, matchers, range and function of each selector, none of labels, words or strings."""
    expr = 'sum by (a) (rate(x{b="c,d", e!~"f"}[5m])) / on (g) (y > 0) or z * 0 unless "w"'
    assert list(selectors(expr)) == [
        Selector("x", (("b", "=", "c,d"), ("e", "!~", "f")), "5m", "rate", expr.index("x{")),
        Selector("y", (), "", "", expr.index("y >")),
        Selector("z", (), "", "", expr.index("z *")),
    ]
