"""Row *Now*: readable from across the room.

Every tile asks for this moment alone. The last value of a range would go on showing what a replica
said before it died.
"""

from __future__ import annotations

from dashboards.model import Kind, Panel, Query, Row, Unit
from dashboards.promql import quantile, share

ENDS = "seawall_request_duration_seconds_count"

BAD = f'sum(rate({ENDS}{{outcome_class=~"shed|late|server"}}[R]))'
COUNTED = f'sum(rate({ENDS}{{outcome_class!~"client|gone"}}[R]))'

NOW = Row(
    id=10,
    title="Now",
    height=4,
    panels=(
        Panel(
            id=11,
            title="Replicas",
            question="How many replicas serve, and is one gone?",
            moves=(
                "Not ready: it loads, drains, or its breaker is open. Unreachable: it is dead, "
                "Prometheus cannot get to it, or something else answers in its place."
            ),
            first=(
                "None ready: the runbook. One missing: ask its `/readyz` for the reason, then "
                "look at *Workers*."
            ),
            runbook="seawallnoreadyreplica",
            queries=(
                Query(
                    "count(seawall_ready == 1) or vector(0)",
                    "ready",
                    steps=((0, "red"), (1, "green")),
                ),
                Query(
                    "count(seawall_ready == 0) or vector(0)", "not ready", steps=((1, "orange"),)
                ),
                Query(
                    "count(up unless on (job, instance) seawall_ready) or vector(0)",
                    "unreachable",
                    steps=((1, "red"),),
                ),
            ),
            width=6,
            kind=Kind.TILES,
        ),
        Panel(
            id=12,
            title="Good answers",
            question="How many useful answers a second?",
            moves=(
                "It follows the traffic. If it falls while requests still arrive, they end in "
                "another way."
            ),
            first="Look at *How requests end*: did the traffic go, or do answers fail?",
            runbook="seawallbudgetburningfast",
            queries=(
                Query(
                    'sum(rate(seawall_requests_total{outcome="ok"}[R])) or vector(0)',
                    "ok",
                    color="blue",
                ),
            ),
            unit=Unit.REQUESTS,
            width=4,
            kind=Kind.TILES,
        ),
        Panel(
            id=13,
            title="Answered badly",
            question="What share of the requests is refused for load, late, or failed by us?",
            moves=(
                "Clients' own faults and clients that left do not count. Five minutes with more "
                "than 5 % refused for load call somebody."
            ),
            first="*Why requests fail* names the code; `/errors/CODE` says what to do about it.",
            runbook="seawallbudgetburningfast",
            queries=(Query(share(BAD, COUNTED), "bad", steps=((0.01, "orange"), (0.05, "red"))),),
            unit=Unit.SHARE,
            width=4,
            kind=Kind.TILES,
        ),
        Panel(
            id=14,
            title="Slowest good answers",
            question="How long do the slowest 1 % of the good answers take, and what is allowed?",
            moves="Near the deadline the next ones will be late. Far below it there is room.",
            first="*Where the time goes* tells waiting from work.",
            runbook="seawalldeadlinemisses",
            queries=(
                Query(
                    quantile(0.99, "seawall_request_duration_seconds", 'outcome_class="ok"'),
                    "p99",
                    color="blue",
                ),
                Query("min(seawall_deadline_seconds > 0)", "deadline", color="text"),
            ),
            unit=Unit.SECONDS,
            width=6,
            kind=Kind.TILES,
            empty="No traffic",
        ),
        Panel(
            id=15,
            title="Queue fill",
            question="How full is the fullest queue, on average?",
            moves=(
                "Fill is the larger of items / limit and predicted wait / wait cap. At 100 % "
                "requests are refused."
            ),
            first=(
                "Over 70 %: see which replica and which bound in *What refuses*, then the runbook."
            ),
            runbook="seawallqueuefilling",
            queries=(
                Query(
                    "max(rate(seawall_queue_fill_seconds_total[R]))",
                    "fill",
                    steps=((0.7, "orange"), (0.9, "red")),
                ),
            ),
            unit=Unit.SHARE,
            width=4,
            kind=Kind.TILES,
        ),
    ),
)
