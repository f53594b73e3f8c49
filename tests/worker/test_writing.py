"""What is written together is what the stock postprocess writes, one by one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from service.settings import Settings
from service.worker.pipelines.fill_mask import FillMask
from service.worker.pipelines.stock import Payload
from service.worker.pipelines.writing import DEFAULT_TOP_K, Writer, is_plain, is_same
from service.worker.wire import Load

WORDS = ("paris", "is", "the", "capital", "of", "unbelievable", "[PAD]", "[UNK]", "ß", "7", ".")


@pytest.fixture(scope="module")
def pipeline() -> FillMask:
    """The packaged model."""
    path = Settings().model_path
    return FillMask.from_load(Load(path, "fill-mask", torch_threads=1), Path(path))


def payloads_of(pipeline: FillMask, seed: int) -> list[Payload]:
    """Texts of one to four masks among words, some of which are special."""
    chance = Random(seed)
    texts = []
    for _ in range(6):
        words = chance.choices(WORDS, k=chance.randint(2, 20)) + ["[MASK]"] * chance.choice(
            (1, 1, 1, 2, 4)
        )
        chance.shuffle(words)
        texts.append(" ".join(words))
    return [pipeline.prepare(text, b"", {}).payload for text in texts]


def stock_of(pipeline: FillMask, outputs: Any, payloads: Sequence[Payload]) -> list[Any]:
    """The stock postprocess of each."""
    return [
        pipeline.pipe.postprocess(pipeline.own_rows(outputs, index, payload), **payload.post)
        for index, payload in enumerate(payloads)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_as_the_stock_pipeline_writes(pipeline: FillMask, seed: int) -> None:
    """Tokens, strings and their order are the same, and scores but for rounding."""
    payloads = payloads_of(pipeline, seed)
    with torch.inference_mode():
        outputs = pipeline.forward(payloads)
        ours = Writer(pipeline.pipe.tokenizer).write(outputs["logits"], payloads)
        stock = stock_of(pipeline, outputs, payloads)
    assert is_same(ours, stock)


def test_it_is_used_and_only_for_what_is_plain(
    pipeline: FillMask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one batch the plain items are written together, the others by the stock pipeline."""
    seen: list[int] = []
    write = Writer.write

    def noted(self: Writer, scores: torch.Tensor, payloads: Sequence[Payload]) -> list[Any]:
        seen.append(len(payloads))
        return write(self, scores, payloads)

    monkeypatch.setattr(Writer, "write", noted)
    asked: list[dict[str, Any]] = [{}, {"top_k": 2}, {"top_k": 5}, {"targets": ["paris"]}, {}]
    items = [
        pipeline.prepare(f"{'very ' * n} [MASK] .", b"", parameters)
        for n, parameters in enumerate(asked)
    ]
    answers = pipeline.run(items)
    assert seen == [3]
    assert [len(answer) for answer in answers] == [DEFAULT_TOP_K, 2, DEFAULT_TOP_K, 1, 5]
    assert [is_plain(item.payload) for item in items] == [True, False, True, False, True]
    for item, answer in zip(items, answers, strict=True):
        outputs = pipeline.forward([item.payload])
        alone = stock_of(pipeline, outputs, [item.payload])[0]
        assert [row["sequence"] for row in alone] == [row["sequence"] for row in answer]
        assert [row["score"] for row in alone] == pytest.approx(
            [row["score"] for row in answer], abs=1e-5
        )


def test_a_tokenizer_that_tidies_up_is_left_to_the_stock_pipeline(pipeline: FillMask) -> None:
    """What it does after decoding is not done for many at once."""
    tokenizer = copy.deepcopy(pipeline.pipe.tokenizer)
    tokenizer.clean_up_tokenization_spaces = True
    with pytest.raises(ValueError, match="one by one"):
        Writer(tokenizer)


ROW = {"score": 0.5, "token": 7, "token_str": "a", "sequence": "a b"}


@pytest.mark.parametrize(
    "other, same",
    [
        ([ROW], True),
        ([{**ROW, "score": 0.5 + 1e-8}], True),
        ([{**ROW, "score": 0.501}], False),
        ([{**ROW, "token": 8}], False),
        ([{**ROW, "sequence": "a"}], False),
        ([ROW, ROW], False),
        ([[ROW]], False),
        ([], False),
    ],
)
def test_what_counts_as_the_same(other: Any, same: bool) -> None:
    """The proof at warm-up notices every difference."""
    assert is_same([ROW], other) is same
