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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from transformers.pipelines.base import pad_collate_fn

from service.tasks import Task
from service.worker.interface import Foreign, PreparedInput, Unsuitable
from service.worker.pipelines.pieces import Pieces, Row, alike, forwards
from service.worker.pipelines.rows import split
from service.worker.pipelines.stepped import Stepped
from service.worker.pipelines.stock import Payload, beside
from service.worker.pipelines.warmup import length_limit
from service.worker.sounds import Samples, read_sound
from service.worker.wire import Load

UNITS_A_SECOND = 100

MAX_PIECE_S = 30
"""Most of one row: what a window of Whisper holds. The attention of a model without a window grows
with the square of it."""

FORWARD_UNITS = 4 * MAX_PIECE_S * UNITS_A_SECOND
"""Of one forward, where an input makes more rows than one."""


class Heard(Stepped):
    """A pipeline of sounds, taken apart."""

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        super().__init__(load, task, pipe)
        self._collate = pad_collate_fn(None, pipe.feature_extractor)
        self.rate_hz = int(pipe.feature_extractor.sampling_rate)
        self.batchable = True
        self.max_tokens = 0
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
        np.random.seed(0)  # noqa: NPY002 - the library's own state, used in this thread alone
        made = self.preprocessed(samples, self.preparing(call))
        pieces = Pieces(tuple(map(self.row, made)), call)
        first = pieces.rows[0]
        self.check_labels(first)
        key = "" if self.padding else f";shape={shape_of(first)}"
        return self.decided(PreparedInput(pieces.units, pieces.nbytes, pieces, key))

    def decided(self, item: PreparedInput) -> PreparedInput:
        """The item with whatever else its length decides."""
        return item

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
        tensors, extras = split(made)
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

    def groups(self, items: Sequence[Pieces[Payload]]) -> Iterable[list[Row[Payload]]]:
        """Rows of one shape, or of about one length."""
        return forwards(items) if self.padding else alike(items, shape_of, FORWARD_UNITS)

    def together(self, rows: Sequence[Payload]) -> dict[str, Any]:
        """Padded, if they differ."""
        return beside(self._collate([dict(row.tensors) for row in rows]), rows)

    def frames(self, row: Payload) -> int | None:
        """Frames of the model's output that are a row's own, ``None`` if the model does not say."""
        count = getattr(self.pipe.model, "_get_feat_extract_output_lengths", None)
        if count is None or "attention_mask" not in row.tensors:
            return None
        return int(count(row.tensors["attention_mask"].sum(-1)))


def shape_of(row: Payload) -> str:
    """What rows of one forward agree in, where nothing is padded."""
    return ",".join("x".join(map(str, part.shape)) for part in row.tensors.values())
