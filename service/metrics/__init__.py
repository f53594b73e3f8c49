"""Metrics: the catalogue, what is counted as it happens, what is read at a scrape."""

from __future__ import annotations

from service.metrics.catalogue import (
    CATALOGUE,
    LATENCY_BUCKETS_S,
    OTHER,
    ROUTES,
    STATUSES,
    Kind,
    Row,
)
from service.metrics.counting import Metrics
from service.metrics.loop_lag import LoopLag
from service.metrics.scrape import IDLE, Snapshot
from service.metrics.totals import Totals

__all__ = [
    "CATALOGUE",
    "IDLE",
    "LATENCY_BUCKETS_S",
    "OTHER",
    "ROUTES",
    "STATUSES",
    "Kind",
    "LoopLag",
    "Metrics",
    "Row",
    "Snapshot",
    "Totals",
]
