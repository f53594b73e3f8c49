"""The page of a scrape: the library's text, each series named once and not at every scrape.

The library writes every name and label anew each time: 6 ms of the loop for 740 lines, 8.5 ms in
OpenMetrics (``python -m tests.bench.scrape``). Here it writes a series' beginning once, and only
values and exemplars are written at a scrape.

Laws
- The page is byte for byte what the library would write.
- What is kept is bounded: the series are known beforehand (``catalogue``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import Metric, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

_END = "# EOF\n"

_number: Callable[[float], str] = floatToGoString


class _Alone(Collector):
    """One metric by itself."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


class Format:
    """One of the two formats.

    Args:
        write: the library's own way to it.
        content_type: of the page.
        end: the page's last line, if it has one.
    """

    def __init__(self, write: Callable[[Collector], bytes], content_type: str, end: str) -> None:
        self.content_type = content_type
        self._write = write
        self._end = end
        self._heads: dict[str, str] = {}
        self._starts: dict[tuple[str, ...], str] = {}

    def page(self, registry: Collector) -> bytes:
        """Everything that the registry has at present."""
        lines: list[str] = []
        starts, exemplars = self._starts, bool(self._end)
        for metric in registry.collect():
            lines.append(self._heads.get(metric.name) or self._head(metric))
            for sample in metric.samples:
                start = starts.get((sample.name, *sample.labels.values()))
                if start is None:
                    start = self._start(metric, sample)
                exemplar = sample.exemplar if exemplars else None
                tail = _exemplar(exemplar) if exemplar else ""
                lines.append(f"{start}{_number(sample.value)}{tail}\n")
        lines.append(self._end)
        return "".join(lines).encode()

    def _head(self, metric: Metric) -> str:
        head = self._alone(metric, [])
        self._heads[metric.name] = head
        return head

    def _start(self, metric: Metric, sample: Sample) -> str:
        plain = sample._replace(value=0.0, exemplar=None)
        line = self._alone(metric, [plain]).removeprefix(self._heads[metric.name])
        start = line.removesuffix("0.0\n")
        self._starts[sample.name, *sample.labels.values()] = start
        return start

    def _alone(self, metric: Metric, samples: list[Sample]) -> str:
        one = Metric(metric.name, metric.documentation, metric.type, metric.unit)
        one.samples = samples
        return self._write(_Alone(one)).decode().removesuffix(self._end)


def _exemplar(one: Exemplar) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in one.labels.items())
    return f" # {{{labels}}} {_number(one.value)} {one.timestamp}"


def text() -> Format:
    """Prometheus' text format."""
    return Format(generate_latest, CONTENT_TYPE_PLAIN_0_0_4, "")


def open_metrics() -> Format:
    """OpenMetrics, which has room for exemplars."""
    return Format(openmetrics.generate_latest, openmetrics.CONTENT_TYPE_LATEST, _END)
