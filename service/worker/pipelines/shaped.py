"""Any task of images, sounds or films: items whose tensors have the same shapes share a forward.

The steps are the library's own batching, but for one thing: nothing is padded. A picture beside a
larger one is another picture to many models, so what differs in shape runs apart.

Laws
- The shapes are part of the batch key, and are looked at again when a batch runs.
- Batching is proved at warm-up: an input beside another must have the outputs that it has alone,
  or items run one at a time.
- A medium is opened by our own decoder, with its limits; the stock pipeline gets what it holds and
  never a name that it would fetch.
- A text that is too long for the model is refused, as in the tasks of texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any

from service.tasks import Task
from service.tasks.base import Model
from service.worker.answers import encode_answer
from service.worker.framing import MAX_FRAME
from service.worker.interface import Foreign, PreparedInput, Unsuitable
from service.worker.opening import opened
from service.worker.pipelines.pieces import FORWARD_UNITS, Pieces, Row, alike
from service.worker.pipelines.rows import Made, row_of, stacked
from service.worker.pipelines.stepped import Stepped
from service.worker.pipelines.warmup import MAX_FIT_UNITS, fit_cost, fit_sizes, length_limit
from service.worker.wire import Load

MOST_UNITS = 2**17
"""No input has more: the patches of the largest picture that is opened."""


class Shaped(Stepped):
    """A stock pipeline of media, taken apart."""

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        super().__init__(load, task, pipe)
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
        rows = tuple(map(row_of, self.preprocessed(value, self.preparing(call))))
        self._check_tokens(rows, parameters)
        pieces = Pieces(rows, call)
        units = min(MOST_UNITS, pieces.units)
        key = f";{rows[0].signature}" if len({row.signature for row in rows}) == 1 else ";several"
        return self.decided(PreparedInput(units, pieces.nbytes, pieces, key))

    def preprocessed(self, value: Foreign, given: Mapping[str, Any]) -> list[Foreign]:
        """What the stock preprocess makes of an opened input.

        Raises:
            Unsuitable: its processor does not take it.
        """
        try:
            return super().preprocessed(self.stock_input(value), given)
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

    def _check_tokens(self, rows: Sequence[Made], parameters: Mapping[str, Any]) -> None:
        longest = max(row.tokens for row in rows)
        if self.max_tokens and longest > self.max_tokens:
            labels = "candidate_labels" in parameters
            raise Unsuitable(
                f"a text has {longest} tokens, this model takes at most {self.max_tokens}",
                limit=self.max_tokens,
                pointer="/parameters/candidate_labels" if labels else "",
            )

    # -- running ---------------------------------------------------------------------------------

    def groups(self, items: Sequence[Pieces[Made]]) -> Iterator[list[Row[Made]]]:
        """Rows of one shape."""
        return alike(items, lambda row: row.signature, FORWARD_UNITS)

    def together(self, rows: Sequence[Made]) -> Foreign:
        """Stacked."""
        return stacked(rows)

    def apart(self, outputs: Foreign, rows: Sequence[Made]) -> list[Foreign]:
        """What the stock forward would have given for each row alone.

        Raises:
            Mismatch: the model gave another number of rows.
        """
        return [outputs] if len(rows) == 1 else super().apart(outputs, rows)

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

        workers = self.shared_cores(run_batch, example.units)
        size = task.size(*task.taken(task.example, ""))
        most = self._load.batch_tokens_hint or MAX_FIT_UNITS
        sizes = fit_sizes(example.units, example.units, most, batchable=self.batchable)
        fixed_s, self.cost_unit_s = fit_cost(run_batch, sizes)
        self.step_units = self.measure_step()
        self.note(
            max_tokens=MOST_UNITS,
            batchable=self.batchable,
            cost_fixed_s=fixed_s,
            cost_unit_s=self.cost_unit_s,
            typical_units=example.units,
            units_per_char=example.units / size,
            prepare_s_per_char=prepare_s / size,
            workers=workers,
            path="stock" if self.batchable else "alone",
            step_units=self.step_units,
            # All answers of a batch leave in one frame.
            most_units=max(
                example.units, MAX_FRAME * 9 // 10 * example.units // max(1, len(answer))
            ),
        )

    def example_parameters(self) -> Mapping[str, Any]:
        """The parameters that the cost is fitted with."""
        return self.task.example_parameters

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
        mine: Pieces[Made] = one.payload
        if any(not row.signature for row in mine.rows):
            return False
        return self.agree([other.payload if other.key == one.key else mine, mine], 1)


def task_word(task: Task) -> str:
    """What a client sends."""
    return {"audio": "sound"}.get(task.media, task.media)
