"""Gathering the masked rows gives what the stock path gives, or it is not used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    AlbertConfig,
    AutoConfig,
    AutoModelForMaskedLM,
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    RobertaConfig,
)

from service.worker.pipelines.gathering import AtMasks, Gathering, is_equal, masked_rows

MASK, PAD, WORDS = 4, 1, 50
SIZES: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "pad_token_id": PAD,
}
CONFIGS = {
    "bert": BertConfig(**SIZES),
    "roberta": RobertaConfig(**SIZES),
    "distilbert": DistilBertConfig(
        vocab_size=WORDS, dim=16, n_layers=2, n_heads=2, hidden_dim=32, pad_token_id=PAD
    ),
    "modernbert": ModernBertConfig(
        **SIZES, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3
    ),
    "albert": AlbertConfig(**SIZES, embedding_size=8),
}

IDS = torch.tensor([
    [2, 9, MASK, 11, 3, PAD, PAD, PAD],
    [2, MASK, 8, 7, MASK, 12, MASK, 3],
    [2, 9, 9, 9, 9, MASK, 3, PAD],
])  # fmt: skip
INPUTS = {"input_ids": IDS, "attention_mask": (IDS != PAD).long()}
ROWS = [[2], [1, 4, 6], [5]]


def random_model(config: Any) -> Any:
    """A model with random weights, the same each time."""
    torch.manual_seed(1)
    return AutoModelForMaskedLM.from_config(config).eval()


def runner(model: Any) -> Any:
    """What runs it."""

    def run(inputs: Mapping[str, torch.Tensor]) -> Any:
        with torch.inference_mode():
            return model(**inputs)

    return run


@pytest.mark.parametrize("kind", CONFIGS)
def test_heads(kind: str) -> None:
    """The heads of the common architectures look at one position at a time, and so may we."""
    model = random_model(CONFIGS[kind])
    run = runner(model)
    stock = run(INPUTS)["logits"]
    gathering = Gathering(model)
    assert is_equal(run, gathering, INPUTS, MASK)
    with gathering.at(masked_rows(IDS, MASK)):
        rows = run(INPUTS)["logits"]
    assert rows.shape == (3, 3, WORDS)
    for item, positions in enumerate(ROWS):
        assert torch.allclose(rows[item, : len(positions)], stock[item, positions], atol=1e-5)
    assert torch.equal(run(INPUTS)["logits"], stock)
    gathering.remove()
    with gathering.at(masked_rows(IDS, MASK)):
        assert torch.equal(run(INPUTS)["logits"], stock)


class Mixing(nn.Module):
    """A head that looks at the neighbours too."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: torch.Tensor) -> Any:
        return self.head(hidden + hidden.mean(dim=1, keepdim=True))


class Counting(nn.Module):
    """A head that wants every position."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: torch.Tensor) -> Any:
        assert hidden.shape[1] == IDS.shape[1], "secret"
        return self.head(hidden)


class Pooling(nn.Module):
    """A head that gives another shape."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: torch.Tensor) -> Any:
        scores = self.head(hidden)
        return scores if hidden.shape[1] == IDS.shape[1] else scores[:, :1]


@pytest.mark.parametrize("head", [Mixing, Counting, Pooling])
def test_other_heads(head: Any) -> None:
    """A head that needs more than its own position is found out, whatever it does then."""
    model = random_model(CONFIGS["bert"])
    model.cls = head(model.cls)
    assert not is_equal(runner(model), Gathering(model), INPUTS, MASK)


def test_memory_is_no_verdict() -> None:
    """Running out of memory while trying says nothing of the head: the load says so."""
    model = random_model(CONFIGS["bert"])
    run = runner(model)
    calls: list[object] = []

    def full(inputs: Mapping[str, torch.Tensor]) -> Any:
        calls.append(inputs)
        if len(calls) > 1:
            raise MemoryError
        return run(inputs)

    with pytest.raises(MemoryError):
        is_equal(full, Gathering(model), INPUTS, MASK)


def test_no_base() -> None:
    """A model without a base of its own has nothing to hook."""
    model = AutoConfig.for_model("bert", **SIZES)
    bare = random_model(model).base_model
    with pytest.raises(ValueError, match="base"):
        Gathering(bare)


def test_rows() -> None:
    """The masks of each item in order, as many columns as the most of them; at least one."""
    rows = masked_rows(IDS, MASK)
    assert [row[: len(own)].tolist() for row, own in zip(rows, ROWS, strict=True)] == ROWS
    assert masked_rows(torch.tensor([[5, 6, 7]]), MASK).shape == (1, 1)


def test_scores_at_masks() -> None:
    """What the stock postprocess asks for is what was gathered, without what filled it up."""
    rows = torch.rand(3, WORDS)
    assert torch.equal(AtMasks(rows)[0, torch.tensor([7, 9]), :], rows[:2])
