"""Row *Batches, model and breaker*: what the workers do with what they get."""

from __future__ import annotations

from dashboards.model import Kind, Look, Panel, Query, Row, Unit
from dashboards.promql import mean, quantile, share

TOKENS = "sum(rate(seawall_tokens_total[R]))"
PADDING = 'sum(rate(seawall_tokens_total{kind="padding"}[R]))'
WORKERS = "sum(seawall_workers)"
SPENT = "sum by (use) (rate(seawall_inference_seconds_total[R]))"
GAPS = "sum(rate(seawall_batch_gap_seconds_sum[R]))"
BATCH_TIME = "sum(rate(seawall_batch_seconds_sum[R]))"
ITEMS = "sum(rate(seawall_batch_items_sum[R]))"
ITEMS_PER_BATCH = "seawall_batch_items"
RATIO = "seawall_prediction_error_ratio"

BATCHES = Row(
    id=40,
    title="Batches, model and breaker",
    height=8,
    panels=(
        Panel(
            id=41,
            title="Items per batch",
            question="Does batching pay: are batches large and full of real tokens?",
            moves=(
                "Batches grow with the queue: ones without load are right. Padding rises when "
                "short and long inputs come together."
            ),
            first=(
                "Small batches under load: the batch time is too short for these inputs; measure "
                "before changing `batch_ms`."
            ),
            runbook="sizing",
            queries=(
                Query(mean(ITEMS_PER_BATCH), "mean"),
                Query(f"ceil({quantile(0.9, ITEMS_PER_BATCH)})", "p90"),
                Query(share(PADDING, TOKENS), "padding", right=Unit.SHARE, color="text"),
            ),
            empty="No traffic",
        ),
        Panel(
            id=42,
            title="Time of a batch",
            question="Did the model become slower?",
            moves=(
                "Per input is the honest one: a batch may take longer because it is larger. If "
                "per input rises, the model is slower."
            ),
            first=(
                "*CPU against its limit*: throttled, or other work on the node? Then: what was "
                "changed?"
            ),
            runbook="seawallqueuefilling",
            queries=(
                Query(quantile(0.5, "seawall_batch_seconds"), "p50"),
                Query(quantile(0.99, "seawall_batch_seconds"), "p99"),
                Query(f"{BATCH_TIME} / ({ITEMS} > 0)", "per input", color="text"),
            ),
            unit=Unit.SECONDS,
            empty="No traffic",
        ),
        Panel(
            id=43,
            title="What the workers do",
            question=(
                "What share of the workers' time is useful, for nobody, or idle although work "
                "waits?"
            ),
            moves=(
                "Near 100 % useful: they can do no more. Wasted: for clients that were late or "
                "gone, or for batches that failed. Starved: the front does not feed them fast "
                "enough."
            ),
            first=(
                "Useful near 100 %: add replicas. Wasted: compare the clients' time-outs with the "
                "deadline. Starved: *Event loop lag*."
            ),
            runbook="sizing",
            queries=(
                Query(f"{SPENT} / on () group_left () ({WORKERS} > 0)", "{{use}}", Look.STACK),
                Query(f"{GAPS} / ({WORKERS} > 0)", "starved", Look.STACK),
            ),
            unit=Unit.SHARE,
            most=1,
            colors={"useful": "green", "wasted": "red", "starved": "yellow"},
        ),
        Panel(
            id=44,
            title="Predicted against actual",
            question="Does a batch take as long as predicted?",
            moves=(
                "100 % is right. Higher: too much is let in and ends late. Lower: requests are "
                "refused that could have been served."
            ),
            first=(
                "It corrects itself within some batches. If it stays off, something else takes "
                "the worker's CPU by turns."
            ),
            runbook="seawalldeadlinemisses",
            queries=tuple(Query(quantile(q, RATIO), f"p{q * 100:.0f}") for q in (0.1, 0.5, 0.9)),
            unit=Unit.SHARE,
            steps=((1, "text"),),
            empty="No traffic",
        ),
        Panel(
            id=45,
            title="Memory of a batch",
            question="Do batches fit into memory, and is one input's fault found?",
            moves=(
                "split: it did not fit and was halved, nobody noticed. failed: one input alone "
                "does not fit. isolate: a batch raised and its culprit is looked for."
            ),
            first=(
                "failed: another process holds the memory, or inputs are too long. isolate: "
                "`batch.failed` in the log names class and frames."
            ),
            runbook="log-events",
            queries=(
                Query(
                    "sum by (recovery) (increase(seawall_oom_total[R]))",
                    "out of memory: {{recovery}}",
                    Look.BARS,
                ),
                Query(
                    "sum by (reason) (increase(seawall_batch_splits_total[R]))",
                    "split: {{reason}}",
                    Look.BARS,
                ),
                Query(
                    "max by (instance) (seawall_memory_budget_tokens)",
                    "budget {{instance}}",
                    right=Unit.TOKENS,
                ),
            ),
            colors={
                "out of memory: failed": "red",
                "out of memory: split": "orange",
                "split: oom": "yellow",
                "split: isolate": "purple",
            },
            interval="1m",
        ),
        Panel(
            id=46,
            title="Breaker",
            question="Does the model fail its self-test, and since when?",
            moves=(
                "Open: predictions are refused as `circuit_open`, and the server tests the model "
                "by itself. Half open: a few are let in. An opening between two scrapes shows "
                "too."
            ),
            first=(
                "`breaker.opened`, `batch.failed` and `canary.failed` in the log. Take back the "
                "last change of model or version."
            ),
            runbook="seawallbreakeropen",
            queries=(
                Query(
                    """
                    max by (instance) (
                        2 * (increase(seawall_breaker_transitions_total{to="open"}[R]) > bool 0)
                        or 2 * seawall_breaker_state{state="open"}
                        or seawall_breaker_state{state="half_open"}
                    )
                    """,
                    "{{instance}}",
                ),
            ),
            kind=Kind.STATES,
            words={0: ("closed", "green"), 1: ("half open", "orange"), 2: ("open", "red")},
        ),
    ),
)
