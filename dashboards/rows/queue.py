"""Row *Queue and shedding*: how near the next refusal is, and why."""

from __future__ import annotations

from dashboards.model import Look, Panel, Query, Row, Unit
from dashboards.promql import mean, quantile

QUEUE = Row(
    id=30,
    title="Queue and shedding",
    height=8,
    panels=(
        Panel(
            id=31,
            title="What refuses",
            question=(
                "How full is each queue on average, and for what share of the time would a "
                "request be refused?"
            ),
            moves=(
                "Refusing by wait: the work in front is too long. Refusing by items: too many "
                "wait. One replica alone: it is slower or gets more than its share."
            ),
            first="Find out whether there is more work or slower work; the runbook has the order.",
            runbook="seawallqueuefilling",
            queries=(
                Query(
                    "max by (instance) (rate(seawall_queue_fill_seconds_total[R]))",
                    "fill {{instance}}",
                ),
                Query(
                    "max by (bound) (rate(seawall_queue_full_seconds_total[R]))",
                    "refusing: {{bound}}",
                    Look.AREA,
                ),
            ),
            unit=Unit.SHARE,
            steps=((0.7, "orange"), (1, "red")),
            most=1,
            colors={"refusing: items": "red", "refusing: wait": "orange"},
        ),
        Panel(
            id=32,
            title="Items waiting",
            question="How many items wait in the fullest queue, against its limit?",
            moves=(
                "The mean is exact whatever the moment of the scrape; the peak shows bursts of "
                "the last minute. Peaks at the limit over a low mean: bursts, not too much work."
            ),
            first=(
                "Bursts: have the callers spread them. A high mean: add replicas. Do not raise "
                "the limit."
            ),
            runbook="seawallqueuefilling",
            queries=(
                Query("max(rate(seawall_queue_wait_seconds_sum[R]))", "mean"),
                Query("max(seawall_queue_depth_peak)", "peak"),
                Query("min(seawall_queue_limit)", "limit", Look.LIMIT),
            ),
        ),
        Panel(
            id=33,
            title="Waiting",
            question=(
                "How long does one wait in the queue, and how long are the refused told to wait?"
            ),
            moves=(
                "Predicted reaches the cap: new requests are refused as `overloaded`. Oldest "
                "rises like a ramp: nothing is taken out, a worker is stuck or none is there."
            ),
            first="A ramp: *Workers* and *Breaker*. Predicted at the cap: the runbook.",
            runbook="seawallshedding",
            queries=(
                Query(quantile(0.99, "seawall_queue_wait_seconds"), "waited, p99"),
                Query("max(seawall_predicted_wait_seconds)", "predicted"),
                Query("max(seawall_queue_oldest_age_seconds)", "oldest"),
                Query(
                    mean("seawall_retry_after_seconds"),
                    "told in Retry-After, mean",
                    color="text",
                ),
                Query("min(seawall_wait_cap_seconds > 0)", "cap", Look.LIMIT),
            ),
            unit=Unit.SECONDS,
        ),
    ),
)
