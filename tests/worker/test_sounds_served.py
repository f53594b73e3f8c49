"""Every task of sound answers as the stock pipeline does, alone, in lists and in mixed batches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from service.core.errors import Refused
from service.tasks import TASKS
from service.worker.pipelines import load_pipeline
from service.worker.pipelines.hearing import UNITS_A_SECOND
from service.worker.wire import Prepare, Prepared, Probe, Unfit, WireItem
from tests.trap import Trap
from tests.worker.line import Line, inside
from tests.worker.named import leave_untouched
from tests.worker.recorded import samples, wav
from tests.worker.served import Case, Served, plain, same
from tests.worker.small_sounds import MAKERS

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom.*:UserWarning")

LABELS = {"candidate_labels": ["a harbour", "the wall", "rain"]}
LENGTHS = [0.2, 0.31, 0.5, 0.5, 0.77, 1.0, 1.0, 1.3, 1.9]
CHUNKS: list[Case] = [
    (3.1, {"chunk_length_s": 1}),
    (5.2, {"chunk_length_s": 1.5, "stride_length_s": 0.25}),
    (5.2, {"chunk_length_s": 1.5, "stride_length_s": [0.5, 0.1]}),
    (0.4, {"chunk_length_s": 1}),
]

CLASSES: list[Case] = [
    *[(seconds, {}) for seconds in LENGTHS],
    (0.6, {"top_k": 2}),
    (0.5, {"top_k": 100}),
    (0.5, {"function_to_apply": "sigmoid"}),
    (0.5, {"function_to_apply": "none", "top_k": 1}),
    (4.0, {}),
]
CTC: list[Case] = [
    *[(seconds, {}) for seconds in LENGTHS],
    *[(seconds, {"return_timestamps": "word"}) for seconds in LENGTHS[4:]],
    *[(seconds, {"return_timestamps": "char"}) for seconds in LENGTHS[:3]],
    *CHUNKS,
    (5.2, {"chunk_length_s": 1.5, "return_timestamps": "word"}),
    (2.2, {"chunk_length_s": 1.5, "return_timestamps": "word"}),
]
CASES: dict[str, list[Case]] = {
    "audio-classification": CLASSES,
    "audio-classification:plain": CLASSES,
    "audio-classification:window": CLASSES,
    "automatic-speech-recognition": CTC,
    "automatic-speech-recognition:plain": CTC,
    "automatic-speech-recognition:whisper": [
        *[(seconds, {}) for seconds in LENGTHS],
        *[(seconds, {"return_timestamps": True}) for seconds in LENGTHS[:4]],
        *[(seconds, {"return_timestamps": "word"}) for seconds in LENGTHS[:4]],
        (1.0, {"num_beams": 2, "max_new_tokens": 9}),
        (1.0, {"language": "de", "task": "translate"}),
        (0.5, {"language": "english", "task": "transcribe"}),
        (1.0, {"return_language": True}),
        (0.5, {"return_language": True}),
        (0.7, {"return_language": True, "return_timestamps": True}),
        *CHUNKS,
        (5.2, {"chunk_length_s": 1.5, "return_timestamps": True}),
        (3.5, {"return_timestamps": True}),
    ],
    "zero-shot-audio-classification": [
        *[(seconds, LABELS) for seconds in LENGTHS],
        (0.5, {"candidate_labels": ["rain"]}),
        (0.5, {"candidate_labels": ["rain", "rain", "stone"]}),
        (0.7, {**LABELS, "hypothesis_template": "it is {} ."}),
        (3.0, LABELS),
    ],
}


class Heard(Served):
    """One kind of model; a number of seconds stands for a sound."""

    def __init__(self, name: str, folder: Path, line: Line) -> None:
        super().__init__(TASKS[name.partition(":")[0]], folder, line)
        self.name = name

    def item(self, case: Case) -> WireItem:
        """A case as it comes from the front."""
        value, parameters = case
        return super().item((wav(value) if isinstance(value, float) else value, parameters))

    def expected(self, value: Any, parameters: dict[str, Any]) -> Any:
        """What the stock call says, as JSON values."""
        np.random.seed(0)  # noqa: NPY002 - what cuts at random draws from here
        return plain(self.stock(samples(value), **copy.deepcopy(parameters)))


each = pytest.mark.parametrize("name", list(CASES))
each_of_speech = pytest.mark.parametrize(
    "name", [name for name in CASES if TASKS[name.partition(":")[0]].way == "listening"]
)
each_task = pytest.mark.parametrize(
    "name", [name for name in CASES if ":" not in name or name.endswith("whisper")]
)
"""Without those that are the same task with another model."""


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Heard]]:
    """Each kind, loaded when it is first asked for."""
    torch.set_num_threads(1)
    with ExitStack() as stack:

        @cache
        def load(name: str) -> Heard:
            folder = tmp_path_factory.mktemp("model")
            MAKERS[name](folder)
            return Heard(name, folder, stack.enter_context(inside(load_pipeline)))

        yield load


@pytest.fixture
def served(name: str, load: Callable[[str], Heard]) -> Heard:
    """The kind that is asked for."""
    return load(name)


@each
def test_facts(served: Heard) -> None:
    """Batches were proved right, and a typical input has a size."""
    assert (served.facts.task, served.facts.batchable) == (served.task.name, True)
    assert served.facts.typical_units >= UNITS_A_SECOND
    assert (served.facts.step_units > 0) == served.name.endswith("whisper")
    assert served.line.ask(Probe(1)).ok


@each
def test_alone_as_the_stock_call(served: Heard) -> None:
    """One sound alone gives what ``pipe(samples, **parameters)`` gives."""
    for case in CASES[served.name]:
        [answer] = served.run([case])
        same(answer, served.expected(*case))


@each
def test_in_mixed_batches_as_alone(served: Heard) -> None:
    """In batches of any make each answer is what it is alone: no padding, no neighbour shows."""
    least = 1 if served.name.endswith("plain") else 4
    assert served.mixed_as_alone(CASES[served.name]) > least


@each
def test_examples_are_served(served: Heard) -> None:
    """The entry's example and canary work on a model of the task."""
    task = served.task
    for value, parameters in (
        (task.example, task.example_parameters),
        (task.canary, task.canary_parameters),
    ):
        assert served.run([(value, dict(parameters))])


@each
def test_bad_examples_name_the_field(served: Heard) -> None:
    """What the entry calls bad is refused, at the input or inside it."""
    for bad, _ in served.task.bad_examples:
        with pytest.raises(Refused) as caught:
            served.task.taken(bad, "/inputs")
        assert caught.value.problem.code == "invalid_input"
        assert caught.value.problem.errors[0].pointer.startswith("/inputs")


@each_of_speech
def test_every_piece_counts(served: Heard) -> None:
    """A sound that is cut into pieces costs what they cost together, overlaps included."""
    _, one = served.prepared((1.0, {"chunk_length_s": 1}))
    _, many = served.prepared((10.0, {"chunk_length_s": 1}))
    # Steps of 2/3 s, and rows that are a second long, or the window.
    assert many.units >= 14 * one.units


@each
def test_too_long_and_too_short_are_told(served: Heard) -> None:
    """A sound that the model was not proved to take is refused with the limit."""
    short = served.line.ask(Prepare(served.item((0.001, dict(served.task.example_parameters)))))
    assert isinstance(short, Unfit)
    assert "at least" in short.message
    long = served.line.ask(Prepare(served.item((31.0, dict(served.task.example_parameters)))))
    window = served.name.endswith("window") or served.task.name.startswith("zero")
    if window:
        assert isinstance(long, Prepared)
        return
    assert isinstance(long, Unfit), long
    assert long.code == "invalid_input"
    assert long.limit == (2 if served.name.endswith("whisper") else 30)


@each_task
def test_nothing_that_a_client_names_is_opened(served: Heard, tmp_path: Path) -> None:
    """Addresses and paths, wherever they stand, are refused: nobody connects or opens."""
    trap = Trap(tmp_path)
    assert leave_untouched(served, trap) >= 0
    trap.close()
