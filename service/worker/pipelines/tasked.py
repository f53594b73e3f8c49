"""Any text task with an entry: the stock pipeline's own steps, driven by the entry's values.

Laws
- What the task's own call does beside the steps (wrapping, unwrapping, defaults) stands in its
  entry, and equality with the stock call is tested for each.
- A text that is too long is refused, never cut, unless a parameter of the entry says so.
- Batching is proved at warm-up: an input beside a longer one must have the outputs that it has
  alone, or items run one at a time. Architectures differ in what padding does to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import pipeline
from transformers.pipelines import SUPPORTED_TASKS

from service.tasks import Task
from service.tasks.base import Model
from service.worker.framing import MAX_FRAME
from service.worker.interface import CannotLoad, Foreign, PreparedInput, Unsuitable
from service.worker.pipelines.loading import load_model
from service.worker.pipelines.pieces import Pieces, Row, forwards
from service.worker.pipelines.rows import split
from service.worker.pipelines.stepped import Stepped
from service.worker.pipelines.stock import Payload, StockPipeline, beside, stretched, too_long
from service.worker.pipelines.whole import Whole
from service.worker.wire import Load

UNCUT = 10**30
"""A tokenizer that is told of no limit cuts nothing."""

_NUMBER_BYTES = 24
"""A number of 32 bits is written with up to 22 characters and a comma."""


def load_task(load: Load, folder: Path, task: Task) -> StockPipeline | Whole:
    """Load the model from the folder, as the entry says, and warm up.

    Raises:
        CannotLoad: the model does not fit the task, or see :func:`load_model`.
    """
    offered = SUPPORTED_TASKS.get(task.pipeline)
    if offered is None:
        raise CannotLoad("wrong_task", "The installed transformers has no such task.")
    if offered["type"] != "text":
        raise CannotLoad("wrong_task", "Only tasks of text can be served without an entry.")
    loaded = load_model(
        load, folder, *offered["pt"], spare=task.spare_weights, own_head=task.own_head
    )
    labels = getattr(loaded.model.config, "label2id", None) or {}
    wanted = task.needs_label
    if wanted and not any(str(label).lower().startswith(wanted) for label in labels):
        message = f"None of the model's labels begins with '{wanted}', which the task needs."
        raise CannotLoad("wrong_task", message)
    pipe = pipeline(
        task.pipeline, model=loaded.model, tokenizer=loaded.tokenizer, device=loaded.device
    )
    made = _kind(task, folder)(load, task, pipe)
    made.warm_up()
    return made


def _kind(task: Task, folder: Path) -> Callable[[Load, Task, Foreign], StockPipeline | Whole]:
    if task.way == "generating":
        from service.worker.pipelines.generating import Generating

        return Generating
    if task.way == "whole":
        return Whole
    if "pooling" in task.parameters:
        from service.worker.pipelines.embedding import Embedding

        return partial(Embedding, folder=folder)
    return Tasked


class Tasked(Stepped, StockPipeline):
    """A text pipeline whose items share forwards."""

    parts: ClassVar[tuple[str, ...]] = ()  # its tokenizer is the one that every text pipeline has

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        super().__init__(load, task, pipe)
        self._preparing.tokenizer = self.prepare_tokenizer

    # -- preparing -------------------------------------------------------------------------------

    def text(self, template: Foreign) -> str:
        """An example of the entry as it would travel."""
        return self.task.travelling(template)

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """Run the stock preprocess.

        Raises:
            Unsuitable: too long, or a parameter does not fit the model.
        """
        del media
        tokenizer, task = self.prepare_tokenizer, self.task
        special = tokenizer.num_special_tokens_to_add()
        most = self.most_tokens(parameters)
        model = Model(most, special, fast_tokenizer=bool(tokenizer.is_fast))
        if (fault := task.fits(parameters, model)) is not None:
            raise Unsuitable(fault.message, pointer=fault.pointer)
        cut = any(parameters.get(name) not in (None, False) for name in task.cutting)
        tokenizer.model_max_length = most if cut else UNCUT
        call = self.stock_call(parameters)
        made = self.preprocessed(self.stock_input(task.arrived(inputs)), self.preparing(call))
        rows = tuple(map(_row, made))
        longest = max(row.length for row in rows)
        if longest > most:
            raise too_long(longest, most)
        if not longest:
            raise Unsuitable("send a text of which the model's tokenizer leaves something")
        pieces = Pieces(rows, call)
        return self.decided(PreparedInput(pieces.units, pieces.nbytes, pieces))

    def most_tokens(self, parameters: Mapping[str, Any]) -> int:
        """Most tokens of one row under these parameters."""
        del parameters
        return self.max_tokens

    def stock_call(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that the stock call knows, by its names for them."""
        return self.task.call(parameters)

    def stock_input(self, value: Foreign) -> Foreign:
        """The input as the stock preprocess takes it."""
        return value

    def decided(self, item: PreparedInput) -> PreparedInput:
        """The item with whatever else its length decides."""
        return item

    # -- running ---------------------------------------------------------------------------------

    def groups(self, items: Sequence[Pieces[Payload]]) -> Iterator[list[Row[Payload]]]:
        """Rows of about one length."""
        return forwards(items)

    def together(self, rows: Sequence[Payload]) -> dict[str, Any]:
        """Padded."""
        return beside(self.padded(rows), rows)

    def apart(self, outputs: Foreign, rows: Sequence[Payload]) -> list[Foreign]:
        """Cut to their own lengths.

        Raises:
            Mismatch: the model gave another number of rows.
        """
        padded = max(row.length for row in rows)
        owned = super().apart(outputs, rows)
        for own, row in zip(owned, rows, strict=True):
            self.cut(own, row, padded)
        return owned

    def cut(self, own: dict[str, Any], row: Payload, padded: int) -> None:
        """Leave out what belongs to the padding."""
        for name, value in list(own.items()):
            if isinstance(value, torch.Tensor):
                own[name] = row.cut(name, value, padded)

    # -- warming up ------------------------------------------------------------------------------

    def learn(self, outputs: Foreign) -> None:
        """How wide the answers are, where they grow with the text."""
        if not self.task.wide_answers:
            return
        [first] = outputs[0]
        width = int(first[0].shape[-1])
        most = MAX_FRAME * 9 // 10 // (width * _NUMBER_BYTES)
        self.max_tokens = min(self.max_tokens, most)
        self.most_units = most

    def stretched(self, payload: Foreign, length: int) -> Pieces[Payload]:
        """The first row, so long."""
        pieces: Pieces[Payload] = payload
        return Pieces((stretched(pieces.rows[0], length),), pieces.call, pieces.fixed)

    def batches_rightly(self, payload: Foreign) -> bool:
        """Compare the outputs of a short input alone and beside a longer one."""
        short = Pieces(payload.rows[:1], payload.call, payload.fixed)
        longer = self.stretched(payload, min(self.max_tokens, payload.length + 9))
        return self.agree([short, longer], 0)


def _row(made: Mapping[str, Any]) -> Payload:
    tensors, extras = split(made)
    return Payload(tensors, int(tensors["input_ids"].shape[1]), {}, extras)
