"""A model that does not fit its task is refused before it serves, and told which task it fits."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from service.worker.interface import CannotLoad
from service.worker.pipelines import load_pipeline
from service.worker.pipelines.pieces import FORWARD_UNITS, Pieces, forwards
from service.worker.pipelines.stock import Payload
from service.worker.wire import Load
from tests.worker.line import PACKAGED
from tests.worker.small_models import save_model


def refused(folder: Path | str, task: str) -> CannotLoad:
    """Why the folder cannot serve the task."""
    with pytest.raises(CannotLoad) as caught:
        load_pipeline(Load(str(folder), task))
    assert str(folder) not in caught.value.message
    return caught.value


@pytest.mark.parametrize("task", ["text-classification", "token-classification", "text-generation"])
def test_a_model_of_another_task_is_told_its_own(task: str) -> None:
    """The packaged model has no head for these tasks; the refusal names the one that it fits."""
    refusal = refused(PACKAGED, task)
    assert refusal.reason == "wrong_task"
    assert refusal.message.endswith("It fits the task fill-mask.")


def test_any_model_gives_features() -> None:
    """feature-extraction needs no head: the packaged model serves it."""
    pipeline = load_pipeline(Load(PACKAGED, "feature-extraction"))
    assert pipeline.facts.batchable
    assert pipeline.facts.most_units > pipeline.facts.max_tokens


def test_zero_shot_needs_an_entailment_label(tmp_path: Path) -> None:
    """A classifier whose labels say nothing of entailment would answer nonsense."""
    save_model(tmp_path, "text-classification")
    refusal = refused(tmp_path, "zero-shot-classification")
    assert refusal.reason == "wrong_task"
    assert "'entail'" in refusal.message


def test_no_tokenizer(tmp_path: Path) -> None:
    """A folder without a tokenizer says so."""
    save_model(tmp_path, "text-classification")
    for file in tmp_path.glob("*token*"):
        file.unlink()
    refusal = refused(tmp_path, "text-classification")
    assert (refusal.reason, refusal.message) == (
        "model_broken",
        "The model folder has no tokenizer.",
    )


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that needs a package that is not there names it and the extra that has it."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "service.worker.pipelines.find_spec", lambda name: None if name == "pandas" else find(name)
    )
    message = refused(tmp_path, "table-question-answering").message
    assert "pandas" in message
    assert "'tables'" in message


def test_no_padding_token_means_one_at_a_time(tmp_path: Path) -> None:
    """Without a pad token items run one at a time, and each answer is what it is alone."""
    save_model(tmp_path, "text-classification")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (file := tmp_path / name).exists():
            members = json.loads(file.read_text()) | {"pad_token": None}
            file.write_text(json.dumps(members))
    pipeline = load_pipeline(Load(str(tmp_path), "text-classification"))
    assert not pipeline.facts.batchable
    items = [pipeline.prepare(text, b"", {}) for text in ("the wall", "a ferry leaves at noon")]
    assert pipeline.run(items) == [pipeline.run([item])[0] for item in items]


def pieces(*lengths: int) -> Pieces[Payload]:
    """An input of rows of these lengths."""
    rows = [
        Payload({"input_ids": torch.zeros(1, length, dtype=torch.long)}, length, {})
        for length in lengths
    ]
    return Pieces(tuple(rows), {}, {})


def test_a_batch_of_single_rows_is_one_forward() -> None:
    """The batch was chosen by its padded size: it is not cut again."""
    [group] = forwards([pieces(5), pieces(500), pieces(7)])
    assert [row.item for row in group] == [0, 1, 2]


def test_many_rows_are_cut_into_forwards() -> None:
    """Every row is run once; no forward is too large, and none is more than half padding."""
    items = [pieces(*[200] * 60), pieces(10), pieces(*[30] * 9)]
    seen = set()
    for group in forwards(items):
        lengths = [row.payload.length for row in group]
        assert len(group) * max(lengths) <= FORWARD_UNITS
        assert 2 * min(lengths) >= max(lengths)
        seen |= {(row.item, row.place) for row in group}
    assert seen == {(i, place) for i, item in enumerate(items) for place in range(len(item.rows))}
