"""The shipped rules and routing in a time that a test has.

A rule waits for minutes and a route tells again after hours. :func:`faster` divides every duration
by a factor: how long an alert must last and goes on, every window of an expression, how often a
group is evaluated, how long a message is held back. It changes nothing else, so what is tried is
what is shipped: an alert that needs five minutes of trouble needs five seconds of it at a factor
of 60, a mean over two minutes is one over two seconds.
"""

from __future__ import annotations

import re
from typing import Any

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

DURATIONS = {
    "for", "keep_firing_for", "interval", "scrape_interval", "evaluation_interval",
    "group_wait", "group_interval", "repeat_interval",
}  # fmt: skip
"""Keys whose value is one."""

_DURATION = r"(\d+)(ms|s|m|h|d)"


def faster(data: Any, factor: float) -> Any:
    """The same with every duration divided."""
    if isinstance(data, list):
        return [faster(one, factor) for one in data]
    if isinstance(data, dict):
        return {key: _value(key, value, factor) for key, value in data.items()}
    return data


def _value(key: str, value: Any, factor: float) -> Any:
    if key in DURATIONS:
        return _divided(value, factor)
    if key == "expr":
        window = rf"(?<=\[){_DURATION}(?=\])"
        return re.sub(window, lambda found: _divided(found[0], factor), value)
    return faster(value, factor)


def _divided(duration: str, factor: float) -> str:
    found = re.fullmatch(_DURATION, duration)
    assert found is not None, duration
    return f"{round(int(found[1]) * SECONDS[found[2]] / factor * 1000)}ms"
