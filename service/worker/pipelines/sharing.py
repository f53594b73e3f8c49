"""How many workers this model wants on these cores, and how many threads each.

Asked once, by the first worker, before it fits its cost; the others are told. The decision is
``core/split``, here it is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter

import psutil
import torch

from service.cgroup import Cgroup
from service.core.split import Pace, Split, best_split, most_workers, thread_counts

BATCH_ITEMS, BATCH_LENGTH = 4, 32
"""On a CPU the batches that pay are small."""

ROUNDS = 4
"""Each round tries every number of threads, and the best time of each counts: who shares the
machine is loud for longer than one figure takes, and would decide if one came after the other."""

ENOUGH_S = 0.6
"""For each number of threads; a slow model has one round."""


def share_cores(
    cores: int,
    run: Callable[[int, int], object],
    *,
    typical: int,
    batchable: bool,
    clock: Callable[[], float] = perf_counter,
) -> Split:
    """Measure, decide, and use the threads that were decided on.

    Args:
        cores: that all workers may use together.
        run: runs one batch of (items, tokens of each).
        typical: tokens of a typical input.
        batchable: whether more than one item may run at once.
        clock: seconds.
    """

    def took_s(items: int, length: int) -> float:
        before = clock()
        run(items, length)
        return clock() - before

    lone = (1, typical)
    batch = (BATCH_ITEMS, BATCH_LENGTH) if batchable else lone
    paces: dict[int, Pace] = {}
    counts = thread_counts(cores)
    started = clock()
    for _ in range(ROUNDS):
        for threads in counts:
            torch.set_num_threads(threads)
            run(*batch)  # threads start, buffers are made
            best = paces.get(threads, Pace(math.inf, math.inf))
            lone_s, batch_s = took_s(*lone), took_s(*batch)
            paces[threads] = Pace(min(best.lone_s, lone_s), min(best.batch_s, batch_s))
        if clock() - started > ENOUGH_S * len(counts):
            break
    split = best_split(cores, paces, _most_workers())
    torch.set_num_threads(split.threads)
    return split


def _most_workers() -> int:
    cgroup = Cgroup()
    granted = cgroup.memory_limit_bytes() - cgroup.memory_usage_bytes()
    free = min(granted, psutil.virtual_memory().available)
    return most_workers(free, psutil.Process().memory_info().rss)
