"""What has been counted since the start, as plain numbers: for ``/status``.

Laws
- The counters of a scrape are read, nothing is counted a second time; who shows rates makes them
  from differences.
- Only what is shown is read: a whole scrape costs many times as much.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from service import METRIC_PREFIX

OUTCOMES, RESTARTS = "requests_total", "worker_restarts_total"
BATCHES, BATCH_ITEMS, BATCH_S = "batch_items_count", "batch_items_sum", "batch_seconds_sum"
WAITS, WAIT_S = "queue_wait_seconds_count", "queue_wait_seconds_sum"

_READ = [
    METRIC_PREFIX + name
    for name in (OUTCOMES, RESTARTS, BATCHES, BATCH_ITEMS, BATCH_S, WAITS, WAIT_S)
]


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the start.

    Attributes:
        outcomes: prediction requests by how they ended; every outcome is there.
        restarts: workers lost, by why; every reason is there.
        batches, batch_items, batch_s: batches, the items in them and their model time.
        waits, wait_s: items that left the queue, and how long they had waited in all.
    """

    outcomes: dict[str, int]
    restarts: dict[str, int]
    batches: int
    batch_items: int
    batch_s: float
    waits: int
    wait_s: float


def read_totals(registry: CollectorRegistry) -> Totals:
    """Read them."""
    by_label: dict[str, dict[str, int]] = {OUTCOMES: {}, RESTARTS: {}}
    single: dict[str, float] = {}
    for metric in registry.restricted_registry(_READ).collect():
        for sample in metric.samples:
            name = sample.name.removeprefix(METRIC_PREFIX)
            if name in by_label:
                (value,) = sample.labels.values()
                by_label[name][value] = int(sample.value)
            else:
                single[name] = sample.value
    return Totals(
        outcomes=by_label[OUTCOMES],
        restarts=by_label[RESTARTS],
        batches=int(single[BATCHES]),
        batch_items=int(single[BATCH_ITEMS]),
        batch_s=single[BATCH_S],
        waits=int(single[WAITS]),
        wait_s=single[WAIT_S],
    )
