"""What is counted as it happens, and the page that a scrape gets.

Laws
- One registry for each :class:`Metrics`, never the process-wide one: several servers can live in
  one process.
- Every child is made at the start; an unknown label value is a bug and raises ``KeyError``, it
  never makes a series. Routes and statuses come from the outside: unknown ones are ``other``.
- A label never holds client input. The one thing of a client's on the page is a trace id, as an
  exemplar, and only if it is one (32 hexadecimal digits).
- Nothing here waits, and everything may be called from any thread.
- What every request counts is collected in portions (``portion``) and is whole at every scrape.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from service import METRIC_PREFIX
from service.cgroup import Cgroup
from service.core.errors import OUTCOMES, Stage, outcome_class
from service.metrics.catalogue import CATALOGUE, OTHER, ROUTES, STATUSES, Kind, Row
from service.metrics.page import open_metrics, text
from service.metrics.portion import Portion, Untold
from service.metrics.scrape import IDLE, ScrapeCollector, Snapshot, WorkerUse
from service.metrics.totals import Totals, read_totals

# The switch is the library's own and process-wide: `_created` doubles the page and says nothing
# that process_start_time_seconds does not.
disable_created_metrics()  # type: ignore[no-untyped-call]

_TRACE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_OPENMETRICS = "application/openmetrics-text"

_End = tuple[str, float, Stage | None, str]
"""Outcome, seconds, stage and trace of a request that ended."""

_Key = tuple[str, ...]
"""A metric's name without the prefix, then its label values in order."""


class Metrics:
    """Every metric of one server.

    Args:
        cgroup: where limits of memory and CPU are read; this process's own if left out.

    Attributes:
        registry: holds everything that :meth:`render` shows.
    """

    def __init__(self, cgroup: Cgroup | None = None) -> None:
        self.registry = CollectorRegistry()
        self._ends = Portion(self._count_end)
        self._waits = Portion(self._count_wait)
        self.registry.register(Untold(self._ends, self._waits))
        self._counter: dict[_Key, Counter] = {}
        self._gauge: dict[_Key, Gauge] = {}
        self._histogram: dict[_Key, Histogram] = {}
        self._build_info: Gauge
        for row in CATALOGUE:
            if not row.at_scrape:
                self._add(row)
        self._snapshot: Callable[[], Snapshot] = lambda: IDLE
        self._receiving = 0
        self._use = WorkerUse()
        self.registry.register(
            ScrapeCollector(self._now, lambda: self._receiving, self._use, cgroup or Cgroup())
        )
        self._text, self._open_metrics = text(), open_metrics()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def _now(self) -> Snapshot:
        return self._snapshot()

    def _add(self, row: Row) -> None:
        name = row.name.removeprefix(METRIC_PREFIX)
        if row.kind is Kind.HISTOGRAM:
            histogram = Histogram(
                row.name, row.help, row.label_names, registry=self.registry, buckets=row.buckets
            )
            for values in row.children():
                self._histogram[name, *values] = histogram.labels(*values) if values else histogram
        elif row.kind is Kind.COUNTER:
            counter = Counter(row.name, row.help, row.label_names, registry=self.registry)
            for values in row.children():
                self._counter[name, *values] = counter.labels(*values) if values else counter
        else:
            gauge = Gauge(row.name, row.help, row.label_names, registry=self.registry)
            for values in row.children():
                self._gauge[name, *values] = gauge.labels(*values) if values else gauge
            if name == "build_info":
                self._build_info = gauge

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics (with exemplars) if accepted, else text."""
        types = {part.partition(";")[0].strip().lower() for part in (accept or "").split(",")}
        one = self._open_metrics if _OPENMETRICS in types else self._text
        return one.page(self.registry), one.content_type

    def totals(self) -> Totals:
        """What has been counted since the start, without the cost of a scrape."""
        self._ends.count()
        return read_totals(self.registry)

    def bind(self, snapshot: Callable[[], Snapshot]) -> None:
        """Read gauges and integrals from ``snapshot`` at each scrape; it must not wait."""
        self._snapshot = snapshot

    def request_done(
        self, outcome: str, seconds: float, *, stage: Stage | None = None, trace_id: str = ""
    ) -> None:
        """A prediction request ended.

        Args:
            outcome: ``ok`` or an error code.
            seconds: from complete headers to the last byte.
            stage: how far it had come, for ``deadline_exceeded`` and ``client_gone``. Left out it
                counts as ``receive``: the sums by stage always equal the outcomes.
            trace_id: 32 hexadecimal digits; becomes an exemplar.

        Raises:
            KeyError: the outcome is not in the list of errors.
        """
        if outcome not in OUTCOMES:
            raise KeyError(outcome)
        self._ends.add((outcome, seconds, stage, trace_id))

    def _count_end(self, end: _End) -> None:
        outcome, seconds, stage, trace_id = end
        self._counter["requests_total", outcome].inc()
        exemplar = {"trace_id": trace_id} if trace_id and _TRACE_ID.fullmatch(trace_id) else None
        self._histogram["request_duration_seconds", outcome_class(outcome)].observe(
            max(0.0, seconds), exemplar
        )
        if outcome in {"deadline_exceeded", "client_gone"}:
            self._counter[f"{outcome}_total", stage or Stage.RECEIVE].inc()

    def http_response(self, route: str, status: int) -> None:
        """Anything but a prediction was answered; ``route`` is a template of ``ROUTES``."""
        self._counter[
            "http_responses_total",
            route if route in ROUTES else OTHER,
            str(status) if status in STATUSES else OTHER,
        ].inc()

    def stage_seconds(self, stage: str, seconds: float) -> None:
        """Time in one stage: ``receive``, ``prepare``, ``queue``, ``infer`` or ``respond``."""
        self._histogram["stage_duration_seconds", stage].observe(max(0.0, seconds))

    def receiving(self, delta: int) -> None:
        """A request's body began (+1) or stopped (-1) being received."""
        self._receiving += delta

    def queue_wait(self, seconds: float) -> None:
        """An item left the queue, whatever its way out."""
        self._histogram["queue_wait_seconds",].observe(max(0.0, seconds))

    def retry_after(self, seconds: float) -> None:
        """A client was told to wait so long."""
        self._waits.add(seconds)

    def _count_wait(self, seconds: float) -> None:
        self._histogram["retry_after_seconds",].observe(seconds)

    def connection_opened(self) -> None:
        """A client connected."""
        self._gauge["connections",].inc()

    def connection_closed(self) -> None:
        """A connection ended, whoever closed it."""
        self._gauge["connections",].dec()

    def connection_dropped(self, reason: str) -> None:
        """A connection was closed before a request was read; ``reason`` as in the catalogue."""
        self._counter["connections_dropped_total", reason].inc()

    def batch(
        self,
        *,
        items: int,
        seconds: float,
        units: int,
        padded: int,
        wasted_share: float,
        predicted_s: float,
    ) -> None:
        """A batch came back.

        Args:
            items: inputs in it.
            seconds: time of the whole run in the worker.
            units: real tokens.
            padded: tokens with padding.
            wasted_share: share of its items, 0 to 1, whose request was late or gone.
            predicted_s: time it was predicted to take, 0 if it was not.
        """
        self._histogram["batch_items",].observe(items)
        self._histogram["batch_seconds",].observe(seconds)
        self._counter["tokens_total", "real"].inc(units)
        self._counter["tokens_total", "padding"].inc(max(0, padded - units))
        wasted = seconds * min(1.0, max(0.0, wasted_share))
        self._counter["inference_seconds_total", "useful"].inc(seconds - wasted)
        self._counter["inference_seconds_total", "wasted"].inc(wasted)
        if predicted_s > 0:
            self._histogram["prediction_error_ratio",].observe(seconds / predicted_s)

    def failed_batch(self, seconds: float) -> None:
        """A batch failed after so much model time, which was wasted."""
        self._counter["inference_seconds_total", "wasted"].inc(max(0.0, seconds))

    def batch_gap(self, seconds: float) -> None:
        """A worker was idle so long although work waited."""
        self._histogram["batch_gap_seconds",].observe(max(0.0, seconds))

    def batch_split(self, reason: str) -> None:
        """A batch was split: ``oom`` or ``isolate``."""
        self._counter["batch_splits_total", reason].inc()

    def oom(self, recovery: str) -> None:
        """A batch ran out of memory: it was ``split``, or that did not help (``failed``)."""
        self._counter["oom_total", recovery].inc()

    def breaker_transition(self, to: str) -> None:
        """The breaker changed its state."""
        self._counter["breaker_transitions_total", to].inc()

    def worker_restart(self, reason: str) -> None:
        """A worker was lost and is started again; ``reason`` as in ``workers.Loss``."""
        self._counter["worker_restarts_total", reason].inc()

    def worker_sample(
        self, index: int, rss_bytes: int, cpu_s: float, device: tuple[int, int, int]
    ) -> None:
        """What a worker uses now; ``device`` is allocated, reserved and total bytes."""
        self._use.sample(index, rss_bytes, cpu_s, device)

    def worker_gone(self, index: int) -> None:
        """A worker's process ended: what it held is free."""
        self._use.gone(index)

    def model_loaded(self, seconds: float) -> None:
        """A worker loaded its model in so long."""
        self._gauge["model_load_seconds",].set(seconds)

    def loop_lag(self, seconds: float) -> None:
        """How late a timer of the event loop fired."""
        self._histogram["event_loop_lag_seconds",].observe(max(0.0, seconds))

    def log_lines_dropped(self, lines: int = 1) -> None:
        """So many log lines were lost."""
        self._counter["log_lines_dropped_total",].inc(lines)

    def build_info(self, *, version: str, task: str, model: str, device: str) -> None:
        """What is running; the last call replaces the ones before."""
        self._build_info.clear()
        self._build_info.labels(version=version, task=task, model=model, device=device).set(1)
