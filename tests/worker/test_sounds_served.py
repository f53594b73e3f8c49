"""Every task of sound answers as the stock pipeline does, alone, in lists and in mixed batches."""

from __future__ import annotations

import base64
import copy
import io
import itertools
import json
import random
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from transformers import pipeline

from service.core.errors import Refused
from service.tasks import TASKS, Task
from service.worker.pipelines import load_pipeline
from service.worker.pipelines.hearing import UNITS_A_SECOND
from service.worker.wire import Facts, Prepare, Prepared, Probe, Result, Run, Unfit, WireItem
from tests.trap import Trap
from tests.worker.line import Line, inside
from tests.worker.named import leave_untouched
from tests.worker.served import plain, same
from tests.worker.small_sounds import MAKERS

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom.*:UserWarning")

ids = itertools.count(1)
Case = tuple[float, dict[str, Any]]
"""Seconds of a sound, and parameters."""

RATE_HZ = 16000
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


def samples(seconds: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A sound of such a length: tones that come and go, and a little noise."""
    chance = np.random.default_rng(round(seconds * 1000))
    times = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    tones = sum(
        np.sin(2 * np.pi * pitch * times) * (np.sin(7 * times + pitch) > 0)
        for pitch in chance.uniform(80, 3000, 4)
    )
    sound = 0.1 * tones + 0.05 * chance.standard_normal(len(times))
    whole = np.rint(np.clip(sound, -1, 1) * 32767)
    return np.asarray(whole / 32768, np.float32)


def wav(seconds: float) -> bytes:
    """The same as a file."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes((samples(seconds) * 32768).astype("<i2").tobytes())
    return written.getvalue()


class Served:
    """One kind of model: its entry, a worker that has loaded it, the stock pipeline of the same."""

    def __init__(self, name: str, folder: Path, line: Line) -> None:
        self.name = name
        self.task: Task = TASKS[name.partition(":")[0]]
        self.line = line
        self.facts: Facts = line.load(str(folder), self.task.name)
        self.stock = pipeline(self.task.name, model=str(folder), device="cpu")

    def item(self, case: Case) -> WireItem:
        """A case as it comes from the front."""
        seconds, parameters = case
        checked = self.task.parse_parameters(parameters, {})
        text, media = self.task.taken(base64.b64encode(wav(seconds)).decode(), "/inputs")
        return WireItem(next(ids), text, msgspec.json.encode(checked), media=media)

    def prepared(self, case: Case) -> tuple[WireItem, Prepared]:
        """The item, and what preparing it says."""
        item = self.item(case)
        answer = self.line.ask(Prepare(item))
        assert isinstance(answer, Prepared), (case, answer)
        return item, answer

    def run(self, cases: Sequence[Case]) -> list[Any]:
        """The answers of one batch as the worker gives them."""
        batch = [self.prepared(case) for case in cases]
        assert len({answer.key for _, answer in batch}) == 1
        result = self.line.ask(Run(next(ids), [item for item, _ in batch]))
        assert isinstance(result, Result), result
        assert result.units == sum(answer.units for _, answer in batch)
        return [json.loads(output) for output in result.outputs]

    def expected(self, case: Case) -> Any:
        """What the stock call says, as JSON values."""
        seconds, parameters = case
        np.random.seed(0)  # noqa: NPY002 - what cuts at random draws from here
        return plain(self.stock(samples(seconds), **copy.deepcopy(parameters)))


@pytest.fixture(scope="module", params=list(CASES))
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Each kind in turn."""
    folder = tmp_path_factory.mktemp("model")
    MAKERS[request.param](folder)
    torch.set_num_threads(1)
    with inside(load_pipeline) as line:
        yield Served(request.param, folder, line)


def test_facts(served: Served) -> None:
    """Batches were proved right, and a typical input has a size."""
    assert (served.facts.task, served.facts.batchable) == (served.task.name, True)
    assert served.facts.typical_units >= UNITS_A_SECOND
    assert (served.facts.step_units > 0) == served.name.endswith("whisper")
    assert served.line.ask(Probe(1)).ok


def test_alone_as_the_stock_call(served: Served) -> None:
    """One sound alone gives what ``pipe(samples, **parameters)`` gives."""
    for case in CASES[served.name]:
        [answer] = served.run([case])
        same(answer, served.expected(case))


def test_in_mixed_batches_as_alone(served: Served) -> None:
    """In batches of any make each answer is what it is alone: no padding, no neighbour shows."""
    chance = random.Random(5)
    groups: dict[str, list[tuple[Case, Any]]] = {}
    for case in CASES[served.name]:
        _, answer = served.prepared(case)
        groups.setdefault(answer.key, []).append((case, served.run([case])[0]))
    assert max(map(len, groups.values())) > (1 if served.name.endswith("plain") else 4)
    for group in groups.values():
        for _ in range(3):
            chosen = [chance.choice(group) for _ in range(chance.randint(2, 9))]
            answers = served.run([case for case, _ in chosen])
            for answer, (_, right) in zip(answers, chosen, strict=True):
                same(answer, right)


def test_examples_are_served(served: Served) -> None:
    """The entry's example and canary work on a model of the task."""
    task = served.task
    for value, parameters in (
        (task.example, task.example_parameters),
        (task.canary, task.canary_parameters),
    ):
        text, media = task.taken(value, "/inputs")
        item = WireItem(next(ids), text, msgspec.json.encode(dict(parameters)), media=media)
        assert isinstance(served.line.ask(Prepare(item)), Prepared)
        assert isinstance(served.line.ask(Run(next(ids), [item])), Result)


def test_bad_examples_name_the_field(served: Served) -> None:
    """What the entry calls bad is refused, at the input or inside it."""
    for bad, _ in served.task.bad_examples:
        with pytest.raises(Refused) as caught:
            served.task.taken(bad, "/inputs")
        assert caught.value.problem.code == "invalid_input"
        assert caught.value.problem.errors[0].pointer.startswith("/inputs")


def test_every_piece_counts(served: Served) -> None:
    """A sound that is cut into pieces costs what they cost together, overlaps included."""
    if served.task.way != "listening":
        pytest.skip("only speech is cut")
    _, one = served.prepared((1.0, {"chunk_length_s": 1}))
    _, many = served.prepared((10.0, {"chunk_length_s": 1}))
    # Steps of 2/3 s, and rows that are a second long, or the window.
    assert many.units >= 14 * one.units


def test_too_long_and_too_short_are_told(served: Served) -> None:
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


class Anything:
    """As the other tasks are asked: with any value in the place of a sound."""

    def __init__(self, served: Served) -> None:
        self.task, self.line = served.task, served.line

    def item(self, case: tuple[Any, dict[str, Any]]) -> WireItem:
        """The item, or a refusal."""
        value, parameters = case
        checked = self.task.parse_parameters(parameters, {})
        text, media = self.task.taken(value, "/inputs")
        return WireItem(next(ids), text, msgspec.json.encode(checked), media=media)


def test_nothing_that_a_client_names_is_opened(served: Served, tmp_path: Path) -> None:
    """Addresses and paths, wherever they stand, are refused: nobody connects or opens."""
    if ":" in served.name and not served.name.endswith("whisper"):
        pytest.skip("the same task with another model")
    trap = Trap(tmp_path)
    assert leave_untouched(Anything(served), trap) >= 0
    trap.close()
