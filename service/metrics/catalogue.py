"""Every metric, once: name, type, labels and their values, help.

Laws
- A metric exists because it has a row here; the objects, the table in the operations paper and
  the checks of alerts and dashboards are made from :data:`CATALOGUE`.
- A label takes only the values listed here, so every series exists from the start and no client
  can make a new one. Two exceptions: the worker's index (as many as there are workers) and the
  labels of the build info (one series in all).
- No setting changes a bucket, a label or a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from service import METRIC_PREFIX
from service.core.errors import OUTCOMES, OutcomeClass, Stage
from service.core.limits import DEADLINE_LADDER_S
from service.workers import Loss, WorkerState


class Kind(StrEnum):
    """The metric types in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Row:
    """One metric.

    Attributes:
        name: as exposed, with the prefix.
        kind: its type.
        help: one sentence for the HELP line and the tables.
        labels: each label with every value it can take; no values means "known when it runs".
        buckets: upper bounds without ``+Inf`` (histograms only).
        at_scrape: read when somebody scrapes, not counted as things happen.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    buckets: tuple[float, ...] = ()
    at_scrape: bool = False

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels' names, in order."""
        return tuple(name for name, _ in self.labels)

    def children(self) -> Iterator[tuple[str, ...]]:
        """Every combination of label values that is known beforehand."""
        return product(*(values for _, values in self.labels))


LATENCY_BUCKETS_S: tuple[float, ...] = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75),
    *DEADLINE_LADDER_S,
)
"""Bounds of every latency histogram, seconds. The ladder of the default deadline is among them,
so that "in time" can be read off exactly; ``slo_latency_ms`` must be one of them."""

ITEM_BUCKETS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 128.0, 256.0)
ERROR_RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
RETRY_AFTER_BUCKETS_S = (1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0)

OTHER = "other"

ROUTES = (
    *("/", "/site/{name}", "/errors/{code}", "/status", "/openapi.json", "/docs"),
    *("/livez", "/readyz", "/startupz", "/metrics"),
    *("/v2/health/{probe}", "/v2/{page}", "/v1/{page}"),
    OTHER,
)
"""Route templates; anything else counts as ``other``."""

STATUSES = (200, 304, 400, 401, 404, 405, 408, 413, 431, 500, 503)
"""Statuses of everything but predictions; anything else counts as ``other``."""

STAGES = tuple(stage.value for stage in Stage)
TIMED_STAGES = ("receive", "prepare", "queue", "infer", "respond")
IN_FLIGHT_STAGES = ("receiving", "queued", "running")
BOUNDS = ("items", "wait")
BREAKER_STATES = ("closed", "open", "half_open")
DROP_REASONS = ("header_timeout", "bad_http", "too_many", "header_too_large")
DEVICE_KINDS = ("allocated", "reserved", "total")
OUTCOME_CLASSES = tuple(one.value for one in OutcomeClass)
WORKER_STATES = tuple(state.value for state in WorkerState)


def _counter(name: str, text: str, *, at_scrape: bool = False, **labels: tuple[str, ...]) -> Row:
    labelled = tuple(labels.items())
    return Row(METRIC_PREFIX + name, Kind.COUNTER, text, labelled, at_scrape=at_scrape)


def _gauge(name: str, text: str, *, at_scrape: bool = True, **labels: tuple[str, ...]) -> Row:
    labelled = tuple(labels.items())
    return Row(METRIC_PREFIX + name, Kind.GAUGE, text, labelled, at_scrape=at_scrape)


def _histogram(
    name: str,
    text: str,
    buckets: tuple[float, ...] = LATENCY_BUCKETS_S,
    **labels: tuple[str, ...],
) -> Row:
    return Row(METRIC_PREFIX + name, Kind.HISTOGRAM, text, tuple(labels.items()), buckets)


CATALOGUE: tuple[Row, ...] = (
    _counter(
        "requests_total",
        "Prediction requests by how they ended: ok or an error code.",
        outcome=OUTCOMES,
    ),
    _histogram(
        "request_duration_seconds",
        "Prediction requests from complete headers to the last byte.",
        outcome_class=OUTCOME_CLASSES,
    ),
    _counter(
        "http_responses_total",
        "Answers to everything but predictions.",
        route=ROUTES,
        status=(*map(str, STATUSES), OTHER),
    ),
    _gauge("connections", "Open client connections.", at_scrape=False),
    _counter(
        "connections_dropped_total",
        "Connections closed before a request was read.",
        reason=DROP_REASONS,
    ),
    _histogram(
        "stage_duration_seconds",
        "Time that prediction requests spent in each stage.",
        stage=TIMED_STAGES,
    ),
    _gauge("queue_depth", "Items waiting."),
    _gauge("queue_depth_peak", "Highest depth, falling to 0 over 60 seconds."),
    _gauge("queue_limit", "Most items that may wait."),
    _gauge(
        "queue_fill_ratio",
        "The larger of depth / limit and predicted wait / wait cap.",
    ),
    _counter(
        "queue_fill_seconds_total",
        "Integral of the fill ratio: its rate is the mean fill.",
        at_scrape=True,
    ),
    _counter(
        "queue_full_seconds_total",
        "Time in which a new request would have been refused for load, by the bound that held.",
        at_scrape=True,
        bound=BOUNDS,
    ),
    _histogram(
        "queue_wait_seconds",
        "Wait of each item, observed on every way out of the queue: rate of the sum = mean depth.",
    ),
    _gauge("queue_oldest_age_seconds", "Age of the item that has waited longest."),
    _gauge("predicted_wait_seconds", "Wait that a new request would have."),
    _gauge("wait_cap_seconds", "Longest predicted wait that is admitted."),
    _gauge("deadline_seconds", "Default deadline in force."),
    _gauge(
        "requests_in_flight",
        "Prediction requests inside, by stage.",
        stage=IN_FLIGHT_STAGES,
    ),
    _counter(
        "deadline_exceeded_total",
        "Requests whose deadline passed, by how far they had come.",
        stage=STAGES,
    ),
    _counter(
        "client_gone_total",
        "Requests whose client left, by how far they had come.",
        stage=STAGES,
    ),
    _histogram(
        "retry_after_seconds",
        "What refused clients were told in Retry-After.",
        RETRY_AFTER_BUCKETS_S,
    ),
    _histogram("batch_items", "Items in a batch.", ITEM_BUCKETS),
    _histogram("batch_seconds", "Time of a batch in the worker."),
    _histogram("batch_gap_seconds", "A worker idle although work waited."),
    _counter(
        "tokens_total",
        "Tokens that went through the model.",
        kind=("real", "padding"),
    ),
    _counter(
        "inference_seconds_total",
        "Model time; wasted: for requests that were late, gone or failed.",
        use=("useful", "wasted"),
    ),
    _histogram(
        "prediction_error_ratio",
        "Actual / predicted time of a batch.",
        ERROR_RATIO_BUCKETS,
    ),
    _counter(
        "batch_splits_total",
        "Batches split to find room or a culprit.",
        reason=("oom", "isolate"),
    ),
    _counter(
        "oom_total",
        "Batches that ran out of memory, by whether splitting helped.",
        recovery=("split", "failed"),
    ),
    _gauge("memory_budget_tokens", "Padded tokens that one batch may hold, 0 for no limit yet."),
    _gauge("breaker_state", "1 for the breaker's present state.", state=BREAKER_STATES),
    _counter(
        "breaker_transitions_total",
        "Transitions of the breaker by the state it went to.",
        to=BREAKER_STATES,
    ),
    _gauge("ready", "1 while new predictions are welcome."),
    _gauge("draining", "1 from the signal to stop on."),
    _gauge("workers", "Worker processes in the pool."),
    _gauge("worker_state", "1 for each worker's present state.", worker=(), state=WORKER_STATES),
    _counter(
        "worker_restarts_total",
        "Workers lost and started again, by why they were lost.",
        reason=tuple(loss.value for loss in Loss),
    ),
    _gauge("worker_rss_bytes", "Resident memory of all worker processes."),
    _counter(
        "worker_cpu_seconds_total",
        "CPU time of all worker processes, ended ones too.",
        at_scrape=True,
    ),
    _gauge("model_load_seconds", "Time of the last model load.", at_scrape=False),
    _gauge(
        "memory_usage_bytes",
        "Memory of the control group that the kernel cannot drop (inactive file pages left out).",
    ),
    _gauge(
        "memory_limit_bytes",
        "Memory limit of the control group, or the machine's memory where that is smaller.",
    ),
    _gauge(
        "cpu_limit_cores",
        "CPU quota of the control group, or the usable CPUs where they are fewer.",
    ),
    _counter(
        "cpu_throttled_seconds_total",
        "Time in which the control group's quota held its threads back.",
        at_scrape=True,
    ),
    _gauge("device_memory_bytes", "Memory of the accelerator.", kind=DEVICE_KINDS),
    _histogram("event_loop_lag_seconds", "How late a 100 ms timer of the event loop fires."),
    _counter("log_lines_dropped_total", "Log lines lost because nobody read them."),
    _gauge(
        "build_info",
        "1, with what is running.",
        at_scrape=False,
        version=(),
        task=(),
        model=(),
        device=(),
    ),
)
