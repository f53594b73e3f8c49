"""The report for people: a table of the rates, and sentences on what the limits meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from service.bench.report import KNEE_SHARE, Capacity, Limits, Point, Report, ServerSide

NONE = "–"
LAG_TOLD_MS = 10.0
"""A generator that is later than this says so: its lag is in every latency."""

_MOST_OUTCOMES = 4


def show(report: Report) -> str:
    """The whole report as text."""
    server = report.server
    what = f"{server.model} ({server.task}, {server.device or 'device unknown'})"
    lines = [f"{what}, {_load(report)}"]
    if report.capacity:
        lines.append(f"C = {report.capacity.rps:.1f} req/s, {report.capacity.how}")
    lines += ["", *_grid(_CLIENT, report.points), "", *_grid(_SERVER, report.points), ""]
    lines += [f"{point.label}: {_outcomes(point)}" for point in report.points]
    lines += ["", _knee(report), *report.notes]
    return "\n".join(lines) + "\n"


def _load(report: Report) -> str:
    load = report.load
    due = "no deadline" if load.deadline_ms is None else f"D = {load.deadline_ms:.0f} ms"
    return (
        f"{load.arrivals} arrivals, retries {load.retries}, {due}, words lognormal"
        f" {load.words_median:g}/{load.words_sigma:g} ({load.words_min}–{load.words_max}),"
        f" seed {load.seed}"
    )


def _knee(report: Report) -> str:
    needed = f"{KNEE_SHARE:.0%} of the requests"
    if report.knee is None:
        return f"Knee: none; at no rate offered were {needed} answered in time."
    label, rate = report.knee.label, plain(report.knee.rate_rps)
    return f"Knee: {label} = {rate} req/s, the largest rate with {needed} answered in time."


def _outcomes(point: Point) -> str:
    first = list(point.outcomes.items())[:_MOST_OUTCOMES]
    rest = sum(point.outcomes.values()) - sum(count for _, count in first)
    parts = [f"{count} {code}" for code, count in first] + ([f"{rest} others"] if rest else [])
    return f"{point.attempts} requests, " + ", ".join(parts)


# ---------------------------------------------------------------- the grids

_Column = tuple[str, Callable[[Point], str]]


def percent(share: float | None) -> str:
    """A share in per cent, for people."""
    return NONE if share is None else f"{100 * share:.1f} %"


def plain(value: float | None) -> str:
    """A number in as many digits as say something."""
    if value is None:
        return NONE
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits


_CLIENT: Sequence[_Column] = (
    ("rate", lambda point: point.label),
    ("offered/s", lambda point: plain(point.offered_rps)),
    ("good/s", lambda point: plain(point.goodput_rps)),
    ("of C", lambda point: percent(point.goodput_of_capacity)),
    ("words/s", lambda point: plain(point.goodput_words_rps)),
    ("success", lambda point: percent(point.success_share)),
    ("p50 ms", lambda point: plain(point.latency.p50_ms)),
    ("p90", lambda point: plain(point.latency.p90_ms)),
    ("p99", lambda point: plain(point.latency.p99_ms)),
    ("503 p50", lambda point: plain(point.refusal.p50_ms)),
    ("p99", lambda point: plain(point.refusal.p99_ms)),
    ("late", lambda point: percent(point.late_share)),
    ("long/short", lambda point: plain(point.fairness.ratio)),
)


def _side(cell: Callable[[ServerSide], str]) -> Callable[[Point], str]:
    return lambda point: NONE if point.server is None else cell(point.server)


_SERVER: Sequence[_Column] = (
    ("rate", lambda point: point.label),
    ("wasted", _side(lambda side: percent(side.wasted_share))),
    ("batch", _side(lambda side: plain(side.batch_items))),
    ("padding", _side(lambda side: percent(side.padding_share))),
    ("gaps", _side(lambda side: percent(side.gap_share))),
    ("wait full", _side(lambda side: percent(side.full_wait_share))),
    ("items full", _side(lambda side: percent(side.full_items_share))),
    ("front cores", _side(lambda side: plain(side.front_cpu_share))),
    ("bench cores", lambda point: plain(point.generator.cpu_share)),
    ("us/req", lambda point: plain(point.generator.cpu_us_per_request)),
    ("lag p99 ms", lambda point: plain(point.generator.lag_p99_ms)),
)


def _grid(columns: Sequence[_Column], points: Sequence[Point]) -> Iterator[str]:
    rows = [[name for name, _ in columns]]
    rows += [[cell(point) for _, cell in columns] for point in points]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))


# ---------------------------------------------------------------- sentences


def notes(
    limits: Limits | None, capacity: Capacity | None, points: Sequence[Point]
) -> Iterator[str]:
    """What the limits in force meant in this run, one sentence each."""
    if limits is not None:
        yield from _of_limits(limits, capacity)
    for point in points:
        side = point.server
        if side is None or limits is None:
            continue
        if side.full_items_share and side.full_items_share > 0.01:  # noqa: PLR2004 - 1 % of the time
            yield (
                f"{point.label}: the queue's {limits.queue_limit} places were all taken for"
                f" {percent(side.full_items_share)} of the time: queue_limit refused before the"
                " wait cap did."
            )
        if side.full_wait_share and side.full_wait_share > 0.01:  # noqa: PLR2004 - 1 % of the time
            yield (
                f"{point.label}: whoever came in {percent(side.full_wait_share)} of the time was"
                " refused for its predicted wait."
            )
    for point in points:
        lag_ms = point.generator.lag_p99_ms
        if lag_ms is not None and lag_ms > LAG_TOLD_MS:
            yield (
                f"{point.label}: the generator was late itself, by {lag_ms:.0f} ms (p99); every"
                " latency of this row holds that."
            )


def _of_limits(limits: Limits, capacity: Capacity | None) -> Iterator[str]:
    line = ""
    if capacity is not None:
        waiting = capacity.rps * limits.wait_cap_ms / 1000
        line = f", about {waiting:.0f} requests at capacity (queue_limit is {limits.queue_limit})"
    yield (
        f"Limits: deadline {limits.deadline_ms:.0f} ms unless the client names one; refused beyond"
        f" a predicted wait of {limits.wait_cap_ms:.0f} ms{line}; a batch takes at most"
        f" {limits.batch_ms:.0f} ms, which is {limits.batch_tokens:.0f} padded tokens now."
    )
