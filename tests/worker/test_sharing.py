"""The first worker measures how the cores are best shared out, and then works that way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from service.core.split import Split
from service.worker.pipelines import sharing
from service.worker.pipelines.sharing import BATCH_ITEMS, BATCH_LENGTH, ENOUGH_S, share_cores


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Machine:
    """A machine on which a token takes its time by the number of threads."""

    def __init__(self, token_s: dict[int, float], loud: tuple[float, float] = (0, 0)) -> None:
        self.now = 0.0
        self.loud = loud
        self.token_s = token_s
        self.ran: list[tuple[int, int, int]] = []

    def clock(self) -> float:
        return self.now

    def run(self, items: int, length: int) -> None:
        threads = torch.get_num_threads()
        self.ran.append((threads, items, length))
        begin, end = self.loud
        times = 3 if begin <= self.now < end else 1
        self.now += times * items * length * self.token_s[threads]

    def share(self, cores: int, *, batchable: bool = True) -> Split:
        return share_cores(cores, self.run, typical=9, batchable=batchable, clock=self.clock)


def test_two_workers() -> None:
    """Threads that hardly help become workers, and this one uses its share."""
    machine = Machine({2: 0.0001, 1: 0.00012})
    assert machine.share(2) == Split(2, 1)
    assert torch.get_num_threads() == 1


def test_one_worker() -> None:
    """Threads that help stay threads."""
    machine = Machine({2: 0.0001, 1: 0.0002})
    assert machine.share(2) == Split(1, 2)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("begin", [0.0, 0.02, 0.04, 0.06, 0.08])
@pytest.mark.parametrize("one_s, split", [(0.00012, Split(2, 1)), (0.0002, Split(1, 2))])
def test_loud_neighbour(begin: float, one_s: float, split: Split) -> None:
    """Whoever slows the machine down for longer than one figure takes decides nothing."""
    machine = Machine({2: 0.0001, 1: one_s}, loud=(begin, begin + 0.06))
    assert machine.share(2) == split


def test_what_is_run() -> None:
    """A typical input alone and a small batch; where batches cannot be, the input alone."""
    machine = Machine({2: 0.0001, 1: 0.0002})
    machine.share(2)
    assert {run[1:] for run in machine.ran} == {(1, 9), (BATCH_ITEMS, BATCH_LENGTH)}
    machine.ran.clear()
    machine.share(2, batchable=False)
    assert {run[1:] for run in machine.ran} == {(1, 9)}


def test_slow_model() -> None:
    """A model that takes seconds has one round: once to warm up, once for each figure."""
    machine = Machine({2: ENOUGH_S, 1: ENOUGH_S})
    machine.share(2)
    assert len(machine.ran) == 2 * 3


def test_no_memory_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory holds one copy of the model there is one worker, with all threads."""

    class Full:
        def memory_limit_bytes(self) -> int:
            return 2**30

        def memory_usage_bytes(self) -> int:
            return 2**30 - 2**20

    monkeypatch.setattr(sharing, "Cgroup", Full)
    assert Machine({2: 0.0001, 1: 0.00012}).share(2) == Split(1, 2)
