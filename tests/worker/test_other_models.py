"""Kinds of models beside the usual ones: served as the stock pipeline does, or refused with why."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import pipeline
from transformers.utils import logging

from service.tasks import TASKS
from service.worker.interface import CannotLoad
from service.worker.pipelines import load_pipeline
from service.worker.wire import Load, Prepare, Probe, Unfit
from tests.worker.images import MAKES, PLAIN
from tests.worker.line import inside
from tests.worker.served import Case, Served, same
from tests.worker.small_other_models import MAKERS, WRITES
from tests.worker.test_speaking_and_watching import film

DOCUMENTS = "document-question-answering"
FILMS = "video-classification"


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """The library's own words are not this test's."""
    logging.set_verbosity_error()


def served(folder: Path, kind: str, task: str) -> Iterator[Served]:
    """A model of this kind, in a worker and in the stock pipeline."""
    MAKERS[kind](folder)
    torch.set_num_threads(1)
    with inside(load_pipeline) as line:
        yield Served(TASKS[task], folder, line)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A document reader that writes its answer."""
    yield from served(tmp_path_factory.mktemp("donut"), "donut", DOCUMENTS)


@pytest.fixture(scope="module")
def watcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A model of films that looks at tubes."""
    yield from served(tmp_path_factory.mktemp("vivit"), "vivit", FILMS)


def question(text: str, image: str, **parameters: Any) -> Case:
    """A question about a picture."""
    return {"question": text, "image": image}, parameters


def test_a_document_is_read_without_words(reader: Served) -> None:
    """A model that reads the picture answers as the stock call, alone and beside others."""
    cases = [question("what wall", image) for image in (MAKES[0], MAKES[2], PLAIN[0])]
    answers = reader.run(cases)
    cases.append(question("who lives in hamburg", PLAIN[1], top_k=2, max_answer_len=3))
    answers += reader.run(cases[-1:])
    for case, answer in zip(cases, answers, strict=True):
        right = reader.expected(*case)
        assert right[0]["answer"]
        same(answer, right)
    assert len({answer[0]["answer"] for answer in answers[:3]}) > 1
    assert not reader.facts.batchable
    assert reader.line.ask(Probe(1)).ok


def test_a_document_reader_takes_words_and_leaves_them(reader: Served) -> None:
    """Words beside the picture change nothing: the model reads for itself."""
    boxes = [["harbour", [0, 0, 100, 20]]]
    value, _ = question("what wall", PLAIN[0])
    [with_words] = reader.run([({**value, "word_boxes": boxes}, {})])
    same(with_words, reader.expected(value, {}))


@pytest.mark.parametrize(
    "value,said",
    [
        ({"question": "a", "word_boxes": [["a", [0, 0, 1, 1]]]}, "'image'"),
        ({"question": "stone " * 60, "image": MAKES[0]}, f"{WRITES - 1}"),
    ],
    ids=["no picture", "long question"],
)
def test_what_a_document_reader_cannot_take(reader: Served, value: Any, said: str) -> None:
    """Without a picture, or with a question that leaves no room for an answer, it is a 422."""
    answer = reader.line.ask(Prepare(reader.item((value, {}))))
    assert isinstance(answer, Unfit), answer
    assert answer.code == "invalid_input"
    assert said in answer.message


def test_tubes_of_frames_as_in_the_stock_call(watcher: Served, tmp_path: Path) -> None:
    """A processor without a Pillow kind gives what the stock call gives of the file."""
    stock = pipeline(FILMS, model=watcher.stock.model.name_or_path, device="cpu")
    parameters: tuple[dict[str, Any], ...] = ({}, {"top_k": 2, "frame_sampling_rate": 2})
    for given in parameters:
        films = [film(20, 1), film(20, 2, 64), film(24, 3, kind="matroska")]
        answers = watcher.run([(base64.b64encode(data).decode(), given) for data in films])
        for data, answer in zip(films, answers, strict=True):
            path = tmp_path / "a.film"
            path.write_bytes(data)
            same(answer, stock(str(path), **given))
    assert watcher.line.ask(Probe(1)).ok


@pytest.mark.parametrize(
    "kind,task,said",
    [
        ("speecht5", "text-to-audio", ("spectrograms", "vocoder", "voice")),
        ("vjepa", FILMS, ("video processor", "image processor")),
    ],
)
def test_what_is_not_served_says_why(
    tmp_path: Path, kind: str, task: str, said: tuple[str, ...]
) -> None:
    """A kind that is not served is refused at the start, and never told its own task's name."""
    MAKERS[kind](tmp_path)
    with pytest.raises(CannotLoad) as caught:
        load_pipeline(Load(str(tmp_path), task))
    assert caught.value.reason == "wrong_task"
    assert all(word in caught.value.message for word in said)
    assert task not in caught.value.message


def test_only_donut_reads_documents(tmp_path: Path) -> None:
    """Another model that reads a picture and writes is told apart before it is loaded."""
    MAKERS["donut"](tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"donut-swin"', '"swin"'))
    with pytest.raises(CannotLoad) as caught:
        load_pipeline(Load(str(tmp_path), DOCUMENTS))
    assert caught.value.reason == "wrong_task"
    assert "Donut" in caught.value.message
