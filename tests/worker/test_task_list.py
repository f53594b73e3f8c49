"""Every task of the installed transformers is served or says why not; one file makes a task."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from transformers.pipelines import SUPPORTED_TASKS, TASK_ALIASES

from service.tasks import ALIASES, REASONS, TASKS, is_generic
from service.worker.interface import CannotLoad
from service.worker.pipelines import load_pipeline
from service.worker.wire import Load
from tests.tools import ROOT
from tests.worker.small_models import save_model

OWN = {"synthetic"}
"""Tasks that are no pipelines."""

NEW_TASK = '''"""mood: the best label of a text, in capitals."""

from service.tasks.base import Task
from service.tasks.checks import switch, table

TASK = Task(
    name="mood",
    stock="text-classification",
    media="text",
    example="What a lovely morning.",
    canary="It rained all day.",
    parameters=table(switch("truncation", "prepare")),
    lone=lambda answer, _text, _parameters: answer.upper(),
)
'''


def test_every_task_is_served_or_says_why_not() -> None:
    """A task that transformers offers has an entry or a reason, never both, never neither."""
    offered = set(SUPPORTED_TASKS)
    assert offered <= set(TASKS) | set(REASONS)
    assert not set(TASKS) & set(REASONS)
    assert {task.pipeline for task in TASKS.values()} - OWN <= offered
    for alias, name in TASK_ALIASES.items():
        assert ALIASES.get(alias) == name or alias in REASONS


def test_a_reason_is_a_sentence_for_people() -> None:
    """A reason can be read after a colon."""
    for reason in REASONS.values():
        assert reason[0].islower()
        assert reason[-1].isalnum()


@pytest.mark.parametrize(
    "name,is_one",
    [
        ("generic:newer-task", True),
        ("generic:fill-mask", False),
        ("generic:ner", False),
        ("generic:image-classification", False),
        ("generic:", False),
        ("generic:a b", False),
        ("generic:../a", False),
        ("newer-task", False),
    ],
)
def test_generic_is_for_what_is_unknown(name: str, is_one: bool) -> None:
    """Only a name without entry and reason may be asked for as generic."""
    assert is_generic(name) == is_one


def test_generic_needs_a_task_of_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What transformers does not offer, or offers for another medium, is not tried."""
    save_model(tmp_path, "text-classification")
    load = Load(str(tmp_path), "generic:newer-task")
    with pytest.raises(CannotLoad, match="wrong_task"):
        load_pipeline(load)
    offered = SUPPORTED_TASKS["text-classification"]
    monkeypatch.setitem(SUPPORTED_TASKS, "newer-task", offered | {"type": "image"})
    with pytest.raises(CannotLoad, match="wrong_task"):
        load_pipeline(load)


def test_generic_is_the_stock_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task without an entry is called as it stands, one input after the other."""
    save_model(tmp_path, "text-classification")
    offered = SUPPORTED_TASKS["text-classification"]
    monkeypatch.setitem(SUPPORTED_TASKS, "newer-task", offered)
    pipeline = load_pipeline(Load(str(tmp_path), "generic:newer-task"))
    assert (pipeline.facts.batchable, pipeline.facts.path) == (False, "whole")
    first = pipeline.prepare("the harbour wall", b"", {})
    pair = pipeline.prepare('\0{"text":"the wall","text_pair":"stone"}', b"", {})
    [one, other] = pipeline.run([first, pair])
    assert one == pipeline.run([first])[0]
    assert [sorted(label) for label in one] == [["label", "score"]]
    assert sorted(other) == ["label", "score"]


def test_one_file_makes_a_task(tmp_path: Path) -> None:
    """A copy of the package with one more file in its tasks serves that task, and nothing else."""
    model = tmp_path / "model"
    save_model(model, "text-classification")
    package = tmp_path / "service"
    hidden = shutil.ignore_patterns("models", "__pycache__")
    shutil.copytree(ROOT / "service", package, ignore=hidden)
    (package / "tasks" / "mood.py").write_text(NEW_TASK)
    program = f"""
import json, sys
from service.settings import load_settings
from service.tasks import TASKS
from service.worker.pipelines import load_pipeline
from service.worker.wire import Load
settings = load_settings(["--task=mood", "--model={model}"], {{}})
task = TASKS["mood"]
pipeline = load_pipeline(Load(settings.model_path, settings.task))
[answer] = pipeline.run([pipeline.prepare("a lovely morning", b"", {{}})])
print(task.lone(json.dumps(answer).encode(), "", {{}}).decode())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert sorted(answer) == ["LABEL", "SCORE"]
