"""Any task of images, sounds or films: items whose tensors have the same shapes share a forward.

The stock preprocess runs ahead in the prepare thread, postprocess sees each item's own rows. What
stands between them is the library's own batching, but for one thing: nothing is padded. A picture
beside a larger one is another picture to many models, so what differs in shape runs apart.

Laws
- The shapes are part of the batch key, and are looked at again when a batch runs.
- Batching is proved at warm-up: an input beside another must have the outputs that it has alone,
  or items run one at a time.
- A medium is opened by our own decoder, with its limits; the stock pipeline gets what it holds and
  never a name that it would fetch.
- A text that is too long for the model is refused, as in the tasks of texts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch
from transformers.pipelines.base import ChunkPipeline

from service.tasks import Task
from service.tasks.base import Model
from service.worker.answers import encode_answer
from service.worker.faults import kind_of
from service.worker.framing import MAX_FRAME
from service.worker.interface import Foreign, PreparedInput, Unsuitable
from service.worker.opening import opened
from service.worker.pipelines.owned import Owned
from service.worker.pipelines.pieces import FORWARD_UNITS
from service.worker.pipelines.rows import Row, is_equal, own_row, row_of, stacked
from service.worker.pipelines.sharing import share_cores
from service.worker.pipelines.warmup import MAX_FIT_UNITS, fit_cost, fit_sizes, length_limit
from service.worker.wire import Load

MOST_UNITS = 2**17
"""No input has more: the patches of the largest picture that is opened."""

_KEEP_BYTES = 1024
"""Python's own share in keeping one row."""


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """One prepared input.

    Attributes:
        rows: what goes through the model, at least one.
        call: the parameters by the stock call's names.
    """

    rows: tuple[Row, ...]
    call: Mapping[str, Any]


class Shaped(Owned):
    """A stock pipeline of media, taken apart."""

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        super().__init__(load, task, pipe)
        self._chunked = isinstance(pipe, ChunkPipeline)
        self._preparing = copy.copy(pipe)  # the prepare thread's own, with its own parts
        for name in ("tokenizer", "image_processor", "feature_extractor", "processor"):
            setattr(self._preparing, name, copy.deepcopy(getattr(pipe, name, None)))
        self.batchable = task.way == "batched"
        tokenizer = pipe.tokenizer
        self.abilities = frozenset(
            name for name in dir(pipe.image_processor) if name.startswith("post_process_")
        )
        self.max_tokens = 0 if tokenizer is None else length_limit(pipe.model, tokenizer)

    # -- preparing -------------------------------------------------------------------------------

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """Open the media and run the stock preprocess.

        Raises:
            Unsuitable: no such medium, too large, or nothing that this model can take.
        """
        task = self.task
        model = Model(self.max_tokens, 0, fast_tokenizer=True, abilities=self.abilities)
        if self._facts is not None and (fault := task.fits(parameters, model)) is not None:
            raise Unsuitable(fault.message, pointer=fault.pointer)
        value = opened(task.arrived(inputs, media), task)
        inside = {name: parameters[name] for name in task.inside if name in parameters}
        if inside:
            value = {**(value if isinstance(value, dict) else {task.media: value}), **inside}
        call = task.call({k: v for k, v in parameters.items() if k not in inside})
        given, _, _ = self._preparing._sanitize_parameters(**call)  # noqa: SLF001 - as in tasked
        given = {**self.pipe._preprocess_params, **given}  # noqa: SLF001
        made = self.preprocessed(value, given)
        rows = tuple(row_of(part) for part in made)
        self._check_tokens(rows, parameters)
        nbytes = sum(_KEEP_BYTES + row.nbytes for row in rows)
        units = min(MOST_UNITS, sum(row.units for row in rows))
        key = f";{rows[0].signature}" if len({row.signature for row in rows}) == 1 else ";several"
        return self.decided(PreparedInput(units, nbytes, Shapes(rows, call), key))

    def preprocessed(self, value: Foreign, given: Mapping[str, Any]) -> list[Foreign]:
        """What the stock preprocess makes of an opened input.

        Raises:
            Unsuitable: its processor does not take it.
        """
        try:
            made = self._preparing.preprocess(self.stock_input(value), **given)
            return list(made) if self._chunked else [made]
        except (ValueError, IndexError, ZeroDivisionError) as error:
            # It took the example, parameters are checked and the file is whole: what is left is
            # the shape, a picture of one pixel for example.
            if self._facts is None:
                raise
            message = f"this model cannot take the {task_word(self.task)} that was sent"
            raise Unsuitable(f"{message}; send one of a usual shape") from error

    def stock_input(self, value: Foreign) -> Foreign:
        """The input as the stock preprocess takes it."""
        return value

    def decided(self, item: PreparedInput) -> PreparedInput:
        """The item with whatever else its length decides."""
        return item

    def _check_tokens(self, rows: Sequence[Row], parameters: Mapping[str, Any]) -> None:
        longest = max(row.tokens for row in rows)
        if self.max_tokens and longest > self.max_tokens:
            labels = "candidate_labels" in parameters
            raise Unsuitable(
                f"a text has {longest} tokens, this model takes at most {self.max_tokens}",
                limit=self.max_tokens,
                pointer="/parameters/candidate_labels" if labels else "",
            )

    # -- running ---------------------------------------------------------------------------------

    def run(self, items: Sequence[PreparedInput]) -> list[Any]:
        """Forwards for all rows, then postprocess for each item."""
        batch: list[Shapes] = [item.payload for item in items]
        with torch.inference_mode():
            return [
                self._answer(shapes, outputs)
                for shapes, outputs in zip(batch, self.forward(batch), strict=True)
            ]

    def forward(self, batch: Sequence[Shapes]) -> list[list[Foreign]]:
        """Each item's outputs, row by row."""
        found: list[list[Foreign]] = [[None] * len(shapes.rows) for shapes in batch]
        _, given, _ = self.pipe._sanitize_parameters(**batch[0].call)  # noqa: SLF001
        given = {**self.pipe._forward_params, **given}  # noqa: SLF001
        for places in self._forwards(batch):
            rows = [batch[item].rows[place] for item, place in places]
            outputs = self.infer(stacked(rows), given)
            for index, (item, place) in enumerate(places):
                found[item][place] = own_row(outputs, index, len(rows))
        return found

    def infer(self, inputs: Foreign, given: Mapping[str, Any]) -> Foreign:
        """One forward; its outputs come back on the CPU."""
        return self.pipe.forward(inputs, **given)

    def _forwards(self, batch: Sequence[Shapes]) -> Iterator[list[tuple[int, int]]]:
        """(item, row) of all rows, those of one shape together, as many as one forward may hold."""
        groups: dict[str, list[tuple[int, int]]] = {}
        for item, shapes in enumerate(batch):
            for place, row in enumerate(shapes.rows):
                alone = not self.batchable or not row.signature
                key = f"{item} {place}" if alone else row.signature
                groups.setdefault(key, []).append((item, place))
        several = any(len(shapes.rows) > 1 for shapes in batch)
        for places in groups.values():
            item, place = places[0]
            # A batch of one row each was chosen by its size; rows of one input were not.
            most = max(1, FORWARD_UNITS // batch[item].rows[place].units)
            step = most if several else len(places)
            for start in range(0, len(places), step):
                yield places[start : start + step]

    def _answer(self, shapes: Shapes, outputs: list[Foreign]) -> Foreign:
        _, _, given = self.pipe._sanitize_parameters(**shapes.call)  # noqa: SLF001
        given = {**self.pipe._postprocess_params, **given}  # noqa: SLF001
        return self.pipe.postprocess(outputs if self._chunked else outputs[0], **given)

    # -- warming up ------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Run the example, prove the batching, share the cores, fit the cost, note it all."""
        task = self.task
        example, prepare_s = self._prepared_often()
        canary = task.taken(task.canary, "")
        self._canary = self.prepare(*canary, task.canary_parameters)
        [outputs] = self.forward([example.payload])
        self.abilities |= frozenset(outputs[0])
        answer = encode_answer(self.run([example])[0])
        beside = self.prepare(*canary, self.example_parameters())
        self.batchable = self.batchable and self._batches_rightly(example, beside)

        def run_batch(items: int, _length: int) -> None:
            self.run([example] * items)

        workers = 1
        if self._load.cores > 1 and self.pipe.device.type == "cpu":
            split = share_cores(
                self._load.cores, run_batch, typical=example.units, batchable=self.batchable
            )
            workers = split.workers
        size = task.size(*task.taken(task.example, ""))
        most = self._load.batch_tokens_hint or MAX_FIT_UNITS
        sizes = fit_sizes(example.units, example.units, most, batchable=self.batchable)
        fixed_s, unit_s = fit_cost(run_batch, sizes)
        self.note(
            max_tokens=MOST_UNITS,
            batchable=self.batchable,
            cost_fixed_s=fixed_s,
            cost_unit_s=unit_s,
            typical_units=example.units,
            units_per_char=example.units / size,
            prepare_s_per_char=prepare_s / size,
            workers=workers,
            path="stock" if self.batchable else "alone",
            step_units=self.measure_step(unit_s),
            # All answers of a batch leave in one frame.
            most_units=max(
                example.units, MAX_FRAME * 9 // 10 * example.units // max(1, len(answer))
            ),
        )

    def example_parameters(self) -> Mapping[str, Any]:
        """The parameters that the cost is fitted with."""
        return self.task.example_parameters

    def measure_step(self, unit_s: float) -> float:
        """Units of one generated token."""
        del unit_s
        return 0.0

    def _prepared_often(self) -> tuple[PreparedInput, float]:
        task = self.task
        taken = task.taken(task.example, "")
        times = []
        for _ in range(3):
            started = perf_counter()
            example = self.prepare(*taken, self.example_parameters())
            times.append(perf_counter() - started)
        return example, median(times)

    def _batches_rightly(self, one: PreparedInput, other: PreparedInput) -> bool:
        """Compare the outputs of an input alone and behind another of the same shape."""
        mine: Shapes = one.payload
        if any(not row.signature for row in mine.rows):
            return False
        company = other.payload if other.key == one.key else mine
        try:
            _, beside = self.forward([company, mine])
        except Exception as error:
            # Foreign code: what it raises for more than one row means that it takes but one.
            if kind_of(error, lambda: True) in {"oom", "device_lost"}:
                raise
            return False
        batchable, self.batchable = self.batchable, False
        try:
            [alone] = self.forward([mine])
        finally:
            self.batchable = batchable
        return all(is_equal(*pair) for pair in zip(beside, alone, strict=True))


def task_word(task: Task) -> str:
    """What a client sends."""
    return {"audio": "sound"}.get(task.media, task.media)
