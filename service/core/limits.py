"""The limits in force: every ``auto`` turned into a number, from what the warm-up measured.

All derive from one number, the default deadline: the wait cap is half of it, a batch may take an
eighth of it. So a faster or slower model gets limits that fit, and nobody tunes a queue.
"""

from __future__ import annotations

from dataclasses import dataclass

DEADLINE_LADDER_S = (1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0)
"""What an ``auto`` deadline is rounded up to; also the upper bounds of the latency histogram."""

TYPICAL_RUNS = 30
"""An ``auto`` deadline is worth so many runs of one typical input."""

CHARS_PER_TOKEN = 32
"""Nobody writes longer words on average: more characters than this cannot be few enough tokens."""

MOST_CHARS = 100_000
"""Tokenising more than this takes longer than any default deadline (measured: 3 s a megabyte)."""

WATCHDOG_LEAST_S = 5.0
WATCHDOG_FACTOR = 10.0


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """The settings that limits are made from; ``None`` means ``auto``. Milliseconds."""

    deadline_ms: int | None
    max_deadline_ms: int
    max_wait_ms: int | None
    batch_ms: int | None
    watchdog_ms: int | None
    max_chars: int | None


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in force, in seconds and characters."""

    deadline_s: float
    max_deadline_s: float
    wait_cap_s: float
    batch_s: float
    batch_is_auto: bool
    watchdog_s: float | None
    max_tokens: int
    chars: int | None

    def max_chars(self, items: int) -> int:
        """Most characters of a request of ``items`` inputs, all together."""
        if self.chars is not None:
            return self.chars
        return min(MOST_CHARS, CHARS_PER_TOKEN * self.max_tokens * max(1, items))

    def batch_time(self, fixed_s: float) -> float:
        """Seconds that one batch may take now, at the present fixed cost of a batch.

        An ``auto`` time grows with a device that has become slow: a batch time under the fixed cost
        would end batching just when it is needed most. It does not rest on what the warm-up
        measured, which may have been far too much.
        """
        return _auto_batch_s(self.deadline_s, fixed_s) if self.batch_is_auto else self.batch_s

    def watchdog(self, predicted_s: float) -> float:
        """Seconds after which a batch predicted to take ``predicted_s`` counts as hung."""
        if self.watchdog_s is not None:
            return self.watchdog_s
        return max(WATCHDOG_LEAST_S, WATCHDOG_FACTOR * predicted_s)


def rung(seconds: float) -> float:
    """Round up to the ladder; the top rung for anything beyond it."""
    return next((step for step in DEADLINE_LADDER_S if seconds <= step), DEADLINE_LADDER_S[-1])


def _auto_batch_s(deadline_s: float, fixed_s: float) -> float:
    return min(max(deadline_s / 8, 2 * fixed_s), deadline_s / 2)


def derive(
    settings: LimitSettings,
    *,
    fixed_s: float,
    unit_s: float,
    typical_units: float,
    max_tokens: int,
) -> Limits:
    """Turn settings and measured costs into limits.

    Args:
        settings: as configured.
        fixed_s: fixed cost of a batch, seconds.
        unit_s: cost of a padded unit, seconds.
        typical_units: size of one typical input.
        max_tokens: most tokens of one input.
    """
    most = settings.max_deadline_ms / 1000
    if settings.deadline_ms is None:
        deadline = min(most, rung(TYPICAL_RUNS * (fixed_s + unit_s * typical_units)))
    else:
        deadline = min(most, settings.deadline_ms / 1000)
    wait = deadline / 2 if settings.max_wait_ms is None else settings.max_wait_ms / 1000
    if settings.batch_ms is None:
        batch = _auto_batch_s(deadline, fixed_s)
    else:
        batch = settings.batch_ms / 1000
    return Limits(
        deadline_s=deadline,
        max_deadline_s=most,
        wait_cap_s=wait,
        batch_s=batch,
        batch_is_auto=settings.batch_ms is None,
        watchdog_s=None if settings.watchdog_ms is None else settings.watchdog_ms / 1000,
        max_tokens=max_tokens,
        chars=settings.max_chars,
    )
