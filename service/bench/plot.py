"""The plot of a report: goodput and latencies over the offered rate, as PNG or SVG.

The drawing library is not part of the server's installation; it is imported when a plot is asked
for, before any load is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from service import NAME
from service.bench.report import Point, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")


class NoPlot(Exception):
    """The drawing library is not installed; the message says what to do."""


def require_plotting() -> type[Figure]:
    """The drawing library's class of figures.

    Raises:
        NoPlot: it is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and only for plots
    except ImportError:
        raise NoPlot(f"--plot needs matplotlib: pip install '{NAME}[bench]'") from None
    return Figure


def draw(report: Report, path: Path) -> None:
    """Write the plot; the name's ending says in which format.

    Raises:
        NoPlot: the drawing library is not installed.
        OSError: the file cannot be written.
    """
    figure = require_plotting()(figsize=(8, 8), layout="constrained")
    goodput, latencies = figure.subplots(2, 1, sharex=True)
    points = sorted(report.points, key=lambda point: point.offered_rps)
    offered = [point.offered_rps for point in points]
    server = report.server
    figure.suptitle(f"{server.model} ({server.task}), {report.load.arrivals} arrivals")

    goodput.plot(offered, offered, ":", color="grey", label="offered")
    goodput.plot(offered, [point.goodput_rps for point in points], "o-", label="good in time")
    if report.capacity is not None:
        goodput.axhline(report.capacity.rps, color="grey", lw=1, label="capacity C")
        goodput.set_ylim(0, 1.6 * max(report.capacity.rps, *(p.goodput_rps for p in points)))
    if report.knee is not None:
        goodput.axvline(report.knee.rate_rps, color="green", lw=1, ls="--", label="knee")
    goodput.set_ylabel("requests/s")
    goodput.legend()

    for label, style, value in _LATENCIES:
        pairs = [(x, value(point)) for x, point in zip(offered, points, strict=True)]
        known = [(x, y) for x, y in pairs if y is not None]
        if known:
            latencies.plot([x for x, _ in known], [y for _, y in known], style, label=label)
    if report.load.deadline_ms is not None:
        latencies.axhline(report.load.deadline_ms, color="grey", lw=1, label="mean deadline D")
    latencies.set_xscale("log")
    latencies.set_yscale("log")
    latencies.set_xticks(offered, [point.label for point in points])
    latencies.set_xticks([], minor=True)
    latencies.set_xlabel("offered requests/s")
    latencies.set_ylabel("ms from the scheduled send time")
    latencies.legend()
    figure.savefig(path, dpi=120)


_LATENCIES: tuple[tuple[str, str, Callable[[Point], float | None]], ...] = (
    ("success p50", "o-C0", lambda point: point.latency.p50_ms),
    ("success p99", "o--C0", lambda point: point.latency.p99_ms),
    ("refusal p50", "s-C3", lambda point: point.refusal.p50_ms),
    ("refusal p99", "s--C3", lambda point: point.refusal.p99_ms),
)
