"""One vector of a text: as the folder says, in mixed batches, equal to sentence-transformers."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import pipeline

from service.tasks import TASKS
from service.worker.interface import CannotLoad
from service.worker.pipelines.embedding import Pooling, pooled, pooling_of
from service.worker.wire import Prepare, Prepared, Result, Run, Unfit, WireItem
from tests.tools import sentence_model
from tests.worker.line import Line, inside

ids = itertools.count(1)

TEXTS = ["Hello harbour", "The quick brown fox jumps over the lazy dog.", "naïve 東京 🙂", "a"]
TOKENS = torch.tensor([[1.0, -4.0], [3.0, 2.0], [5.0, 2.0]])


def folder_with(folder: Path, *kinds: str, config: Any = None, most_tokens: Any = None) -> Path:
    """A folder whose files say so."""
    steps = [
        {"type": f"sentence_transformers.models.{kind}", "path": f"{index}_{kind}"}
        for index, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(steps))
    if config is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    if most_tokens is not None:
        (folder / "sentence_bert_config.json").write_text(json.dumps(most_tokens))
    return folder


def old(**modes: bool) -> dict[str, Any]:
    """A pooling as older releases write it."""
    words = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    names = {f"pooling_mode_{word}": modes.get(word, False) for word in words}
    return {"word_embedding_dimension": 2, **names}


@pytest.mark.parametrize(
    "config,modes",
    [
        (old(mean_tokens=True), ("mean",)),
        (old(mean_tokens=True, cls_token=True), ("cls", "mean")),
        (old(mean_sqrt_len_tokens=True), ("mean_sqrt",)),
        ({"pooling_mode_weightedmean_tokens": True}, ("weighted",)),
        ({"embedding_dimension": 2, "pooling_mode": "lasttoken"}, ("last",)),
        ({"pooling_mode": ["max", "mean_sqrt_len_tokens"]}, ("max", "mean_sqrt")),
    ],
)
def test_what_the_folder_says(tmp_path: Path, config: Any, modes: tuple[str, ...]) -> None:
    """The poolings that the folder names are taken, in the order in which they are joined."""
    folder = folder_with(tmp_path, "Transformer", "Pooling", config=config)
    assert pooling_of(folder) == Pooling(modes, normalize=False)
    folder_with(tmp_path, "Transformer", "Pooling", "Normalize", most_tokens={"max_seq_length": 9})
    assert pooling_of(folder) == Pooling(modes, normalize=True, most_tokens=9)


def test_a_folder_that_says_nothing(tmp_path: Path) -> None:
    """Without a word in the folder it is the mean, of the length 1."""
    assert pooling_of(tmp_path) == Pooling(("mean",), normalize=True)


@pytest.mark.parametrize("kinds", [(), ("Transformer",), ("Transformer", "Pooling", "Dense")])
def test_an_unknown_step(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """A step that is not known is never left out in silence."""
    folder = folder_with(tmp_path, *kinds, config=old(mean_tokens=True))
    assert not pooling_of(folder).known


@pytest.mark.parametrize(
    "config", [{}, old(), {"pooling_mode": "attention"}, {"pooling_mode_new_tokens": True}]
)
def test_an_unknown_pooling(tmp_path: Path, config: Any) -> None:
    """A pooling that is not known is never taken for another."""
    assert not pooling_of(folder_with(tmp_path, "Transformer", "Pooling", config=config)).known


@pytest.mark.parametrize("text", ["{", "[5]", "{}", '"a"'])
def test_broken_files(tmp_path: Path, text: str) -> None:
    """Files that are no description of anything are named when the model is loaded."""
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(CannotLoad) as caught:
        pooling_of(tmp_path)
    assert caught.value.reason == "model_broken"


@pytest.mark.parametrize("config", [None, [], 5])
def test_broken_pooling(tmp_path: Path, config: Any) -> None:
    """So is a pooling without a description."""
    with pytest.raises(CannotLoad):
        pooling_of(folder_with(tmp_path, "Transformer", "Pooling", config=config))


@pytest.mark.parametrize(
    "mode,vector",
    [
        ("cls", [1.0, -4.0]),
        ("last", [5.0, 2.0]),
        ("mean", [3.0, 0.0]),
        ("max", [5.0, 2.0]),
        ("mean_sqrt", [9.0 / 3**0.5, 0.0]),
        ("weighted", [22.0 / 6, 1.0]),
    ],
)
def test_poolings(mode: str, vector: list[float]) -> None:
    """Each pooling is what its name says, worked out by hand."""
    assert pooled(TOKENS, Pooling((mode,), normalize=False)).tolist() == pytest.approx(vector)


def test_joined_and_of_length_one() -> None:
    """Poolings are joined first, and the whole gets the length 1; nothing stays nothing."""
    assert pooled(TOKENS, Pooling(("cls", "last"))).tolist() == pytest.approx(
        [x / 46**0.5 for x in (1.0, -4.0, 5.0, 2.0)]
    )
    assert pooled(torch.zeros(3, 2), Pooling()).tolist() == [0.0, 0.0]


# ---------------------------------------------------------------- a real model


@pytest.fixture(scope="module")
def line() -> Iterator[Line]:
    """A worker with the real model."""
    from service.worker.pipelines import load_pipeline

    with inside(load_pipeline) as worker:
        facts = worker.load(str(sentence_model()), "feature-extraction")
        assert (facts.width, facts.max_tokens) == (384, 512)
        yield worker


@pytest.fixture(scope="module")
def stock() -> Any:
    """The stock pipeline of the same."""
    return pipeline("feature-extraction", model=str(sentence_model()), device="cpu")


def wire_item(text: str, **parameters: Any) -> WireItem:
    """One input."""
    return WireItem(next(ids), text, json.dumps(parameters).encode())


def prepared(line: Line, *items: WireItem) -> list[Prepared | Unfit]:
    """Have them prepared."""
    found = []
    for item in items:
        frame = line.ask(Prepare(item))
        assert isinstance(frame, Prepared | Unfit)
        found.append(frame)
    return found


def answers(line: Line, *items: WireItem) -> list[Any]:
    """What one batch of them gives."""
    prepared(line, *items)
    frame = line.ask(Run(next(ids), list(items)))
    assert isinstance(frame, Result), frame
    return [json.loads(output) for output in frame.outputs]


def stock_mean(stock: Any, text: str) -> list[float]:
    """The mean of the stock pipeline's vectors, of length 1."""
    mean = torch.tensor(stock(text)[0]).mean(0)
    found: list[float] = (mean / mean.norm()).tolist()
    return found


def test_equal_to_the_stock_pipeline(line: Line, stock: Any) -> None:
    """In one batch of every length and every pooling each vector is that of its text alone."""
    items = [wire_item(text, pooling="model") for text in TEXTS]
    others = [
        wire_item(TEXTS[1], pooling="cls"),
        wire_item(TEXTS[1]),
        wire_item(TEXTS[1], pooling="max", normalize=True),
        wire_item(TEXTS[1], pooling="model", normalize=False),
    ]
    *vectors, cls, tokens, largest, plain = answers(line, *items, *others)
    for vector, text in zip(vectors, TEXTS, strict=True):
        assert vector == pytest.approx(stock_mean(stock, text), abs=1e-4)
    [right] = stock(TEXTS[1])
    assert cls == pytest.approx(right[0], abs=1e-4)
    [rows] = tokens
    assert len(rows) == len(right)
    assert rows[3] == pytest.approx(right[3], abs=1e-4)
    assert torch.tensor(largest).norm() == pytest.approx(1.0, abs=1e-4)
    assert plain == pytest.approx(torch.tensor(right).mean(0).tolist(), abs=1e-4)


def test_equal_to_sentence_transformers(line: Line) -> None:
    """The vectors of ``model`` are those of the library that the folder was written for."""
    from sentence_transformers import SentenceTransformer

    right = SentenceTransformer(str(sentence_model()), device="cpu").encode(TEXTS)
    found = answers(line, *(wire_item(text, pooling="model") for text in TEXTS))
    for vector, row in zip(found, right.tolist(), strict=True):
        assert vector == pytest.approx(row, abs=1e-4)


def test_longer_than_the_folder_says(line: Line) -> None:
    """What the folder calls too long is refused under ``model`` alone; it may be cut on request."""
    text = "word " * 300
    refused, *served = prepared(
        line,
        wire_item(text, pooling="model"),
        wire_item(text, pooling="mean"),
        wire_item(text),
        wire_item(text, pooling="model", truncation=True),
        wire_item("word " * 254, pooling="model"),
    )
    assert isinstance(refused, Unfit)
    assert (refused.code, refused.limit) == ("invalid_input", 256)
    assert [frame.units for frame in served if isinstance(frame, Prepared)] == [302, 302, 256, 256]


def test_a_pooling_that_is_not_served(tmp_path: Path) -> None:
    """A model whose own pooling is not known serves the named ones, and says so of its own."""
    from service.worker.pipelines import load_pipeline

    folder = tmp_path / "model"
    shutil.copytree(sentence_model(), folder)
    folder_with(folder, "Transformer", "Pooling", "Dense", "Normalize")
    with inside(load_pipeline) as worker:
        assert worker.load(str(folder), "feature-extraction").width == 0
        own, mean = prepared(
            worker, wire_item("a", pooling="model"), wire_item("a", pooling="mean")
        )
    assert isinstance(own, Unfit)
    assert (own.code, own.pointer) == ("invalid_input", "/parameters/pooling")
    assert isinstance(mean, Prepared)


def test_normalize_needs_a_pooling() -> None:
    """A parameter that nothing is done with is refused."""
    fault = TASKS["feature-extraction"].together({"normalize": True, "pooling": "none"})
    assert fault is not None
    assert fault.pointer == "/parameters/normalize"
