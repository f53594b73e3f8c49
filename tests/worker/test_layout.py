"""Weights that are laid out anew are the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForMaskedLM, BertConfig

from service.worker.pipelines import layout
from service.worker.pipelines.layout import lay_out

CONFIG = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=32, max_position_embeddings=40,
)  # fmt: skip
IDS = torch.tensor([[2, 9, 4, 11, 3], [2, 7, 8, 4, 3]])


def model() -> Any:
    """A small model whose head shares the embedding's weight."""
    torch.manual_seed(1)
    return AutoModelForMaskedLM.from_config(CONFIG).eval()


def linear_weights(of: Any) -> list[torch.Tensor]:
    """Of all linear layers."""
    return [module.weight for module in of.modules() if isinstance(module, nn.Linear)]


def test_answers_stay() -> None:
    """Every number is where it was, and the model says the same."""
    one, other = model(), model()
    assert lay_out(other) == 2 * 6 + 1  # six in each layer, and the head's own
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name])
    with torch.inference_mode():
        assert torch.allclose(one(IDS).logits, other(IDS).logits, atol=1e-6)
    laid = [weight.stride()[0] == 1 for weight in linear_weights(other)]
    assert laid.count(True) == len(laid) - 1


def test_a_shared_weight_stays() -> None:
    """The embedding reads its rows one after the other, as before."""
    found = model()
    lay_out(found)
    assert found.get_input_embeddings().weight.is_contiguous()
    assert found.get_output_embeddings().weight is found.get_input_embeddings().weight


def test_what_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half precision, and a model that is too large to hold twice."""
    assert lay_out(model().to(torch.bfloat16)) == 0
    monkeypatch.setattr(layout, "MOST_BYTES", 1000)
    found = model()
    assert lay_out(found) == 0
    assert all(weight.is_contiguous() for weight in linear_weights(found))
