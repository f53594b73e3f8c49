"""Any text task with an entry: the stock pipeline's own steps, driven by the entry's values.

Laws
- What the task's own call does beside the steps (wrapping, unwrapping, defaults) stands in its
  entry, and equality with the stock call is tested for each.
- A text that is too long is refused, never cut, unless a parameter of the entry says so.
- Batching is proved at warm-up: an input beside a longer one must have the outputs that it has
  alone, or items run one at a time. Architectures differ in what padding does to them.
- Parameters become the stock pipeline's by its own rules, in each thread with its own tokenizer.
- Whose memory runs out in a batch is halved by the front, which learns from it. An input that is
  alone and makes several rows is halved here, row by row at last: nobody else can.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import pipeline
from transformers.pipelines import SUPPORTED_TASKS
from transformers.pipelines.base import ChunkPipeline
from transformers.utils import ModelOutput

from service.tasks import Task
from service.tasks.base import Model
from service.worker.faults import kind_of
from service.worker.framing import MAX_FRAME
from service.worker.interface import CannotLoad, Foreign, Mismatch, PreparedInput, Unsuitable
from service.worker.pipelines.loading import load_model
from service.worker.pipelines.pieces import Pieces, Row, divided, forwards, in_order
from service.worker.pipelines.stock import Payload, StockPipeline, stretched
from service.worker.pipelines.whole import Whole
from service.worker.wire import Load

UNCUT = 10**30
"""A tokenizer that is told of no limit cuts nothing."""

_KEEP_BYTES = 1024
"""Python's own share in keeping one row."""

_NUMBER_BYTES = 24
"""A number of 32 bits is written with up to 22 characters and a comma."""

_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}
_COARSE = 3e-2
"""Relative to the largest output; half precision rounds otherwise in another shape."""


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


class Tasked(StockPipeline):
    """A text pipeline whose items share forwards."""

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        super().__init__(load, task, pipe)
        self._preparing = copy.copy(pipe)  # the prepare thread's own, for its own tokenizer
        self._preparing.tokenizer = self.prepare_tokenizer
        self._chunked = isinstance(pipe, ChunkPipeline)

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
        given, _, _ = self._preparing._sanitize_parameters(**call)  # noqa: SLF001 - see the law
        given = {**self.pipe._preprocess_params, **given}  # noqa: SLF001
        made = self._preparing.preprocess(self.stock_input(task.arrived(inputs)), **given)
        rows = tuple(_row(part) for part in (made if self._chunked else [made]))
        longest = max(row.length for row in rows)
        if longest > most:
            raise Unsuitable(
                f"the text has {longest} tokens, this model takes at most {most}; "
                "send a shorter text",
                limit=most,
            )
        if not longest:
            raise Unsuitable("send a text of which the model's tokenizer leaves something")
        nbytes = sum(
            _KEEP_BYTES + sum(tensor.nbytes for tensor in row.tensors.values()) for row in rows
        )
        return self.decided(PreparedInput(0, nbytes, Pieces(rows, call, {})))

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
        """The item with its size, and whatever else its length decides."""
        pieces: Pieces = item.payload
        return PreparedInput(pieces.units, item.nbytes, pieces, item.key)

    # -- running ---------------------------------------------------------------------------------

    def run(self, items: Sequence[PreparedInput]) -> list[Any]:
        """Forwards for all rows, then postprocess for each item."""
        if not self.batchable and len(items) > 1:
            return [answer for item in items for answer in self.run([item])]
        batch: list[Pieces] = [item.payload for item in items]
        with torch.inference_mode():
            return [
                self.answer(pieces, outputs)
                for pieces, outputs in zip(batch, self.forward(batch), strict=True)
            ]

    def forward(self, payloads: Sequence[Any]) -> Foreign:
        """Each item's outputs, row by row.

        Raises:
            Mismatch: the model gave another number of rows.
        """
        found = in_order(payloads)
        pieces: Pieces = payloads[0]
        _, given, _ = self.pipe._sanitize_parameters(**pieces.call)  # noqa: SLF001
        given = {**self.pipe._forward_params, **given, **pieces.fixed}  # noqa: SLF001
        groups = list(forwards(payloads))
        if not self.batchable:
            groups = [[row] for group in groups for row in group]
        groups.reverse()
        while groups:
            group = groups.pop()
            owned = self._owned(group, given, alone=len(payloads) == 1)
            if owned is None:
                gc.collect()
                self.release()
                groups = divided(groups, group)
                continue
            for row, own in zip(group, owned, strict=True):
                found[row.item][row.place] = own
        return found

    def _owned(
        self, group: Sequence[Row], given: Mapping[str, Any], *, alone: bool
    ) -> list[Foreign] | None:
        """One forward: the outputs of each row; ``None`` if it has to be run in parts."""
        try:
            return self._run(group, given)
        except Exception as error:
            # Foreign code: what it raises for want of memory depends on the device.
            if not alone or len(group) == 1 or kind_of(error, lambda: True) != "oom":
                raise
        return None  # outside of the handler, which holds the frames and they the tensors

    def _run(self, group: Sequence[Row], given: Mapping[str, Any]) -> list[Foreign]:
        rows = [row.payload for row in group]
        inputs = dict(self.padded(rows))
        padded = inputs["input_ids"].shape[1]
        for name in rows[0].extras:
            inputs[name] = [row.extras[name] for row in rows]
        outputs = self.pipe.forward(inputs, **given)
        return [self.own(outputs, index, row, padded, len(rows)) for index, row in enumerate(rows)]

    def own(
        self, outputs: Foreign, index: int, row: Payload, padded: int, rows: int
    ) -> Mapping[str, Any]:
        """What the stock forward would have given for this row alone."""
        found: dict[str, Any] = {}
        for name, value in outputs.items():
            if isinstance(value, torch.Tensor):
                if value.ndim and len(value) != rows:
                    raise Mismatch(len(value), rows)
                mine = value[index : index + 1]
                # A row of scores may be as long as the padded text by chance.
                by_token = name in row.tensors or mine.ndim > 2  # noqa: PLR2004
                if by_token and mine.ndim > 1 and mine.shape[1] == padded:
                    mine = mine[:, : row.length]
                found[name] = mine
            elif isinstance(value, list) and len(value) == rows:
                found[name] = value[index]
            elif value is None:
                found[name] = None
        return ModelOutput(found) if isinstance(outputs, ModelOutput) else found

    def answer(self, pieces: Pieces, outputs: list[Foreign]) -> Foreign:
        """Postprocess an item's outputs, row by row."""
        _, _, given = self.pipe._sanitize_parameters(**pieces.call)  # noqa: SLF001
        given = {**self.pipe._postprocess_params, **given}  # noqa: SLF001
        return self.pipe.postprocess(outputs if self._chunked else outputs[0], **given)

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

    def stretched(self, payload: Foreign, length: int) -> Pieces:
        """The first row, so long."""
        pieces: Pieces = payload
        return Pieces((stretched(pieces.rows[0], length),), pieces.call, pieces.fixed)

    def batches_rightly(self, payload: Foreign) -> bool:
        """Compare the outputs of a short input alone and beside a longer one."""
        short = Pieces(payload.rows[:1], payload.call, payload.fixed)
        longer = self.stretched(payload, min(self.max_tokens, payload.length + 9))
        try:
            [beside], _ = self.forward([short, longer])
        except Exception as error:
            # Foreign code: what it raises for more than one row means that it takes but one.
            if kind_of(error, lambda: True) in {"oom", "device_lost"}:
                raise
            return False
        [[alone]] = self.forward([short])
        return all(_is_equal(beside[name], alone[name]) for name in alone)


def _is_equal(one: Foreign, other: Foreign) -> bool:
    if not isinstance(other, torch.Tensor):
        return True
    if one.shape != other.shape:
        return False
    if not other.is_floating_point():
        return bool((one == other).all())
    limit = _TOLERANCE.get(other.dtype, _COARSE) * max(1.0, float(other.abs().max()))
    return bool(((one - other).abs() <= limit).all())


def _row(made: Mapping[str, Any]) -> Payload:
    tensors = {name: part for name, part in made.items() if isinstance(part, torch.Tensor)}
    extras = {name: part for name, part in made.items() if name not in tensors}
    return Payload(tensors, int(tensors["input_ids"].shape[1]), {}, extras)
