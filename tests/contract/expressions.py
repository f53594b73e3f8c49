"""What is wrong with a PromQL expression over Seawall's metrics: the words, not the grammar.

promtool judges the grammar; it takes any name and any label. Here each name, label and label value
is held to the catalogue, and each function to the kind of metric that it is used on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from service.metrics import CATALOGUE, Kind, Row

ROWS: dict[str, Row] = {row.name: row for row in CATALOGUE}
PARTS: dict[str, Row] = {
    row.name + suffix: row
    for row in CATALOGUE
    if row.kind is Kind.HISTOGRAM
    for suffix in ("_bucket", "_sum", "_count")
}

FOREIGN: dict[str, Kind] = {
    "up": Kind.GAUGE,
    "process_start_time_seconds": Kind.GAUGE,
    "process_resident_memory_bytes": Kind.GAUGE,
    "process_cpu_seconds_total": Kind.COUNTER,
}
"""Prometheus' own and the client library's metrics that may be asked for; they have no labels."""

SCRAPED = {"job", "instance"}
"""The labels that Prometheus adds."""

RATES = {"rate", "increase"}
OPERATORS = {"and", "or", "unless", "bool"}

_STRING = re.compile(r'"[^"]*"')
_LABELS = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_WORD = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]*)(?P<call>\s*\()?(?:\{(?P<matchers>[^}]*)\})?"
    r"(?:\[(?P<window>[^\]]*)\])?"
)
_MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"\s*')


@dataclass(frozen=True, slots=True)
class Selector:
    """One selector of an expression.

    Attributes:
        name: the metric.
        matchers: label, operator and value of each.
        window: its range, empty for none.
        function: the function whose whole argument it is, empty for none.
        at: where it begins in the expression.
    """

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    window: str
    function: str
    at: int


def selectors(expr: str) -> Iterator[Selector]:
    """Every selector of an expression."""
    blank = _LABELS.sub(lambda found: " " * len(found[0]), expr)
    quoted = [found.span() for found in _STRING.finditer(blank)]
    for found in _WORD.finditer(blank):
        inside = any(start <= found.start() < end for start, end in quoted)
        if inside or found["call"] or found["name"] in OPERATORS:
            continue
        before = re.search(r"(\w+)\(\s*$", expr[: found.start()])
        yield Selector(
            found["name"],
            tuple(_matchers(found["matchers"] or "")),
            found["window"] or "",
            before[1] if before else "",
            found.start(),
        )


def grouped(expr: str) -> list[set[str]]:
    """The labels of each ``by``, in order."""
    return [_names(labels) for word, labels in _LABELS.findall(expr) if word == "by"]


def faults(expr: str) -> list[str]:
    """Whatever in an expression asks for what is not there, or for a number without a sense."""
    found = list(selectors(expr))
    everything = {*SCRAPED, *(label for one in found for label in _labels(one.name))}
    wrong = [] if found else ["it asks for nothing"]
    for one in found:
        wrong += _of_selector(one)
    for word, labels in _LABELS.findall(expr):
        wrong += [f"{word}: no metric here has {label}" for label in _names(labels) - everything]
    return [*wrong, *_of_quantiles(expr, found)]


def _of_selector(one: Selector) -> Iterator[str]:
    if one.name not in {*ROWS, *PARTS, *FOREIGN}:
        yield f"there is no {one.name}"
        return
    if one.name in ROWS and ROWS[one.name].kind is Kind.HISTOGRAM:
        yield f"{one.name} is a histogram, ask for a part of it"
    if (one.function in RATES) != _counts(one.name):
        yield f"{one.name}: rates are of counters, and counters are read by rates"
    ranges = one.function in {*RATES, "changes"} or one.function.endswith("_over_time")
    if bool(one.window) != ranges:
        yield f"{one.name}: a range and what takes ranges belong together"
    known = _labels(one.name)
    for label, operator, value in one.matchers:
        if label in SCRAPED:
            continue
        if label not in known:
            yield f"{one.name} has no label {label}"
            continue
        values = value.split("|") if operator.endswith("~") else [value]
        if known[label] and not set(values) <= set(known[label]):
            yield f"{one.name}: {label} is never {value}"


def _of_quantiles(expr: str, found: list[Selector]) -> Iterator[str]:
    spans = [_argument(expr, one.end()) for one in re.finditer(r"\bhistogram_quantile\(", expr)]
    for start, end in spans:
        inner = [one for one in found if start <= one.at < end]
        if not (inner and all(one.name.endswith("_bucket") for one in inner)):
            yield "a quantile is taken of buckets"
        if not all("le" in labels for labels in grouped(expr[start:end])):
            yield "a quantile needs le"
        if not grouped(expr[start:end]):
            yield "a quantile is taken over all replicas, or by one of them"
    for one in found:
        inside = any(start <= one.at < end for start, end in spans)
        if one.name.endswith("_bucket") and not inside:
            yield f"{one.name}: buckets are for quantiles"


def _argument(expr: str, start: int) -> tuple[int, int]:
    depth, end = 1, start
    while depth:
        depth += {"(": 1, ")": -1}.get(expr[end], 0)
        end += 1
    return start, end


def _labels(name: str) -> dict[str, tuple[str, ...]]:
    row = ROWS.get(name) or PARTS.get(name)
    own = dict(row.labels) if row else {}
    return own | ({"le": ()} if name.endswith("_bucket") and row else {})


def _counts(name: str) -> bool:
    kind = FOREIGN[name] if name in FOREIGN else (ROWS.get(name) or PARTS[name]).kind
    return name in PARTS or kind is Kind.COUNTER


def _matchers(text: str) -> Iterator[tuple[str, str, str]]:
    place = 0
    while place < len(text):
        found = _MATCHER.match(text, place)
        if found is None:
            raise ValueError(f"no matcher: {text[place:]}")
        yield found[1], found[2], found[3]
        place = found.end() + (text[found.end() : found.end() + 1] == ",")


def _names(labels: str) -> set[str]:
    return {name.strip() for name in labels.split(",") if name.strip()}
