"""Workers and threads: how the cores of a machine are best shared out.

One worker with all threads answers one batch sooner; several workers with fewer threads each answer
more batches. Threads of one operation wait for each other many times in a forward, and on cores
that they share with the front they wait longer still. So the pool is cut as was measured on this
machine with this model.

Laws
- Workers times threads never pass the cores.
- No more workers than memory holds.
- A lone request never takes more than :data:`LONE_TIMES` the time of the fastest cut.
- More workers only where they are worth it: each is one more copy of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MOST_WORKERS = 8
"""Beyond it the one event loop in front, and not the cores, is what there is too little of."""

LONE_TIMES = 2.5
"""Over 2: with half of the threads a lone request takes at most twice its time, and by 2 itself the
noise of a measurement would decide."""

WORTH = 1.1
"""So many times the throughput of fewer workers, or they are not started."""

MEMORY_SHARE = 0.8
"""Of what is free: workers grow while they serve, and the kernel's kill is no way to find out."""


@dataclass(frozen=True, slots=True)
class Split:
    """A way to cut the pool."""

    workers: int
    threads: int


@dataclass(frozen=True, slots=True)
class Pace:
    """What one worker did with some number of threads, in seconds.

    Attributes:
        lone_s: a typical input alone.
        batch_s: a batch as they come under load.
    """

    lone_s: float
    batch_s: float


def thread_counts(cores: int) -> list[int]:
    """The numbers of threads that are worth trying: all cores, then half of them, down to 1."""
    counts = []
    threads = max(1, cores)
    while threads:
        counts.append(threads)
        threads //= 2
    return counts


def most_workers(free_bytes: int, worker_bytes: int) -> int:
    """How many workers memory holds, the one that is there included.

    Args:
        free_bytes: what is still free beside that one.
        worker_bytes: what one takes.
    """
    if worker_bytes <= 0:
        return 1
    return 1 + max(0, int(MEMORY_SHARE * free_bytes / worker_bytes))


def best_split(cores: int, paces: Mapping[int, Pace], most: int) -> Split:
    """The cut with the highest throughput that keeps the laws.

    Args:
        cores: whole cores that are granted.
        paces: what was measured, by the number of threads; not empty.
        most: most workers.

    Raises:
        ValueError: nothing was measured.
    """
    fastest_s = min(pace.lone_s for pace in paces.values())
    best, best_rate = Split(1, max(paces)), 0.0
    for threads in sorted(paces, reverse=True):
        pace = paces[threads]
        workers = max(1, min(cores // threads, most, MOST_WORKERS))
        rate = workers / pace.batch_s
        if pace.lone_s <= LONE_TIMES * fastest_s and rate > WORTH * best_rate:
            best, best_rate = Split(workers, threads), rate
    return best
