"""The catalogue's names are promises, and the operations paper says the same as the code."""

from __future__ import annotations

import re

import pytest

from service.core.lifecycle import REASONS
from service.core.limits import DEADLINE_LADDER_S
from service.http import PLACES, pages
from service.logs import EVENTS
from service.metrics import CATALOGUE, LATENCY_BUCKETS_S, OTHER, ROUTES, Kind, Row
from tests.tools import ROOT

PAPER = (ROOT / "docs/operations.md").read_text()

PROMISED = """
requests_total counter outcome
request_duration_seconds histogram outcome_class
http_responses_total counter route status
connections gauge
connections_dropped_total counter reason
stage_duration_seconds histogram stage
queue_depth gauge
queue_depth_peak gauge
queue_limit gauge
queue_fill_ratio gauge
queue_fill_seconds_total counter
queue_full_seconds_total counter bound
queue_wait_seconds histogram
queue_oldest_age_seconds gauge
predicted_wait_seconds gauge
wait_cap_seconds gauge
deadline_seconds gauge
requests_in_flight gauge stage
deadline_exceeded_total counter stage
client_gone_total counter stage
retry_after_seconds histogram
batch_items histogram
batch_seconds histogram
batch_gap_seconds histogram
tokens_total counter kind
inference_seconds_total counter use
prediction_error_ratio histogram
batch_splits_total counter reason
oom_total counter recovery
memory_budget_tokens gauge
breaker_state gauge state
breaker_transitions_total counter to
ready gauge
draining gauge
workers gauge
worker_state gauge worker state
worker_restarts_total counter reason
worker_rss_bytes gauge
worker_cpu_seconds_total counter
model_load_seconds gauge
memory_usage_bytes gauge
memory_limit_bytes gauge
cpu_limit_cores gauge
cpu_throttled_seconds_total counter
device_memory_bytes gauge kind
event_loop_lag_seconds histogram
log_lines_dropped_total counter
build_info gauge version task model device
"""
"""Names, types and labels that dashboards and alerts of others rely on. They never change."""


def test_every_promised_metric_is_there_and_no_other() -> None:
    """Names, types and labels are those that were promised."""
    promised = [line.split() for line in PROMISED.strip().splitlines()]
    found = [
        [row.name.removeprefix("seawall_"), row.kind.value, *row.label_names] for row in CATALOGUE
    ]
    assert found == promised


def test_latency_bounds_are_fixed() -> None:
    """The bounds are the promised ones, the deadline ladder among them."""
    assert LATENCY_BUCKETS_S[:10] == (
        *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75),
    )
    assert LATENCY_BUCKETS_S[10:] == DEADLINE_LADDER_S


@pytest.mark.parametrize("row", CATALOGUE, ids=lambda row: row.name)
def test_names_follow_the_customs(row: Row) -> None:
    """Base units in names, ``_total`` for counters only, help as a sentence, few label values."""
    assert re.fullmatch(r"seawall_[a-z][a-z_]+", row.name)
    assert row.name.endswith("_total") == (row.kind is Kind.COUNTER)
    assert not re.search(r"_(ms|milli|micro|minutes|kb|mb|percent)(_|$)", row.name)
    assert re.fullmatch(r"[A-Z0-9].*\.", row.help)
    assert bool(row.buckets) == (row.kind is Kind.HISTOGRAM)
    assert len(list(row.children())) <= 180  # answers by route and status are the most
    for _, values in row.labels:
        assert len(set(values)) == len(values)
        assert all(re.fullmatch(r"[a-z0-9_/{}.]+", value) for value in values)


def metric_line(row: Row) -> str:
    """A metric's row in the operations paper."""
    labels = "".join(f" `{name}`" for name in row.label_names)
    return f"| `{row.name}` | {row.kind.value}{labels} | {row.help} |"


def table_under(heading: str) -> list[str]:
    """The rows of the first table under a heading, without its head."""
    section = PAPER.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


def test_metrics_table_is_the_catalogue() -> None:
    """The operations paper lists every metric with type, labels and meaning."""
    assert table_under("Metrics") == [metric_line(row) for row in CATALOGUE]


def test_events_table_is_the_list_of_events() -> None:
    """The operations paper lists every log event with its meaning."""
    expected = [f"| `{name}` | {meaning} |" for name, meaning in EVENTS.items()]
    assert table_under("Log events") == expected


def test_every_metric_that_the_paper_names_exists() -> None:
    """A query in the operations paper asks for metrics that are there."""
    known = {row.name for row in CATALOGUE}
    parts = {
        row.name + suffix
        for row in CATALOGUE
        if row.kind is Kind.HISTOGRAM
        for suffix in ("_bucket", "_sum", "_count")
    }
    assert set(re.findall(r"\bseawall_\w+", PAPER)) <= known | parts


def test_every_event_that_the_paper_names_exists() -> None:
    """A log event in the operations paper is one that is logged."""
    nouns = "|".join(sorted({name.partition(".")[0] for name in EVENTS}))
    assert set(re.findall(rf"`((?:{nouns})\.[a-z_]+)`", PAPER)) <= set(EVENTS)


def test_every_setting_that_the_paper_names_exists() -> None:
    """A word in code style that looks like a setting is one."""
    from service.settings import Settings

    metrics_words = {row.name.removeprefix("seawall_") for row in CATALOGUE}
    looks_like_one = set(re.findall(r"`([a-z]+_(?:ms|s|limit|bytes|threads|failures))`", PAPER))
    assert looks_like_one - metrics_words <= set(Settings.model_fields)


def test_every_reason_of_not_being_ready_has_its_advice() -> None:
    """Whatever ``/readyz`` gives as the reason, the operations paper says what to do."""
    reasons = {REASONS[state] for state in REASONS if state not in {"ready", "stopped"}}
    rows = re.findall(r"^\| (.+?) \| .{4,} \|$", PAPER, re.MULTILINE)
    assert reasons <= set(rows)


def test_routes_are_those_that_are_served() -> None:
    """Every route of the server has its label value, and there is none besides but ``other``."""
    places = PLACES | pages.watching(None)
    served = {place.label or template for template, place in places.items()}
    assert {*served, OTHER} == set(ROUTES)
