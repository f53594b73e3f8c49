"""How cores are shared out: never beyond what is granted, never at a lone request's cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.split import (
    LONE_TIMES,
    MEMORY_SHARE,
    MOST_WORKERS,
    Pace,
    Split,
    best_split,
    most_workers,
    thread_counts,
)

GIB = 2**30


def test_counts_that_are_tried() -> None:
    """All cores, then half of them, down to one."""
    assert [thread_counts(cores) for cores in (1, 2, 6, 16)] == [
        [1], [2, 1], [6, 3, 1], [16, 8, 4, 2, 1],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "cores, paces, most, split",
    [
        # Two threads are hardly faster than one: two workers.
        (2, {2: (9, 30), 1: (14, 45)}, 9, (2, 1)),
        # Two threads are twice as fast: one worker, the second would gain nothing.
        (2, {2: (5, 20), 1: (10, 40)}, 9, (1, 2)),
        # A gain of a twentieth is not worth a second copy of the model.
        (2, {2: (5, 20), 1: (10, 38)}, 9, (1, 2)),
        # Memory for one only.
        (2, {2: (9, 30), 1: (14, 45)}, 1, (1, 2)),
        # Alone, one thread takes three times as long as the fastest: half way is as far as it goes.
        (4, {4: (5, 30), 2: (8, 40), 1: (15, 50)}, 9, (2, 2)),
        # Memory for two of four: threads that two can use.
        (4, {4: (9, 40), 2: (10, 45), 1: (14, 50)}, 2, (2, 2)),
        # More cores than the front can feed.
        (64, {64: (9, 40), 32: (9, 40), 16: (9, 40), 8: (9, 40), 4: (9, 41)}, 99, (8, 8)),
        (1, {1: (9, 40)}, 9, (1, 1)),
    ],
)  # fmt: skip
def test_cuts(
    cores: int, paces: dict[int, tuple[float, float]], most: int, split: tuple[int, int]
) -> None:
    """The cut follows what was measured, memory, and the time of a lone request."""
    measured = {threads: Pace(*pace) for threads, pace in paces.items()}
    assert best_split(cores, measured, most) == Split(*split)


SECONDS = st.floats(1e-4, 10.0)


@given(cores=st.integers(1, 256), most=st.integers(1, 300), data=st.data())
def test_laws(cores: int, most: int, data: st.DataObject) -> None:
    """Cores, memory and the lone request's time are kept, whatever was measured."""
    paces = {
        threads: Pace(data.draw(SECONDS), data.draw(SECONDS)) for threads in thread_counts(cores)
    }
    split = best_split(cores, paces, most)
    assert 1 <= split.workers <= min(most, MOST_WORKERS)
    assert split.workers * split.threads <= cores
    fastest_s = min(pace.lone_s for pace in paces.values())
    kept = paces[split.threads].lone_s <= LONE_TIMES * fastest_s
    assert kept or split == Split(min(1, most), cores)


def test_nothing_measured() -> None:
    """Without a measurement there is no decision."""
    with pytest.raises(ValueError, match="empty"):
        best_split(2, {}, 1)


@given(free=st.integers(-GIB, 1024 * GIB), each=st.integers(-1, 64 * GIB))
def test_memory(free: int, each: int) -> None:
    """All further workers together fit into the share of what is free; one there always is."""
    most = most_workers(free, each)
    assert most >= 1
    assert most == 1 or (most - 1) * each <= MEMORY_SHARE * free


def test_memory_in_figures() -> None:
    """Beside 5 GiB free and workers of one, four more fit."""
    assert most_workers(5 * GIB, GIB) == 5
    assert most_workers(GIB, GIB) == 1
