"""The dashboard: five rows, what marks its graphs, and what it leaves out."""

from __future__ import annotations

from dashboards.model import Dashboard, Mark
from dashboards.rows.batches import BATCHES
from dashboards.rows.now import NOW
from dashboards.rows.queue import QUEUE
from dashboards.rows.replicas import REPLICAS
from dashboards.rows.traffic import TRAFFIC

SEAWALL = Dashboard(
    uid="seawall",
    title="Seawall",
    description="One look at a Seawall: is it well, what do clients get, how near is the next "
    "refusal, what do the workers do, and is one replica different?",
    rows=(NOW, TRAFFIC, QUEUE, BATCHES, REPLICAS),
    marks=(
        Mark(
            "Server started",
            "process_start_time_seconds * 1000",
            "{{instance}} started",
            "blue",
            at_value=True,
        ),
        Mark(
            "Worker lost",
            "sum by (instance, reason) (increase(seawall_worker_restarts_total[R])) > 0",
            "{{instance}}: worker lost, {{reason}}",
            "orange",
        ),
        Mark(
            "Breaker",
            "sum by (instance, to) (increase(seawall_breaker_transitions_total[R])) > 0",
            "{{instance}}: breaker to {{to}}",
            "red",
        ),
    ),
)

LEFT_OUT = {
    "seawall_queue_depth": "A sample of it can read 2 in a queue that refuses; mean and peak in "
    "*Items waiting* cannot.",
    "seawall_queue_fill_ratio": "A sample too; *Queue fill* and *What refuses* show its integral.",
    "seawall_http_responses_total": "Probes, pages and scanners: nobody decides anything by it. "
    "Query it when a proxy reports what *How requests end* does not show.",
}
"""Metrics of the catalogue that no panel shows, each with the reason."""
