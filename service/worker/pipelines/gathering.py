"""Only the rows that are asked for go through the vocabulary head.

A masked language model ends in a head that turns every position's hidden state into a score for
every word; for a fill-mask answer all but the masked positions are thrown away. The head is half of
the work of a small model with a large vocabulary, and its output the largest tensor of all. Here a
hook on the model's base hands the head the masked positions alone. It knows no architecture: heads
of BERT, RoBERTa, DistilBERT and ModernBERT look at one position at a time, and whether this one
does is proved at warm-up, or the stock path stays.

Laws
- Outside :meth:`Gathering.at` the model is what it was.
- What was gathered equals what the stock path gives at those positions, as far as its number format
  tells numbers apart, for padded batches and several masks, or it is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

from service.worker.faults import kind_of
from service.worker.interface import Foreign

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-5}
"""Of a probability; the promise to clients is 1e-4."""

COARSE = 2e-3
"""Half precision rounds otherwise when a matrix has another shape."""


class Gathering:
    """The hook on one model.

    Args:
        model: with a base model and a head of its own.

    Raises:
        ValueError: the model has no base of its own to hook.
    """

    def __init__(self, model: Foreign) -> None:
        if model.base_model is model:
            raise ValueError("the model has no head apart from its base")
        self._rows: torch.Tensor | None = None
        self._hook = model.base_model.register_forward_hook(self._take)

    @contextmanager
    def at(self, rows: torch.Tensor) -> Iterator[None]:
        """Meanwhile the head sees these positions only: a tensor of shape (items, rows)."""
        self._rows = rows
        try:
            yield
        finally:
            self._rows = None

    def remove(self) -> None:
        """Leave the model as it was."""
        self._hook.remove()

    def _take(self, module: Foreign, arguments: Foreign, output: Foreign) -> Foreign:
        del module, arguments
        if self._rows is None:
            return output
        hidden = output[0]
        items = torch.arange(hidden.shape[0], device=hidden.device).unsqueeze(1)
        taken = hidden[items, self._rows.to(hidden.device)]
        if isinstance(output, tuple):
            return (taken, *output[1:])
        output[next(iter(output))] = taken
        return output


class AtMasks:
    """Stands for the scores of all positions, of which only the masked ones were made.

    The stock postprocess asks for nothing but ``scores[0, masked positions, :]``.
    """

    def __init__(self, rows: torch.Tensor) -> None:
        self._rows = rows

    def __getitem__(self, place: tuple[int, torch.Tensor, slice]) -> torch.Tensor:
        _, positions, _ = place
        return self._rows[: len(positions)]


def masked_rows(ids: torch.Tensor, mask_id: int) -> torch.Tensor:
    """Positions of the masks of each item, in order; where an item has fewer, others follow.

    Args:
        ids: token ids of shape (items, length).
        mask_id: of the mask.

    Returns:
        Shape (items, most masks of an item).
    """
    masked = ids == mask_id
    most = max(1, int(masked.sum(dim=1).max()))
    order = torch.sort(masked.to(torch.int8), dim=1, descending=True, stable=True).indices
    return order[:, :most]


def is_equal(
    run: Callable[[Mapping[str, torch.Tensor]], Foreign],
    gathering: Gathering,
    inputs: Mapping[str, torch.Tensor],
    mask_id: int,
) -> bool:
    """Whether the gathered scores of one padded batch are those of the stock path.

    Args:
        run: runs the model and returns its outputs on the CPU.
        gathering: on that model.
        inputs: the batch.
        mask_id: of the mask.
    """
    ids = inputs["input_ids"]
    rows = masked_rows(ids, mask_id)
    items = torch.arange(len(ids)).unsqueeze(1)
    stock = run(inputs)["logits"][items, rows.cpu()]
    try:
        with gathering.at(rows):
            gathered = run(inputs)["logits"]
    except Exception as error:
        # Foreign code: a head that needs all positions may raise whatever it likes.
        if kind_of(error, lambda: True) in {"oom", "device_lost"}:
            raise
        return False
    if gathered.shape != stock.shape:
        return False
    limit = TOLERANCE.get(stock.dtype, COARSE)
    before, after = stock.float().softmax(-1), gathered.float().softmax(-1)
    masked = (ids == mask_id).cpu().gather(1, rows.cpu())
    return bool(((before - after).abs().amax(-1)[masked] <= limit).all())
