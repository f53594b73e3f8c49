"""What a new model is asked before it serves: how long it may be fed, and what a batch costs.

Laws
- The line ``a + b·P`` is fitted to the best of a few runs, forward and postprocessing together,
  by relative error, so that small batches count as much as large ones; a >= 0, b > 0. The best and
  not the mean: other work on the machine only ever adds time, and speed is learnt later anyway.
- A slope that is lost in noise is not taken for "no cost": a batch would never be full.
- Sizes grow until a batch costs :data:`ENOUGH_TIMES` the first one (a CPU is there at once, a GPU
  is flat for long), or the time for it is used up: a slow model must not load for minutes.
- A length counts as possible when one run at that length returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from service.worker.faults import Kind, kind_of
from service.worker.interface import CannotLoad, Foreign

T = TypeVar("T")

FIT_S = 1.0
"""Time for fitting. The packaged model takes about half of it on one core."""

REPEATS = 3
ENOUGH_TIMES = 4.0
FIT_LENGTH = 32
"""Tokens of each item of the fit's batches, about a sentence."""

LEAST_SLOPE = 0.05
"""Least share of the largest batch's time that is put down to its units."""

MAX_FIT_UNITS = 16384
LEAST_UNIT_S = 1e-9
"""Stands for "no measurable cost": b must be positive, or a batch would never be full."""

UNKNOWN_LENGTH = 512
"""Tried where neither tokenizer nor configuration names a limit."""

_NO_LIMIT = 1_000_000
"""Tokenizers without a limit say 10^30."""

SAMPLE_TEXT = (
    "The harbour wall was built of grey stone, long before anybody now alive was born. In winter "
    "the waves strike it at night, and in the morning the fishermen look whether it still stands. "
    "It always does. Visitors ask how old it is, how deep its foundations go, and who looks after "
    "it; nobody knows for certain, but there is a small fund, and a man with a bucket of mortar."
)
"""Plain English, to learn how many tokens a character makes and how long preparing it takes."""


def fit_sizes(
    typical: int, max_tokens: int, most_units: int, *, batchable: bool
) -> Iterable[tuple[int, int]]:
    """Batches to measure as (items, tokens of each), from the typical input alone upwards."""
    yield 1, typical
    length = min(max(FIT_LENGTH, typical), max_tokens)
    items = 2
    while items * length <= most_units:
        if batchable:
            yield items, length
        elif items * length <= max_tokens:
            yield 1, items * length
        items *= 2


def fit_cost(
    run: Callable[[int, int], Any],
    sizes: Iterable[tuple[int, int]],
    clock: Callable[[], float] = perf_counter,
) -> tuple[float, float]:
    """``a`` in seconds and ``b`` in seconds per padded unit.

    Args:
        run: runs one batch of (items, tokens of each).
        sizes: batches to try, rising.
        clock: seconds.
    """
    started = clock()
    points: list[tuple[int, float]] = []
    for items, length in sizes:
        run(items, length)  # the first run of a shape pays for its kernels and buffers
        times: list[float] = []
        while len(times) < REPEATS:
            before = clock()
            run(items, length)
            times.append(clock() - before)
        points.append((items * length, min(times)))
        enough = len(points) >= REPEATS and points[-1][1] >= ENOUGH_TIMES * points[0][1]
        if enough or (len(points) > 1 and clock() - started > FIT_S):
            break
    fixed, unit = fit_line(points)
    units, seconds = points[-1]
    least = LEAST_SLOPE * seconds / units
    return (fixed, unit) if unit >= least else (seconds - least * units, least)


def fit_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The line through (units, seconds) with the least relative error, a >= 0 and b > 0."""
    weights = [1 / max(seconds, 1e-9) ** 2 for _, seconds in points]
    total = sum(weights)
    mean_units = sum(w * p for w, (p, _) in zip(weights, points, strict=True)) / total
    mean_s = sum(w * t for w, (_, t) in zip(weights, points, strict=True)) / total
    spread = sum(w * (p - mean_units) ** 2 for w, (p, _) in zip(weights, points, strict=True))
    slope = 0.0
    if spread > 0:
        slope = (
            sum(
                w * (p - mean_units) * (t - mean_s)
                for w, (p, t) in zip(weights, points, strict=True)
            )
            / spread
        )
    if slope < LEAST_UNIT_S:
        return mean_s, LEAST_UNIT_S
    fixed = mean_s - slope * mean_units
    if fixed >= 0:
        return fixed, slope
    squares = sum(w * p * p for w, (p, _) in zip(weights, points, strict=True))
    product = sum(w * p * t for w, (p, t) in zip(weights, points, strict=True))
    return 0.0, product / squares


def length_limit(model: Foreign, tokenizer: Foreign) -> int:
    """Most tokens by what tokenizer and configuration say; still to be proved."""
    limits = [int(tokenizer.model_max_length)]
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if isinstance(positions, int):
        limits.append(positions - _position_offset(model))
    known = [limit for limit in limits if 0 < limit < _NO_LIMIT]
    return min(known, default=UNKNOWN_LENGTH)


def _position_offset(model: Foreign) -> int:
    """RoBERTa and its kin count positions from the padding index on: 514 positions, 512 tokens."""
    for name, module in model.named_modules():
        if (
            name.endswith("position_embeddings")
            and getattr(module, "padding_idx", None) is not None
        ):
            return int(module.padding_idx) + 1
    return 0


def prove_length(run: Callable[[int], Any], limit: int, least: int) -> int:
    """The first length of a few, from ``limit`` down, at which one run returns.

    Args:
        run: runs one input of that many tokens.
        limit: what should be possible.
        least: shortest length that ``run`` can make.

    Raises:
        CannotLoad: none of them.
    """

    def works(length: int) -> bool:
        run(length)
        return True

    for length in (limit, limit - 2, limit // 2):
        # What does not fit the memory may do so if it is shorter.
        if length >= least and tried(partial(works, length), raised=("device_lost",)):
            return length
    raise CannotLoad("model_broken", "The model fails at the length that it should take.")


def tried(run: Callable[[], T], *, raised: Sequence[Kind] = ("oom", "device_lost")) -> T | None:
    """What it returns; ``None`` if the model raises what it likes for what it cannot do.

    Args:
        run: runs the model.
        raised: kinds of failures that say nothing of what the model can do, and stay what they are.
    """
    try:
        return run()
    except Exception as error:
        # Foreign code; which exception it raises for an input that it does not take, or for more
        # rows than one, is the model's own affair.
        if kind_of(error, lambda: True) in raised:
            raise
        return None
