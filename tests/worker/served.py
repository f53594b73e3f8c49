"""A task with a small model: in a worker, and as the stock pipeline that it must equal."""

from __future__ import annotations

import base64
import copy
import itertools
import json
import random
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from PIL import Image
from transformers import pipeline

from service.tasks import Task
from service.worker.wire import Facts, Prepare, Prepared, Result, Run, WireItem
from tests.worker.line import Line

ids = itertools.count(1)
Case = tuple[Any, dict[str, Any]]

PNG = "iVBORw0KGgo"
"""How a PNG in base64 begins."""


class Served:
    """One task: its entry, a worker that has loaded its model, the stock pipeline of the same."""

    def __init__(self, task: Task, folder: Path, line: Line) -> None:
        self.task = task
        self.line = line
        self.facts: Facts = line.load(str(folder), task.name)
        self.stock = pipeline(task.name, model=str(folder), device="cpu")

    def item(self, case: Case) -> WireItem:
        """A case as it comes from the front."""
        value, parameters = case
        checked = self.task.parse_parameters(parameters, {"max_tokens": self.facts.max_tokens})
        text, media = self.task.taken(value, "/inputs")
        return WireItem(next(ids), text, msgspec.json.encode(checked), media=media)

    def prepared(self, case: Case) -> tuple[WireItem, Prepared]:
        """The item, and what preparing it says."""
        item = self.item(case)
        answer = self.line.ask(Prepare(item))
        assert isinstance(answer, Prepared), answer
        return item, answer

    def run(self, cases: Sequence[Case]) -> list[Any]:
        """The answers of one batch as the worker gives them."""
        batch = [self.prepared(case) for case in cases]
        assert len({answer.key for _, answer in batch}) == 1
        number = next(ids)
        result = self.line.ask(Run(number, [item for item, _ in batch]))
        assert isinstance(result, Result), result
        assert result.units == sum(answer.units for _, answer in batch)
        return [json.loads(output) for output in result.outputs]

    def mixed_as_alone(self, cases: Sequence[Case]) -> int:
        """Ask for each case alone and in batches of any make; returns the most cases of one key.

        Raises:
            AssertionError: an answer is another one beside others.
        """
        chance = random.Random(5)
        groups: dict[str, list[tuple[Case, Any]]] = {}
        for case in cases:
            _, answer = self.prepared(case)
            groups.setdefault(answer.key, []).append((case, self.run([case])[0]))
        for group in groups.values():
            for _ in range(3):
                chosen = [chance.choice(group) for _ in range(chance.randint(2, 9))]
                answers = self.run([case for case, _ in chosen])
                for answer, (_, right) in zip(answers, chosen, strict=True):
                    same(answer, right)
        return max(map(len, groups.values()))

    def lone(self, case: Case, answer: Any) -> Any:
        """What a client gets for a lone input."""
        item = self.item(case)
        parameters = json.loads(item.parameters)
        return json.loads(self.task.lone(json.dumps(answer).encode(), item.inputs, parameters))

    def expected(self, value: Any, parameters: dict[str, Any]) -> Any:
        """What the stock call says, as JSON values."""
        torch.manual_seed(0)
        return plain(self.stock(copy.deepcopy(value), **self.task.call(parameters)))


def plain(value: Any) -> Any:
    """An answer of the library as JSON would have it."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Image.Image):
        written = BytesIO()
        value.save(written, "PNG")
        return base64.b64encode(written.getvalue()).decode()
    return value.tolist() if hasattr(value, "tolist") else value


def pixels(png: str) -> Any:
    """Of a picture in base64, as whole numbers."""
    return np.asarray(Image.open(BytesIO(base64.b64decode(png)))).astype(int)


def same(answer: Any, right: Any) -> None:
    """Equal in shape and content, numbers within 1e-4, pictures but for what rounding does."""
    if isinstance(right, float):
        assert answer == pytest.approx(right, rel=1e-4, abs=1e-4)
    elif isinstance(right, str) and right.startswith(PNG):
        one, other = pixels(answer), pixels(right)
        assert one.shape == other.shape
        assert np.mean(abs(one - other) > 1) <= 0.005
    elif isinstance(right, dict):
        assert list(answer) == list(right)
        for name in right:
            same(answer[name], right[name])
    elif isinstance(right, list):
        assert isinstance(answer, list)
        assert len(answer) == len(right)
        for one, other in zip(answer, right, strict=True):
            same(one, other)
    else:
        assert answer == right
