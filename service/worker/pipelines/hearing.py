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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers.pipelines.base import ChunkPipeline, pad_collate_fn
from transformers.utils import ModelOutput

from service.tasks import Task
from service.worker.interface import Foreign, Mismatch, PreparedInput, Unsuitable
from service.worker.pipelines.owned import Owned
from service.worker.pipelines.pieces import Pieces, Row, forwards, in_order
from service.worker.pipelines.stock import Payload
from service.worker.pipelines.warmup import length_limit
from service.worker.sounds import Samples, read_sound
from service.worker.wire import Load

UNITS_A_SECOND = 100

MAX_PIECE_S = 30
"""Most of one row: what a window of Whisper holds. The attention of a model without a window grows
with the square of it."""

FORWARD_UNITS = 4 * MAX_PIECE_S * UNITS_A_SECOND
"""Of one forward, where an input makes more rows than one."""

_KEEP_BYTES = 1024


class Heard(Owned):
    """A pipeline of sounds, taken apart."""

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

    def note(self, **found: Any) -> None:  # noqa: ANN401 - as in Owned
        """Keep the facts, the rate among them."""
        super().note(rate_hz=self.rate_hz, **found)

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
        self.check_labels(rows[0])
        nbytes = sum(
            _KEEP_BYTES + sum(tensor.nbytes for tensor in row.tensors.values()) for row in rows
        )
        key = "" if self.padding else f";shape={shape_of(rows[0])}"
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

    def check_labels(self, row: Payload) -> None:
        """Refuse labels that are too long for the model.

        Raises:
            Unsuitable: by the parameter's name.
        """
        if "text_inputs" not in row.extras:
            return
        longest = int(row.extras["text_inputs"][0]["input_ids"].shape[-1])
        most = length_limit(self.pipe.model, self._preparing.tokenizer)
        if longest > most:
            raise Unsuitable(
                f"a label in its sentence has {longest} tokens, this model takes at most {most}",
                limit=most,
                pointer="/parameters/candidate_labels",
            )

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
        for text in extras.get("text_inputs", ()):  # read once for a batch, counted with each
            units += int(text["input_ids"].numel())
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
                shapes.setdefault(shape_of(payload), []).append(Row(item, place, payload))
        lone = all(len(pieces.rows) == 1 for pieces in items)
        for rows in shapes.values():
            # A batch of single rows was chosen by its size.
            most = len(rows) if lone else max(1, FORWARD_UNITS // rows[0].payload.length)
            yield from (rows[start : start + most] for start in range(0, len(rows), most))

    def frames(self, row: Payload) -> int | None:
        """Frames of the model's output that are a row's own, ``None`` if the model does not say."""
        count = getattr(self.pipe.model, "_get_feat_extract_output_lengths", None)
        if count is None or "attention_mask" not in row.tensors:
            return None
        return int(count(row.tensors["attention_mask"].sum(-1)))


def shape_of(row: Payload) -> str:
    """What rows of one forward agree in, where nothing is padded."""
    return ",".join("x".join(map(str, part.shape)) for part in row.tensors.values())
