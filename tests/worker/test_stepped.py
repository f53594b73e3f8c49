"""An input of many rows, alone, whose rows together do not fit the memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from service.worker.interface import PreparedInput
from service.worker.pipelines import load_pipeline
from service.worker.pipelines.pieces import Row, divided
from service.worker.pipelines.stock import Payload, StockPipeline
from service.worker.wire import Fault, Load, Result, Run, WireItem
from tests.worker.line import inside
from tests.worker.small_models import WORDS, save_model

TASK = "zero-shot-classification"
TEXT = "the harbour wall was built of grey stone"
LABELS = {"candidate_labels": WORDS[:20]}
ALLOCATOR = "[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried to allocate"


def no_memory() -> RuntimeError:
    """What the CPU's allocator raises."""
    return RuntimeError(ALLOCATOR)


class Memory:
    """A model whose forward takes so many rows and no more.

    Attributes:
        rows: how many fit.
        ran: the rows of each forward that was tried.
        error: makes what it raises for more.
        freed: of each failure, whether what it held was gone when the next forward began.
    """

    def __init__(self, pipeline: Any) -> None:
        self.pipeline: StockPipeline = pipeline
        self.rows = 1000
        self.error: Callable[[], Exception] = no_memory
        self.ran: list[int] = []
        self.freed: list[bool] = []
        self._forward = self.pipeline.pipe.forward
        self._held: weakref.ref[torch.Tensor] | None = None
        self.pipeline.pipe.forward = self.forward

    def forward(self, inputs: dict[str, Any], **given: Any) -> Any:
        """As the stock one, if it fits."""
        rows = len(inputs["input_ids"])
        self.ran.append(rows)
        if self._held is not None:
            self.freed.append(self._held() is None)
            self._held = None
        if rows > self.rows:
            partly = torch.zeros(rows)
            self._held = weakref.ref(partly)
            raise self.error()
        return self._forward(inputs, **given)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """A small classifier, loaded once."""
    folder = tmp_path_factory.mktemp("zero-shot")
    save_model(folder, TASK)
    torch.set_num_threads(1)
    pipeline = load_pipeline(Load(str(folder), TASK))
    gc.collect()
    gc.freeze()  # as a worker does: later collections are short
    yield Memory(pipeline)
    gc.unfreeze()


@pytest.fixture
def memory(model: Memory) -> Iterator[Memory]:
    """The same, with room for all and nothing run."""
    model.rows, model.error = 1000, no_memory
    model.ran.clear()
    model.freed.clear()
    yield model
    model.rows = 1000


def prepared(memory: Memory) -> PreparedInput:
    """The text beside each label."""
    return memory.pipeline.prepare(TEXT, b"", LABELS)


@pytest.mark.parametrize(
    "rows, error",
    [
        pytest.param(1, no_memory, id="one by one"),
        pytest.param(7, no_memory, id="the allocator's"),
        pytest.param(7, MemoryError, id="Python's"),
        pytest.param(19, torch.OutOfMemoryError, id="the device's"),
    ],
)
def test_it_is_run_in_parts(memory: Memory, rows: int, error: Callable[[], Exception]) -> None:
    """It has the answer that it has where all fits, from halves, and of each row once."""
    [right] = memory.pipeline.run([prepared(memory)])
    assert memory.ran == [20]
    memory.rows, memory.error = rows, error
    memory.ran.clear()
    [answer] = memory.pipeline.run([prepared(memory)])
    assert answer["labels"] == right["labels"]
    assert answer["scores"] == pytest.approx(right["scores"], abs=1e-5)
    good = [ran for ran in memory.ran if ran <= rows]
    assert sum(good) == 20
    failed = [ran for ran in memory.ran if ran > rows]
    assert failed == sorted(failed, reverse=True)
    assert len(set(failed)) == len(failed), "a size that failed was tried again"
    assert memory.freed == [True] * len(failed), "what failed still held its memory"


def test_one_row_that_does_not_fit_is_told(memory: Memory) -> None:
    """At a single row there is nothing to divide: its failure is the input's."""
    memory.rows = 0
    with pytest.raises(RuntimeError):
        memory.pipeline.run([prepared(memory)])
    assert memory.ran == [20, 10, 5, 2, 1]


def test_a_batch_of_several_is_for_the_front_to_halve(memory: Memory) -> None:
    """Beside another input its failure is the batch's, at once: the budget learns from it."""
    memory.rows = 19
    items = [prepared(memory), prepared(memory)]
    with pytest.raises(RuntimeError):
        memory.pipeline.run(items)
    assert memory.ran == [40]


def test_another_error_is_not_tried_again(memory: Memory) -> None:
    """Only a want of memory is a matter of size."""
    memory.rows, memory.error = 1, KeyError
    with pytest.raises(KeyError):
        memory.pipeline.run([prepared(memory)])
    assert memory.ran == [20]


def test_on_the_wire_it_is_one_result(memory: Memory) -> None:
    """A worker answers such a RUN with RESULT, and one that cannot be divided with FAULT."""
    item = WireItem(1, TEXT, msgspec.json.encode(LABELS))
    with inside(lambda _: memory.pipeline) as line:
        line.load("any", TASK)
        memory.rows = 6
        assert isinstance(line.ask(Run(1, [item])), Result)
        memory.rows = 0
        fault = line.ask(Run(2, [item]))
    assert isinstance(fault, Fault)
    assert fault.kind == "oom"


@given(
    waiting=st.lists(st.integers(1, 40), max_size=6),
    failed=st.integers(2, 40),
)
def test_every_row_is_run_once_in_smaller_parts(waiting: list[int], failed: int) -> None:
    """Nothing is lost or doubled; no part has more than half of the rows that failed."""
    payload = Payload({}, 1, {})
    lengths = [*waiting, failed]
    groups = [[Row(item, place, payload) for place in range(n)] for item, n in enumerate(lengths)]
    parts = divided(groups[:-1], groups[-1])
    assert max(len(part) for part in parts) <= (failed + 1) // 2
    assert all(parts)
    found = sorted((row.item, row.place) for part in parts for row in part)
    assert found == [(item, place) for item, n in enumerate(lengths) for place in range(n)]
