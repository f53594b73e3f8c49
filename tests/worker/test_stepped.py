"""Inputs of many rows: run in parts where they do not fit, one by one where nothing was proved.

One kind of each way in which rows come together: padded, stacked, and windows that generate.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from service.tasks import TASKS
from service.worker.interface import Mismatch, PreparedInput
from service.worker.pipelines import load_pipeline
from service.worker.pipelines.pieces import Row, divided
from service.worker.pipelines.stepped import Stepped
from service.worker.pipelines.stock import Payload
from service.worker.wire import Fault, Load, Result, Run, WireItem
from tests.worker.images import PLAIN
from tests.worker.line import inside
from tests.worker.recorded import wav
from tests.worker.served import plain, same
from tests.worker.small_image_models import save_image_model
from tests.worker.small_models import WORDS, save_model
from tests.worker.small_sounds import MAKERS

ALLOCATOR = "[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried to allocate"


class Kind(NamedTuple):
    """A way in which rows come together, and an input of about twenty."""

    save: Callable[[Any, str], None]
    value: Any
    parameters: dict[str, Any]


def save_sound_model(folder: Any, name: str) -> None:
    """A model that hears."""
    MAKERS[name](folder)


LABELS = [word for word in WORDS if word.isalpha()][:20]
KINDS = {
    "zero-shot-classification": Kind(
        save_model, "the harbour wall was built of grey stone", {"candidate_labels": LABELS}
    ),
    "zero-shot-object-detection": Kind(
        save_image_model, PLAIN[0], {"candidate_labels": LABELS, "threshold": 0.6}
    ),
    "automatic-speech-recognition": Kind(save_sound_model, wav(14.0), {"chunk_length_s": 1}),
    "automatic-speech-recognition:plain": Kind(save_sound_model, wav(14.0), {"chunk_length_s": 1}),
    "automatic-speech-recognition:whisper": Kind(
        save_sound_model, wav(14.0), {"chunk_length_s": 1}
    ),
}


def no_memory() -> RuntimeError:
    """What the CPU's allocator raises."""
    return RuntimeError(ALLOCATOR)


class Bent:
    """A model whose forward takes so many rows and no more, and loses some on the way.

    Attributes:
        rows: how many fit.
        lost: how many do not come back.
        ran: the rows of each forward that was tried.
        error: makes what it raises for more.
        freed: of each failure, whether what it held was gone when the next forward began.
    """

    def __init__(self, name: str, pipeline: Any) -> None:
        self.task = TASKS[name.partition(":")[0]]
        self.kind = KINDS[name]
        self.pipeline: Stepped = pipeline
        self.ran: list[int] = []
        self.freed: list[bool] = []
        self._forward = self.pipeline.pipe.forward
        self._held: weakref.ref[torch.Tensor] | None = None
        self.pipeline.pipe.forward = self.forward
        self.restore()

    def restore(self) -> None:
        """Room for all, and nothing run."""
        self.rows, self.lost = 1000, 0
        self.error: Callable[[], Exception] = no_memory
        self.pipeline.batchable = True
        self.ran.clear()
        self.freed.clear()
        self._held = None

    def forward(self, inputs: dict[str, Any], **given: Any) -> Any:
        """As the stock one, if it fits."""
        rows = next(len(part) for part in inputs.values() if isinstance(part, torch.Tensor))
        self.ran.append(rows)
        if self._held is not None:
            self.freed.append(self._held() is None)
            self._held = None
        if rows > self.rows:
            partly = torch.zeros(rows)
            self._held = weakref.ref(partly)
            raise self.error()
        outputs = self._forward(inputs, **given)
        return {
            name: part[: rows - self.lost] if isinstance(part, torch.Tensor) and part.ndim else part
            for name, part in outputs.items()
        }

    def wire_item(self) -> WireItem:
        """The input as it comes from the front."""
        text, media = self.task.taken(self.kind.value, "/inputs")
        return WireItem(1, text, msgspec.json.encode(self.kind.parameters), media=media)

    def item(self) -> PreparedInput:
        """The input, prepared."""
        text, media = self.task.taken(self.kind.value, "/inputs")
        return self.pipeline.prepare(text, media, self.kind.parameters)

    def answer(self) -> Any:
        """Of the input alone."""
        [answer] = self.pipeline.run([self.item()])
        return plain(answer)

    def whole(self) -> tuple[Any, int]:
        """The answer where all fits, and the rows of the largest forward."""
        answer = self.answer()
        assert sum(self.ran) >= 20
        most = max(self.ran)
        assert most >= 15, "rows did not share a forward"
        self.ran.clear()
        return answer, most


@pytest.fixture(scope="module", params=list(KINDS))
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bent]:
    """Each kind in turn, loaded once."""
    name: str = request.param
    folder = tmp_path_factory.mktemp("model")
    KINDS[name].save(folder, name)
    torch.set_num_threads(1)
    pipeline = load_pipeline(Load(str(folder), name.partition(":")[0]))
    gc.collect()
    gc.freeze()  # as a worker does: later collections are short
    yield Bent(name, pipeline)
    gc.unfreeze()


@pytest.fixture
def bent(model: Bent) -> Iterator[Bent]:
    """The same, as it was."""
    model.restore()
    yield model
    model.restore()


@pytest.mark.parametrize(
    "rows, error",
    [
        pytest.param(1, no_memory, id="one by one"),
        pytest.param(7, no_memory, id="the allocator's"),
        pytest.param(7, MemoryError, id="Python's"),
        pytest.param(14, torch.OutOfMemoryError, id="the device's"),
    ],
)
def test_it_is_run_in_parts(bent: Bent, rows: int, error: Callable[[], Exception]) -> None:
    """It has the answer that it has where all fits, from halves, and of each row once."""
    right, _ = bent.whole()
    total = len(bent.item().payload.rows)
    bent.rows, bent.error = rows, error
    same(bent.answer(), right)
    good = [ran for ran in bent.ran if ran <= rows]
    assert sum(good) == total
    failed = [ran for ran in bent.ran if ran > rows]
    assert failed == sorted(failed, reverse=True)
    assert len(set(failed)) == len(failed), "a size that failed was tried again"
    assert bent.freed == [True] * len(failed), "what failed still held its memory"


def test_one_row_that_does_not_fit_is_told(bent: Bent) -> None:
    """At a single row there is nothing to divide: its failure is the input's."""
    bent.rows = 0
    with pytest.raises(RuntimeError):
        bent.answer()
    halves = [bent.ran[0]]
    while halves[-1] > 1:
        halves.append(halves[-1] // 2)
    assert bent.ran == halves


def test_a_batch_of_several_is_for_the_front_to_halve(bent: Bent) -> None:
    """Beside another input its failure is the batch's, at once: the budget learns from it."""
    bent.rows = 10
    items = [bent.item(), bent.item()]
    with pytest.raises(RuntimeError):
        bent.pipeline.run(items)
    assert len(bent.ran) == 1


def test_another_error_is_not_tried_again(bent: Bent) -> None:
    """Only a want of memory is a matter of size."""
    bent.rows, bent.error = 1, KeyError
    with pytest.raises(KeyError):
        bent.answer()
    assert len(bent.ran) == 1


def test_on_the_wire_it_is_one_result(bent: Bent) -> None:
    """A worker answers such a RUN with RESULT, and one that cannot be divided with FAULT."""
    item = bent.wire_item()
    with inside(lambda _: bent.pipeline) as line:
        line.load("any", bent.task.name)
        bent.rows = 6
        assert isinstance(line.ask(Run(1, [item])), Result)
        bent.rows = 0
        fault = line.ask(Run(2, [item]))
    assert isinstance(fault, Fault)
    assert fault.kind == "oom"


def test_where_nothing_was_proved_each_row_is_alone(bent: Bent) -> None:
    """A model that may not be right in batches runs the rows of an input one by one too."""
    right, _ = bent.whole()
    bent.pipeline.batchable = False
    same(bent.answer(), right)
    assert set(bent.ran) == {1}


@pytest.mark.parametrize("items", [1, 2])
def test_rows_that_do_not_come_back_are_told(bent: Bent, items: int) -> None:
    """As many rows come back as went in, or the batch fails with both numbers in the message."""
    bent.lost = 1
    batch = [bent.item() for _ in range(items)]
    with pytest.raises(Mismatch) as caught:
        bent.pipeline.run(batch)
    [went] = bent.ran
    assert caught.value.message == f"the pipeline gave {went - 1} answers for {went} items"


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
