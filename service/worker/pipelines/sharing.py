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

REPEATS = 3
ENOUGH_S = 0.3
"""For one figure; a slow model is run once."""


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

    def best_s(items: int, length: int) -> float:
        run(items, length)  # threads start, buffers are made
        started = clock()
        best = math.inf
        for _ in range(REPEATS):
            before = clock()
            run(items, length)
            now = clock()
            best = min(best, now - before)
            if now - started > ENOUGH_S:
                break
        return best

    batch = (BATCH_ITEMS, BATCH_LENGTH) if batchable else (1, typical)
    paces = {}
    for threads in thread_counts(cores):
        torch.set_num_threads(threads)
        paces[threads] = Pace(best_s(1, typical), best_s(*batch))
    split = best_split(cores, paces, _most_workers())
    torch.set_num_threads(split.threads)
    return split


def _most_workers() -> int:
    cgroup = Cgroup()
    granted = cgroup.memory_limit_bytes() - cgroup.memory_usage_bytes()
    free = min(granted, psutil.virtual_memory().available)
    return most_workers(free, psutil.Process().memory_info().rss)
