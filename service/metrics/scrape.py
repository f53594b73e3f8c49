"""What is read when somebody scrapes: the dispatcher's snapshot, the workers and the machine.

Laws
- Gauges and integrals that the dispatcher keeps anyway are read once, at the scrape, so that they
  cannot drift from what they describe and cost nothing in between.
- Reading never waits: plain numbers and a few small files of the kernel; no lock that model work
  holds.
- Exactly one state of the breaker, and of each worker, is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from service import METRIC_PREFIX
from service.cgroup import Cgroup
from service.metrics.catalogue import BREAKER_STATES, CATALOGUE, WORKER_STATES, Kind, Row

Family = CounterMetricFamily | GaugeMetricFamily
Values = Mapping[tuple[str, ...], float]

_HAS_PROCESS = frozenset({"loading", "ready"})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the dispatcher knows at one moment; seconds, items and requests as the names say."""

    queue_depth: int
    queue_depth_peak: float
    queue_limit: int
    fill_ratio: float
    fill_seconds: float
    full_items_seconds: float
    full_wait_seconds: float
    oldest_age_s: float
    predicted_wait_s: float
    wait_cap_s: float
    deadline_s: float
    in_flight_queued: int
    in_flight_running: int
    memory_budget_tokens: float
    breaker_state: str
    ready: bool
    draining: bool
    worker_states: tuple[str, ...]


IDLE = Snapshot(
    queue_depth=0,
    queue_depth_peak=0.0,
    queue_limit=0,
    fill_ratio=0.0,
    fill_seconds=0.0,
    full_items_seconds=0.0,
    full_wait_seconds=0.0,
    oldest_age_s=0.0,
    predicted_wait_s=0.0,
    wait_cap_s=0.0,
    deadline_s=0.0,
    in_flight_queued=0,
    in_flight_running=0,
    memory_budget_tokens=0.0,
    breaker_state="closed",
    ready=False,
    draining=False,
    worker_states=(),
)
"""Before anything is bound: every series at 0."""


class WorkerUse:
    """What the worker processes use, from their samples.

    A worker's CPU clock starts again with each process, so differences are summed: the counter
    never falls.
    """

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self._last_cpu_s: dict[int, float] = {}
        self._memory: dict[int, tuple[int, int, int, int]] = {}

    def sample(
        self, index: int, rss_bytes: int, cpu_s: float, device: tuple[int, int, int]
    ) -> None:
        """Take a sample; ``device`` is allocated, reserved and total bytes."""
        last = self._last_cpu_s.get(index, 0.0)
        self.cpu_s += cpu_s - last if cpu_s >= last else cpu_s
        self._last_cpu_s[index] = cpu_s
        self._memory[index] = (rss_bytes, *device)

    def gone(self, index: int) -> None:
        """The process ended: what it held is free."""
        self._memory.pop(index, None)
        self._last_cpu_s.pop(index, None)

    def memory(self, worker_states: tuple[str, ...]) -> tuple[int, int, int, int]:
        """Resident, allocated and reserved bytes in all, and those of the largest device."""
        held = [
            self._memory[index]
            for index, state in enumerate(worker_states)
            if state in _HAS_PROCESS and index in self._memory
        ]
        rss, allocated, reserved, total = zip(*held, strict=True) if held else ((), (), (), ())
        return sum(rss), sum(allocated), sum(reserved), max(total, default=0)


class ScrapeCollector(Collector):
    """Makes the rows marked ``at_scrape``."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        receiving: Callable[[], int],
        use: WorkerUse,
        cgroup: Cgroup,
    ) -> None:
        self._snapshot = snapshot
        self._receiving = receiving
        self._use = use
        self._cgroup = cgroup

    def describe(self) -> Iterator[Family]:
        """The families without values, for the registry's check of names."""
        return (_family(row) for row in CATALOGUE if row.at_scrape)

    def collect(self) -> Iterator[Family]:
        """Every family with its present values."""
        values = {METRIC_PREFIX + name: value for name, value in self._values().items()}
        for row in CATALOGUE:
            if not row.at_scrape:
                continue
            family = _family(row)
            for labels, value in values[row.name].items():
                family.add_metric(labels, value)
            yield family

    def _values(self) -> dict[str, Values]:
        now = self._snapshot()
        rss, allocated, reserved, total = self._use.memory(now.worker_states)
        return {
            "queue_depth": _one(now.queue_depth),
            "queue_depth_peak": _one(now.queue_depth_peak),
            "queue_limit": _one(now.queue_limit),
            "queue_fill_ratio": _one(now.fill_ratio),
            "queue_fill_seconds_total": _one(now.fill_seconds),
            "queue_full_seconds_total": {
                ("items",): now.full_items_seconds,
                ("wait",): now.full_wait_seconds,
            },
            "queue_oldest_age_seconds": _one(now.oldest_age_s),
            "predicted_wait_seconds": _one(now.predicted_wait_s),
            "wait_cap_seconds": _one(now.wait_cap_s),
            "deadline_seconds": _one(now.deadline_s),
            "requests_in_flight": {
                ("receiving",): self._receiving(),
                ("queued",): now.in_flight_queued,
                ("running",): now.in_flight_running,
            },
            "memory_budget_tokens": _one(now.memory_budget_tokens),
            "breaker_state": {(one,): one == now.breaker_state for one in BREAKER_STATES},
            "ready": _one(now.ready),
            "draining": _one(now.draining),
            "workers": _one(len(now.worker_states)),
            "worker_state": {
                (str(index), one): one == state
                for index, state in enumerate(now.worker_states)
                for one in WORKER_STATES
            },
            "worker_rss_bytes": _one(rss),
            "worker_cpu_seconds_total": _one(self._use.cpu_s),
            "memory_usage_bytes": _one(self._cgroup.memory_usage_bytes()),
            "memory_limit_bytes": _one(self._cgroup.memory_limit_bytes()),
            "cpu_limit_cores": _one(self._cgroup.cpu_limit_cores()),
            "cpu_throttled_seconds_total": _one(self._cgroup.cpu_throttled_s()),
            "device_memory_bytes": {
                ("allocated",): allocated,
                ("reserved",): reserved,
                ("total",): total,
            },
        }


def _one(value: float) -> Values:
    return {(): value}


def _family(row: Row) -> Family:
    make = CounterMetricFamily if row.kind is Kind.COUNTER else GaugeMetricFamily
    return make(row.name, row.help, labels=row.label_names)
