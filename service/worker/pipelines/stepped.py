"""A stock pipeline taken apart into its steps, so that rows of many inputs share a forward.

The stock call is preprocess, forward, postprocess for one input after the other. Here preprocess
runs ahead in the prepare thread, rows share forwards, and postprocess sees each input's own rows.

=============  ==================================================  ==============================
step           what a subclass says                                otherwise
=============  ==================================================  ==============================
preprocessed   what the input is before it                         the stock preprocess
groups         which rows share a forward                          --
together       how they are put together                           --
apart          how their outputs are taken apart                   along the first dimension
answer         what is done to the answer                          the stock postprocess
=============  ==================================================  ==============================

Laws
- Preparing has parts of its own; parameters become the stock pipeline's by its own rules.
- Where inputs were not proved to have the outputs together that they have alone, every row has a
  forward of its own.
- As many rows come back as went in, or the batch has failed by that name.
- Whose memory runs out in a batch is halved by the front, which learns from it. An input that is
  alone and makes several rows is halved here, row by row at last: nobody else can.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from transformers.pipelines.base import ChunkPipeline

from service.tasks import Task
from service.worker.faults import kind_of
from service.worker.interface import Foreign, PreparedInput
from service.worker.pipelines.owned import Owned
from service.worker.pipelines.pieces import Pieces, Row, divided
from service.worker.pipelines.rows import check_rows, is_equal, own_row
from service.worker.pipelines.warmup import tried
from service.worker.wire import Load


class Stepped(Owned):
    """A stock pipeline in steps.

    Args:
        load: as it came in LOAD.
        task: its entry.
        pipe: the stock pipeline, on its device.
    """

    parts: ClassVar[tuple[str, ...]] = (
        "tokenizer",
        "image_processor",
        "feature_extractor",
        "processor",
    )
    """What preparing has of its own."""

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        super().__init__(load, task, pipe)
        self._preparing = copy.copy(pipe)
        for name in self.parts:
            setattr(self._preparing, name, copy.deepcopy(getattr(pipe, name, None)))
        self._chunked = isinstance(pipe, ChunkPipeline)

    # -- preparing -------------------------------------------------------------------------------

    def preparing(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Of the stock call's parameters those of preprocess."""
        given, _, _ = self._preparing._sanitize_parameters(**call)  # noqa: SLF001 - see the law
        return {**self.pipe._preprocess_params, **given}  # noqa: SLF001

    def preprocessed(self, value: Foreign, given: Mapping[str, Any]) -> list[Foreign]:
        """What the stock preprocess makes of an input: a mapping for each row."""
        made = self._preparing.preprocess(value, **given)
        return list(made) if self._chunked else [made]

    # -- running ---------------------------------------------------------------------------------

    def groups(self, items: Sequence[Pieces[Any]]) -> Iterable[list[Row[Any]]]:
        """The rows of a batch, cut into forwards."""
        raise NotImplementedError

    def together(self, rows: Sequence[Any]) -> Foreign:
        """The input of one forward."""
        raise NotImplementedError

    def apart(self, outputs: Foreign, rows: Sequence[Any]) -> list[Foreign]:
        """What the stock forward would have given for each row alone.

        Raises:
            Mismatch: the model gave another number of rows.
        """
        check_rows(outputs, len(rows))
        return [own_row(outputs, index, len(rows)) for index in range(len(rows))]

    def answer(self, pieces: Pieces[Any], outputs: list[Foreign]) -> Foreign:
        """Postprocess an item's outputs, row by row."""
        _, _, given = self.pipe._sanitize_parameters(**pieces.call)  # noqa: SLF001
        given = {**self.pipe._postprocess_params, **given}  # noqa: SLF001
        return self.pipe.postprocess(outputs if self._chunked else outputs[0], **given)

    def run(self, items: Sequence[PreparedInput]) -> list[Any]:
        """Forwards for all rows, then postprocess for each item."""
        batch: list[Pieces[Any]] = [item.payload for item in items]
        with torch.inference_mode():
            return [
                self.answer(pieces, outputs)
                for pieces, outputs in zip(batch, self.forward(batch), strict=True)
            ]

    def forward(self, payloads: Sequence[Any]) -> Foreign:
        """Each item's outputs, a list of its rows'.

        Raises:
            Mismatch: the model gave another number of rows.
        """
        batch: Sequence[Pieces[Any]] = payloads
        found: list[list[Foreign]] = [[None] * len(pieces.rows) for pieces in batch]
        _, given, _ = self.pipe._sanitize_parameters(**batch[0].call)  # noqa: SLF001
        given = {**self.pipe._forward_params, **given, **batch[0].fixed}  # noqa: SLF001
        groups = list(self.groups(batch))
        if not self.batchable:
            groups = [[row] for group in groups for row in group]
        groups.reverse()
        while groups:
            group = groups.pop()
            owned = self._owned(group, given, alone=len(batch) == 1)
            if owned is None:
                gc.collect()
                self.release()
                groups = divided(groups, group)
                continue
            for row, own in zip(group, owned, strict=True):
                found[row.item][row.place] = own
        return found

    def _owned(
        self, group: Sequence[Row[Any]], given: Mapping[str, Any], *, alone: bool
    ) -> list[Foreign] | None:
        """One forward: the outputs of each row; ``None`` if it has to be run in parts."""
        rows = [row.payload for row in group]
        try:
            return self.apart(self.pipe.forward(self.together(rows), **given), rows)
        except Exception as error:
            # Foreign code: what it raises for want of memory depends on the device.
            if not alone or len(rows) == 1 or kind_of(error, lambda: True) != "oom":
                raise
        return None  # outside of the handler, which holds the frames and they the tensors

    # -- warming up ------------------------------------------------------------------------------

    def agree(self, batch: Sequence[Pieces[Any]], *compared: int) -> bool:
        """Whether these of a batch have the outputs in it that they have alone."""
        together = tried(lambda: self.forward(batch))
        if together is None:
            return False
        batchable, self.batchable = self.batchable, False
        try:
            return all(
                is_equal(together[place], self.forward([batch[place]])[0]) for place in compared
            )
        finally:
            self.batchable = batchable
