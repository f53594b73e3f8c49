"""How many new tokens a generating model may write behind an input, and what one of them costs.

Laws
- Input and answer together fit the model: more is refused if it was asked for, and given as far as
  there is room if it was not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from service.tasks.generation import DEFAULT_NEW_TOKENS
from service.worker.interface import Foreign, Unsuitable
from service.worker.pipelines.warmup import LEAST_SLOPE, LEAST_UNIT_S, REPEATS

STEPS = 8
"""New tokens of the measurement."""


def new_tokens(model: Foreign, length: int, most: int, call: Mapping[str, Any]) -> int:
    """How many there will be.

    Args:
        model: whose configuration may name a default.
        length: tokens of the input.
        most: tokens of input and answer together.
        call: the parameters by the stock call's names.

    Raises:
        Unsuitable: more were asked for than there is room for, or there is room for none.
    """
    room = most - length
    if room < 1:
        raise Unsuitable(
            f"this input has {length} tokens, the model takes at most {most} with its answer; "
            "send less",
            limit=most - 1,
        )
    asked = call.get("max_new_tokens")
    if asked is not None and asked > room:
        message = f"for this input send an integer from 1 to {room}"
        raise Unsuitable(message, limit=room, pointer="/parameters/max_new_tokens")
    new: int = min(_default(model), room) if asked is None else asked
    if call.get("min_new_tokens", 0) > new:
        message = f"for this input send an integer from 0 to {new}"
        raise Unsuitable(message, limit=new, pointer="/parameters/min_new_tokens")
    return new


def _default(model: Foreign) -> int:
    named = getattr(model.generation_config, "max_new_tokens", None)
    return named if isinstance(named, int) else DEFAULT_NEW_TOKENS


def step_units(
    run: Callable[[int], object], unit_s: float, clock: Callable[[], float] = perf_counter
) -> float:
    """What one more token takes, in units of the fit.

    Args:
        run: makes exactly so many new tokens.
        unit_s: seconds of a unit.
        clock: seconds.
    """
    took = {1: math.inf, 1 + STEPS: math.inf}
    for _ in range(REPEATS):
        for steps, best in took.items():
            started = clock()
            run(steps)
            took[steps] = min(best, clock() - started)
    few_s, many_s = took.values()
    least_s = LEAST_SLOPE * many_s / (1 + STEPS)  # lost in noise is not "no cost"
    return max(least_s, (many_s - few_s) / STEPS) / max(unit_s, LEAST_UNIT_S)
