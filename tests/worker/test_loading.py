"""Loading: the model fits the task and is whole, or one sentence says why not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

from service.worker.interface import CannotLoad
from service.worker.pipelines import load_pipeline
from service.worker.pipelines.loading import load_model
from service.worker.wire import Load
from tests.worker.line import PACKAGED

TINY = {
    "vocab_size": 10000,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the packaged tokenizer, for a model."""
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(Path(PACKAGED) / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def tiny(folder: Path) -> Path:
    """A tiny BERT that fits the task."""
    BertForMaskedLM(BertConfig(**TINY)).save_pretrained(folder)
    return folder


def change(folder: Path, **members: object) -> None:
    """Change members of config.json."""
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | members))


def refused(folder: Path, **options: object) -> CannotLoad:
    """The refusal of a folder."""
    with pytest.raises(CannotLoad) as caught:
        load_pipeline(Load(str(folder), "fill-mask", **options))  # type: ignore[arg-type]
    assert str(folder) not in caught.value.message
    return caught.value


def test_tiny_model_serves(tiny: Path) -> None:
    """A fitting model is loaded, warmed up and knows its limits."""
    pipeline = load_pipeline(Load(str(tiny), "fill-mask"))
    facts = pipeline.facts
    assert (facts.max_tokens, facts.vocab_size, facts.mask_token) == (40, 10000, "[MASK]")
    assert (facts.device, facts.dtype) == ("cpu", "float32")
    assert facts.model == tiny.name
    assert len(pipeline.canary()) == 5


def test_positions_less_their_offset(folder: Path) -> None:
    """A model that counts positions from its padding index on takes that many tokens less."""
    RobertaForMaskedLM(RobertaConfig(**TINY)).save_pretrained(folder)
    facts = load_pipeline(Load(str(folder), "fill-mask")).facts
    assert facts.max_tokens == 39


def test_other_task(folder: Path) -> None:
    """A classifier's weights lack the head that the task needs; random numbers would answer."""
    BertForSequenceClassification(BertConfig(**TINY)).save_pretrained(folder)
    refusal = refused(folder)
    assert refusal.reason == "wrong_task"
    assert "another task" in refusal.message


def test_other_architecture(folder: Path) -> None:
    """A model that only generates has no masks to fill."""
    config = GPT2Config(vocab_size=10000, n_embd=16, n_layer=1, n_head=2, n_positions=40)
    GPT2LMHeadModel(config).save_pretrained(folder)
    assert refused(folder).reason == "wrong_task"


def test_unknown_task(tiny: Path) -> None:
    """A task without an entry cannot be served."""
    with pytest.raises(CannotLoad, match="wrong_task"):
        load_pipeline(Load(str(tiny), "depth-estimation"))


def test_missing_weights(tiny: Path) -> None:
    """A fitting model whose file lacks a tensor is broken."""
    weights = load_file(tiny / "model.safetensors")
    del weights["bert.embeddings.position_embeddings.weight"]
    save_file(weights, tiny / "model.safetensors", {"format": "pt"})
    refusal = refused(tiny)
    assert refusal.reason == "model_broken"
    assert "lack" in refusal.message


def test_weights_of_another_shape(tiny: Path) -> None:
    """Weights that do not fit the configuration are broken."""
    change(tiny, hidden_size=32)
    assert refused(tiny).reason == "model_broken"


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_broken_tokenizer(tiny: Path, name: str) -> None:
    """A tokenizer that cannot be read is named."""
    (tiny / name).write_text("{")
    refusal = refused(tiny)
    assert refusal.reason == "model_broken"
    assert "tokenizer" in refusal.message


def test_no_mask_token(tiny: Path) -> None:
    """A tokenizer without a mask does not fit the task."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        members = json.loads((tiny / name).read_text())
        members.pop("mask_token")
        (tiny / name).write_text(json.dumps(members | {"mask_token": None}))
    refusal = refused(tiny)
    assert refusal.reason == "wrong_task"
    assert "mask token" in refusal.message


def test_unknown_architecture(tiny: Path) -> None:
    """A model type that the library does not know is broken."""
    change(tiny, model_type="no-such-type")
    assert refused(tiny).reason == "model_broken"


def test_own_code_is_not_run(tiny: Path, tmp_path: Path) -> None:
    """A model that brings its own code is refused unless it is trusted; the code does not run."""
    marker = tmp_path / "marker"
    code = f"from pathlib import Path\nPath({str(marker)!r}).write_text('executed')\n"
    (tiny / "own.py").write_text(code)
    change(
        tiny, model_type="own", auto_map={"AutoConfig": "own.C", "AutoModelForMaskedLM": "own.M"}
    )
    assert refused(tiny).reason == "remote_code"
    assert not marker.exists()


@pytest.mark.parametrize("device", ["cuda:77", "xpu", "mps:3", "nonsense", "meta"])
def test_missing_device(tiny: Path, device: str) -> None:
    """A device that is not there, or none at all, is its own reason."""
    assert refused(tiny, device=device).reason == "no_device"


@pytest.mark.parametrize("dtype", ["int8", "nonsense", "nn"])
def test_wrong_dtype(tiny: Path, dtype: str) -> None:
    """Only a floating-point type will do."""
    assert "dtype" in refused(tiny, dtype=dtype).message


def test_dtype_as_asked(tiny: Path) -> None:
    """A floating-point type that is asked for is taken; on a CPU the default is float32."""
    change(tiny, dtype="bfloat16")
    for asked, taken in (("auto", torch.float32), ("bfloat16", torch.bfloat16)):
        load = Load(str(tiny), "fill-mask", dtype=asked)
        assert load_model(load, tiny, AutoModelForMaskedLM).model.dtype == taken


def test_no_memory_keeps_its_kind(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running out of memory while loading is not mistaken for a broken model."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 GB")

    monkeypatch.setattr(BertForMaskedLM, "from_pretrained", fail)
    with pytest.raises(RuntimeError, match="allocate"):
        load_pipeline(Load(str(tiny), "fill-mask"))
