"""Shapes of PromQL that recur, and what is added to every expression.

Laws
- No traffic is no NaN: a share of nothing is 0 (:func:`share`), a mean or a quantile of nothing is
  absent (:func:`mean`, :func:`quantile`).
- A replica that is not there is absent, never 0, except where the number counts replicas or what
  all of them achieve.
- A rate is taken of each series before anything is summed, so that restarts do not show.
"""

from __future__ import annotations

import re

SCOPE = 'job=~"$job",instance=~"$instance"'
"""The matchers in every selector."""

_SELECTOR = re.compile(r"\b((?:seawall|process)_\w+|up)\b(?:\{([^}]*)\})?")


def scoped(text: str) -> str:
    """An expression on one line, each selector of it narrowed to the chosen job and instances.

    ``[R]`` becomes ``[$__rate_interval]``, which Grafana keeps at four scrapes or more.
    """

    def narrowed(found: re.Match[str]) -> str:
        name, matchers = found.groups()
        return f"{name}{{{','.join(filter(None, (SCOPE, matchers)))}}}"

    line = re.sub(r"(?<=\() | (?=\))", "", " ".join(text.split()))
    return _SELECTOR.sub(narrowed, line).replace("[R]", "[$__rate_interval]")


def metrics(text: str) -> list[str]:
    """The metrics of an expression in order, each once."""
    return list(dict.fromkeys(found[1] for found in _SELECTOR.finditer(text)))


def share(part: str, whole: str) -> str:
    """``part / whole``, 0 while the whole is 0. Both must have the same labels."""
    return f"{part} / ({whole} > 0) or {whole} * 0"


def mean(histogram: str, *by: str) -> str:
    """The mean of what a histogram observed, absent while it observed nothing."""
    group = f" by ({', '.join(by)}) " if by else ""
    total, count = (f"sum{group}(rate({histogram}_{part}[R]))" for part in ("sum", "count"))
    return f"{total} / ({count} > 0)"


def quantile(share_below: float, histogram: str, matchers: str = "") -> str:
    """A quantile over all replicas, absent (and not NaN) while nothing was observed."""
    selector = f"{histogram}_bucket{{{matchers}}}" if matchers else f"{histogram}_bucket"
    return f"histogram_quantile({share_below}, sum by (le) (rate({selector}[R]))) >= 0"


def worst_quantile(share_below: float, histogram: str) -> str:
    """The same of the replica where it is highest: one of many does not drown in the others."""
    buckets = f"sum by (instance, le) (rate({histogram}_bucket[R]))"
    return f"max(histogram_quantile({share_below}, {buckets})) >= 0"


def unless_all_zero(expr: str, label: str, base: str) -> str:
    """The series of ``expr`` that are above 0; while there is none, one named ``none`` at 0.

    ``base`` has one value without labels wherever there is a replica.
    """
    none = f'label_replace({base} * 0, "{label}", "none", "", "")'
    return f"{expr} > 0 or on () {none}"
