"""Tasks whose input is a sound: the stock pipeline's steps on samples that were decoded here.

Units are hundredths of a second of what goes through the model. Some models hear a window of fixed
length, however long the sound is, others as much as they are given.

Laws
- Rows share a forward if they have the same shape. Only where the model was proved to hide padding
  behind its attention mask do rows of other lengths join them.
- Rows of one shape were proved to have the outputs that they have alone, or run one at a time.
- The same sound has the same answer: where the library cuts at random, it always cuts alike.
- A sound that is longer than a model without a window was proved to take is refused, never cut.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from transformers.utils import ModelOutput
from transformers.pipelines.base import ChunkPipeline, pad_collate_fn

from service.tasks import Task
from service.worker.faults import kind_of
from service.worker.interface import CannotLoad, Foreign, Mismatch, PreparedInput, Unsuitable
from service.worker.pipelines.owned import Owned
from service.worker.pipelines.pieces import Pieces, Row, forwards, in_order
from service.worker.pipelines.sharing import share_cores
from service.worker.sounds import MAX_SOUND_S, Samples, read_sound
from service.worker.pipelines.stock import Payload
from service.worker.pipelines.tasked import is_equal
from service.worker.pipelines.warmup import MAX_FIT_UNITS, fit_cost, prove_length
from service.worker.wire import Load

UNITS_A_SECOND = 100

MAX_PIECE_S = 30
"""Most of one row: what a window of Whisper holds. The attention of a model without a window grows
with the square of it."""

FORWARD_UNITS = 4 * MAX_PIECE_S * UNITS_A_SECOND
"""Of one forward, where an input makes more rows than one."""

LEAST_S = (0.1, 0.25, 0.5, 1.0)
"""The shortest sounds that are tried: convolutions need a few frames."""

_KEEP_BYTES = 1024
_RUNS = 3


class Hearing(Owned):
    """A pipeline that classifies sounds."""

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        super().__init__(load, task, pipe)
        extractor = copy.deepcopy(pipe.feature_extractor)
        self._preparing = copy.copy(pipe)  # the prepare thread's own
        self._preparing.feature_extractor = extractor
        self._preparing.tokenizer = copy.deepcopy(pipe.tokenizer)
        self._chunked = isinstance(pipe, ChunkPipeline)
        self._collate = pad_collate_fn(None, pipe.feature_extractor)
        self.rate_hz = int(extractor.sampling_rate)
        self.batchable = True
        self.max_tokens = 0
        self.cost_unit_s = self.step_units = 0.0
        self.windowed = False
        self.padding = False
        self.least = 1

    # -- preparing -------------------------------------------------------------------------------

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """Decode, and run the stock preprocess.

        Raises:
            Unsuitable: no sound that is known, too short, too long, or a parameter does not fit.
        """
        samples = read_sound(self.task.arrived(inputs, media), self.rate_hz)
        if len(samples) < self.least:
            least_ms = round(1000 * self.least / self.rate_hz)
            raise Unsuitable(f"send a sound of at least {least_ms} ms", limit=least_ms)
        return self.prepared(samples, self.task.call(parameters))

    def prepared(self, samples: Samples, call: dict[str, Any]) -> PreparedInput:
        """Samples, and parameters by the stock call's names, as rows."""
        self.check(samples, call)
        given, _, _ = self._preparing._sanitize_parameters(**call)  # noqa: SLF001 - as in Tasked
        given = {**self.pipe._preprocess_params, **given}  # noqa: SLF001
        np.random.seed(0)  # noqa: NPY002 - the library's own state, used in this thread alone
        made = self._preparing.preprocess(samples, **given)
        rows = tuple(self.row(part) for part in (made if self._chunked else [made]))
        nbytes = sum(
            _KEEP_BYTES + sum(tensor.nbytes for tensor in row.tensors.values()) for row in rows
        )
        key = "" if self.padding else f";shape={_shape(rows[0])}"
        return self.decided(PreparedInput(0, nbytes, Pieces(rows, call, {}), key))

    def decided(self, item: PreparedInput) -> PreparedInput:
        """The item with its size."""
        return replace(item, units=item.payload.units)

    def check(self, samples: Samples, call: Mapping[str, Any]) -> None:
        """Refuse what the model was not proved to take.

        Raises:
            Unsuitable: it is too long, or a parameter does not fit the model.
        """
        del call
        most_s = (self.max_tokens or MAX_PIECE_S * UNITS_A_SECOND) / UNITS_A_SECOND
        if not self.windowed and len(samples) > most_s * self.rate_hz:
            raise Unsuitable(f"send a sound of at most {most_s:g} s", limit=int(most_s))

    def row(self, made: Mapping[str, Any]) -> Payload:
        """What preprocess has made."""
        tensors = {name: part for name, part in made.items() if isinstance(part, torch.Tensor)}
        extras = {name: part for name, part in made.items() if name not in tensors}
        main = next(part for name, part in tensors.items() if name.startswith("input_"))
        if main.ndim == 2:  # noqa: PLR2004 - rows of samples; features come a hundred a second
            units = -(-int(main.shape[1]) * UNITS_A_SECOND // self.rate_hz)
        elif "attention_mask" in tensors:
            units = int(tensors["attention_mask"].shape[-1])
        else:
            units = max(main.shape[1:])
        return Payload(tensors, units, {}, extras)

    # -- running ---------------------------------------------------------------------------------

    def run(self, items: Sequence[PreparedInput]) -> list[Any]:
        """Forwards for all rows, then postprocess for each item."""
        if not self.batchable and len(items) > 1:
            return [answer for item in items for answer in self.run([item])]
        batch: list[Pieces] = [item.payload for item in items]
        with torch.inference_mode():
            return [
                self._answer(pieces, outputs)
                for pieces, outputs in zip(batch, self.forward(batch), strict=True)
            ]

    def _answer(self, pieces: Pieces, outputs: list[Foreign]) -> Foreign:
        _, _, given = self.pipe._sanitize_parameters(**pieces.call)  # noqa: SLF001
        given = {**self.pipe._postprocess_params, **given}  # noqa: SLF001
        return self.pipe.postprocess(outputs if self._chunked else outputs[0], **given)

    def forward(self, payloads: Sequence[Any]) -> Foreign:
        """Each item's outputs, row by row."""
        found = in_order(payloads)
        pieces: Pieces = payloads[0]
        _, given, _ = self.pipe._sanitize_parameters(**pieces.call)  # noqa: SLF001
        given = {**self.pipe._forward_params, **given, **pieces.fixed}  # noqa: SLF001
        for group in self.groups(payloads):
            rows = [row.payload for row in group]
            inputs = dict(self._collate([dict(row.tensors) for row in rows]))
            for name in rows[0].extras:
                inputs[name] = [row.extras[name] for row in rows]
            outputs = self.pipe.forward(inputs, **given)
            for index, row in enumerate(group):
                found[row.item][row.place] = self.own(outputs, index, row.payload, len(rows))
        return found

    def own(self, outputs: Foreign, index: int, row: Payload, rows: int) -> Foreign:
        """What the stock forward would have given for this row alone.

        Raises:
            Mismatch: the model gave another number of rows.
        """
        del row
        found = {}
        for name, value in outputs.items():
            if isinstance(value, torch.Tensor | list):
                if len(value) != rows:
                    raise Mismatch(len(value), rows)
                tensor = isinstance(value, torch.Tensor)
                found[name] = value[index : index + 1] if tensor else value[index]
        return ModelOutput(found) if isinstance(outputs, ModelOutput) else found

    def groups(self, items: Sequence[Pieces]) -> Iterator[list[Row]]:
        """The rows of a batch, cut into forwards."""
        if self.padding:
            yield from forwards(items)
            return
        shapes: dict[str, list[Row]] = {}
        for item, pieces in enumerate(items):
            for place, payload in enumerate(pieces.rows):
                shapes.setdefault(_shape(payload), []).append(Row(item, place, payload))
        lone = all(len(pieces.rows) == 1 for pieces in items)
        for rows in shapes.values():
            # A batch of single rows was chosen by its size.
            most = len(rows) if lone else max(1, FORWARD_UNITS // rows[0].payload.length)
            yield from (rows[start : start + most] for start in range(0, len(rows), most))

    # -- warming up ------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Run the example, prove window, batches and longest, share the cores, fit the cost."""
        parameters = self.task.example_parameters
        call = self.task.call(parameters)
        example = self._sample(self.task.example, parameters)
        self._canary = self._sample(self.task.canary, self.task.canary_parameters)
        with torch.inference_mode():
            one, two = self._of(1, call), self._of(2, call)
            self.windowed = _shape(one.rows[0]) == _shape(two.rows[0])
            self.padding = not self.windowed and self.pads_rightly(one.rows[0], two.rows[0])
            self.batchable = self.batches_rightly((example.payload, one))
            self.least = self._least(call)
            self.max_tokens = self._longest(call, one)

        kept: dict[int, Pieces] = {}

        def run_batch(items: int, length: int) -> None:
            seconds = max(length / UNITS_A_SECOND, self.least / self.rate_hz)
            if length not in kept:
                kept[length] = self.fitted(self._of(seconds, call))
            self.run([PreparedInput(length, 0, kept[length])] * items)

        typical = example.payload.units
        workers = 1
        if self._load.cores > 1 and self.pipe.device.type == "cpu":
            cores = self._load.cores
            split = share_cores(cores, run_batch, typical=typical, batchable=self.batchable)
            workers = split.workers
        fixed_s, self.cost_unit_s = fit_cost(run_batch, self._fit_sizes(typical))
        self.step_units = self.measure_step()
        prepare_s, nbytes = self._measure_decoding(parameters)
        again = self._sample(self.task.example, parameters)
        self.note(
            max_tokens=self.most(again),
            batchable=self.batchable,
            cost_fixed_s=fixed_s,
            cost_unit_s=self.cost_unit_s,
            typical_units=again.units,
            units_per_char=typical / nbytes,
            prepare_s_per_char=prepare_s / nbytes,
            workers=workers,
            step_units=self.step_units,
        )

    def most(self, example: PreparedInput) -> int:
        """Units of the largest input."""
        return max(self.max_tokens, example.units)

    def fitted(self, pieces: Pieces) -> Pieces:
        """An input of the fit."""
        return pieces

    def batches_rightly(self, payload: Foreign) -> bool:
        """Whether two inputs of one shape have the outputs together that they have alone."""
        batch = [self.fitted(pieces) for pieces in payload]
        try:
            together = self.forward(batch)
        except Exception as error:
            # As in Tasked: what it raises for more than one row means that it takes but one.
            if kind_of(error, lambda: True) in {"oom", "device_lost"}:
                raise
            return False
        return all(
            is_equal(both[0][name], alone[name])
            for both, pieces in zip(together, batch, strict=True)
            for [[alone]] in [self.forward([pieces])]
            for name in alone
        )

    def pads_rightly(self, short: Payload, longer: Payload) -> bool:
        """Whether the model gives a row beside a longer one the numbers that it has alone."""
        frames = self.frames(short)
        if "attention_mask" not in short.tensors or frames is None:
            return False
        device, model = self.pipe.device, self.pipe.model
        alone = model(**{name: part.to(device) for name, part in short.tensors.items()}).logits
        both = self._collate([dict(row.tensors) for row in (short, longer)])
        beside = model(**{name: part.to(device) for name, part in both.items()}).logits[:1]
        if alone.ndim > 2:  # noqa: PLR2004 - one for each frame
            beside = beside[:, :frames]
        return is_equal(beside, alone)

    def frames(self, row: Payload) -> int | None:
        """Frames of the model's output that are a row's own, ``None`` if the model does not say."""
        count = getattr(self.pipe.model, "_get_feat_extract_output_lengths", None)
        if count is None or "attention_mask" not in row.tensors:
            return None
        return int(count(row.tensors["attention_mask"].sum(-1)))

    def _sample(self, value: Any, parameters: Mapping[str, Any]) -> PreparedInput:
        text, media = self.task.taken(value, "")
        return self.prepare(text, media, parameters)

    def _of(self, seconds: float, call: Mapping[str, Any]) -> Pieces:
        times = np.arange(round(seconds * self.rate_hz)) / self.rate_hz
        tone = 0.3 * np.sin(2 * np.pi * (300 + 60 * times) * times)
        pieces: Pieces = self.prepared(tone.astype(np.float32), dict(call)).payload
        return pieces

    def _least(self, call: Mapping[str, Any]) -> int:
        for seconds in LEAST_S:
            try:
                self.forward([self.fitted(self._of(seconds, call))])
            except Exception as error:
                # Foreign code; what a sound that is too short raises is the model's own affair.
                if kind_of(error, lambda: True) in {"oom", "device_lost"}:
                    raise
            else:
                return round(seconds * self.rate_hz)
        raise CannotLoad("model_broken", "The model fails with a sound of a second.")

    def _longest(self, call: Mapping[str, Any], one: Pieces) -> int:
        if self.windowed:
            return one.length

        def run_at(length: int) -> None:
            self.forward([self.fitted(self._of(length / UNITS_A_SECOND, call))])

        return prove_length(run_at, MAX_PIECE_S * UNITS_A_SECOND, UNITS_A_SECOND)

    def _fit_sizes(self, typical: int) -> Iterable[tuple[int, int]]:
        most = self._load.batch_tokens_hint or MAX_FIT_UNITS
        yield 1, typical
        times = 2
        while times * typical <= most:
            if self.batchable:
                yield times, typical
            elif not self.windowed and times * typical <= self.max_tokens:
                yield 1, times * typical
            times *= 2

    def _measure_decoding(self, parameters: Mapping[str, Any]) -> tuple[float, int]:
        """Seconds to prepare the example, and its bytes."""
        text, media = self.task.taken(self.task.example, "")
        times = []
        for _ in range(_RUNS):
            started = perf_counter()
            self.prepare(text, media, parameters)
            times.append(perf_counter() - started)
        return median(times), len(media)


def _shape(row: Payload) -> str:
    return ",".join("x".join(map(str, part.shape)) for part in row.tensors.values())


def at(pieces: Pieces, **fixed: Any) -> Pieces:
    """The same input with forward parameters that were decided here."""
    return replace(pieces, fixed=fixed)


__all__ = ["FORWARD_UNITS", "MAX_PIECE_S", "MAX_SOUND_S", "UNITS_A_SECOND", "Hearing", "at"]
