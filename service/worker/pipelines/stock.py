"""A stock Transformers text pipeline, taken apart so that items of many requests share a forward.

Items are padded together by the library's own collate function, one forward serves them all, and
postprocess sees each item's own rows, cut to its own length: it gets what it would have got alone.

Laws
- A subclass adds what the task's own ``__call__`` does and its preparing; nothing else.
- Without a pad token, or without an attention mask to hide padding, items run one at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import Any

import torch
from transformers.pipelines.base import pad_collate_fn

from service.tasks import Task
from service.worker.interface import Answer, Foreign, PreparedInput, Unsuitable
from service.worker.pipelines.owned import Owned
from service.worker.pipelines.rows import KEEP_BYTES, check_rows
from service.worker.pipelines.warmup import (
    MAX_FIT_UNITS,
    SAMPLE_TEXT,
    fit_cost,
    fit_sizes,
    length_limit,
    prove_length,
)
from service.worker.wire import Load


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """What the model gets for one input, and what postprocess gets.

    Attributes:
        tensors: by the model's argument name, each of shape (1, length, ...).
        length: tokens.
        post: postprocess parameters.
        extras: what the model's outputs must carry along for postprocess.
    """

    tensors: Mapping[str, torch.Tensor]
    length: int
    post: Mapping[str, Any]
    extras: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """What it costs to keep."""
        return KEEP_BYTES + sum(tensor.nbytes for tensor in self.tensors.values())

    def cut(self, name: str, row: torch.Tensor, padded: int) -> torch.Tensor:
        """Of a row of outputs, ``padded`` tokens long, what belongs to its own tokens."""
        # A row of scores may be as long as the padded text by chance.
        by_token = name in self.tensors or row.ndim > 2  # noqa: PLR2004
        if by_token and row.ndim > 1 and row.shape[1] == padded:
            return row[:, : self.length]
        return row


class StockPipeline(Owned):
    """Base of every pipeline that is built round a stock one.

    Args:
        load: as it came in LOAD.
        task: its entry.
        pipe: the stock pipeline, on its device.
    """

    padding_side = "right"

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        super().__init__(load, task, pipe)
        self.prepare_tokenizer = copy.deepcopy(pipe.tokenizer)
        self.mask_token = ""
        self.max_tokens = 0
        self.vocab_size = 0
        self.most_units = 0
        # The library pads on the side that the tokenizer names, which a generating model needs on
        # the left; for all others padding on the right leaves every position as it is alone.
        pipe.tokenizer.padding_side = self.padding_side
        self.batchable = (
            pipe.tokenizer.pad_token_id is not None
            and "attention_mask" in pipe.tokenizer.model_input_names
        )
        self._collate = pad_collate_fn(pipe.tokenizer, None) if self.batchable else None

    # -- for subclasses --------------------------------------------------------------------------

    def text(self, template: str) -> str:
        """An example of the task's entry as a real input."""
        return template

    def learn(self, outputs: Foreign) -> None:
        """Take facts from the outputs of a first forward."""

    def quicken(self) -> str:
        """Find a faster way to the same answers; returns the name of the way that is taken."""
        return "stock"

    def batches_rightly(self, payload: Foreign) -> bool:
        """Whether an input has the same outputs beside a longer one as alone."""
        del payload
        return True

    def stretched(self, payload: Foreign, length: int) -> Foreign:
        """The same input, ``length`` tokens long."""
        return stretched(payload, length)

    def infer(self, inputs: Foreign) -> Foreign:
        """Run the model on a padded batch; its outputs come back on the CPU."""
        return self.pipe.forward(inputs)

    # -- the protocol ----------------------------------------------------------------------------

    def run(self, items: Sequence[PreparedInput]) -> list[Any]:
        """One forward for all, then postprocess for each."""
        if not self.batchable and len(items) > 1:
            return [answer for item in items for answer in self.run([item])]
        payloads: list[Payload] = [item.payload for item in items]
        with torch.inference_mode():
            return self.written(self.forward(payloads), payloads)

    def written(self, outputs: Foreign, payloads: Sequence[Payload]) -> list[Any]:
        """The answers of a batch."""
        return [self.written_one(outputs, index, one) for index, one in enumerate(payloads)]

    def written_one(self, outputs: Foreign, index: int, payload: Payload) -> Answer:
        """The answer of one item of a batch."""
        return self.pipe.postprocess(self.own_rows(outputs, index, payload), **payload.post)

    # -- inside ----------------------------------------------------------------------------------

    def forward(self, payloads: Sequence[Payload]) -> Foreign:
        """Pad, run the model, bring its outputs to the CPU.

        Raises:
            Mismatch: the model gave another number of rows.
        """
        inputs = self.padded(payloads)
        outputs = self.infer(inputs)
        check_rows(outputs, len(payloads))
        return outputs

    def padded(self, payloads: Sequence[Payload]) -> Foreign:
        """The items' tensors as one batch."""
        tensors = [dict(payload.tensors) for payload in payloads]
        return tensors[0] if self._collate is None else self._collate(tensors)

    def own_rows(self, outputs: Foreign, index: int, payload: Payload) -> dict[str, Any]:
        """What the stock forward would have given for this item alone."""
        padded = outputs["input_ids"].shape[1]
        return {
            name: payload.cut(name, value[index : index + 1], padded)
            for name, value in outputs.items()
            if isinstance(value, torch.Tensor)
        }

    def warm_up(self) -> None:
        """Run the example, prove the longest input, share the cores, fit the cost, note it all."""
        tokenizer = self.pipe.tokenizer
        self.max_tokens = length_limit(self.pipe.model, tokenizer)
        parameters = self.task.example_parameters
        example = self.prepare(self.text(self.task.example), b"", parameters)
        canary = self.text(self.task.canary)
        self._canary = self.prepare(canary, b"", self.task.canary_parameters)
        payload = example.payload
        with torch.inference_mode():
            self.learn(self.forward([payload]))
            path = self.quicken()

            def run_at(length: int) -> None:
                self.forward([self.stretched(payload, length)])

            self.max_tokens = prove_length(run_at, self.max_tokens, payload.length)
            self.batchable = self.batchable and self.batches_rightly(payload)

        def run_batch(items: int, length: int) -> None:
            item = PreparedInput(length, 0, self.stretched(payload, length))
            self.run([item] * items)

        workers = self.shared_cores(run_batch, payload.length)
        most = self._load.batch_tokens_hint or MAX_FIT_UNITS
        sizes = fit_sizes(payload.length, self.max_tokens, most, batchable=self.batchable)
        fixed_s, self.cost_unit_s = fit_cost(run_batch, sizes)
        units_per_char, prepare_s_per_char = self._measure_preparing()
        self.step_units = self.measure_step()
        typical = self.prepare(self.text(self.task.example), b"", parameters)
        self.note(
            mask_token=self.mask_token,
            max_tokens=self.max_tokens,
            vocab_size=self.vocab_size,
            batchable=self.batchable,
            cost_fixed_s=fixed_s,
            cost_unit_s=self.cost_unit_s,
            typical_units=typical.units,
            units_per_char=units_per_char,
            prepare_s_per_char=prepare_s_per_char,
            workers=workers,
            path=path,
            step_units=self.step_units,
            most_units=self.most_units,
        )

    def _measure_preparing(self) -> tuple[float, float]:
        text = SAMPLE_TEXT
        times: list[float] = []
        units = 0
        for _ in range(5):
            started = perf_counter()
            units = len(self.prepare_tokenizer(text)["input_ids"])
            times.append(perf_counter() - started)
        return units / len(text), median(times) / len(text)


def beside(padded: Mapping[str, Any], rows: Sequence[Payload]) -> dict[str, Any]:
    """The input of one forward: tensors, padded together, and a list of each of the extras."""
    return {
        **padded,
        **{name: [row.extras[name] for row in rows] for name in rows[0].extras},
    }


def too_long(length: int, most: int) -> Unsuitable:
    """The refusal of a text of so many tokens."""
    return Unsuitable(
        f"the text has {length} tokens, this model takes at most {most}; send a shorter text",
        limit=most,
    )


def stretched(payload: Payload, length: int) -> Payload:
    """The same input, its second token repeated until it is ``length`` tokens long."""
    more = length - payload.length
    if more <= 0:
        return payload
    tensors = {
        name: torch.cat(
            [value[:, :1], value[:, 1:2].repeat_interleave(more + 1, dim=1), value[:, 2:]], dim=1
        )
        for name, value in payload.tensors.items()
    }
    return replace(payload, tensors=tensors, length=length)
