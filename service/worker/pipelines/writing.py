"""The answers of a whole fill-mask batch, written together.

The stock postprocess writes one item after the other: a softmax, a top-k and ten calls of the
tokenizer for each. Here the plain items of a batch share one softmax, one top-k and one call that
decodes every sequence; a token's own string is looked up once. It does what the stock postprocess
of the installed library does, and whether that is so is proved at warm-up, or the stock way stays.

Laws
- An answer equals the stock postprocess's for the same scores: tokens, strings, order; scores as
  far as the number format tells them apart.
- Only items with the default ``top_k`` and no ``targets`` are plain; the others are the stock's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from service.worker.interface import Answer, Foreign
from service.worker.pipelines.stock import Payload

DEFAULT_TOP_K = 5
"""The stock pipeline's."""

CLOSE = 1e-6
"""Of a probability that was made with others in one call."""


_Row = tuple[list[float], list[int]]
"""Scores and tokens of one mask, the best first."""


class Writer:
    """Writes the plain items of a batch.

    Args:
        tokenizer: the model thread's own; it only decodes.

    Raises:
        ValueError: the tokenizer has no decoder that writes many at once, or tidies up behind it.
    """

    def __init__(self, tokenizer: Foreign) -> None:
        if not tokenizer.is_fast or tokenizer.clean_up_tokenization_spaces:
            raise ValueError("the tokenizer decodes one by one")
        self._decode_batch = tokenizer.backend_tokenizer.decode_batch
        self._decode: Callable[[list[int]], str] = tokenizer.decode
        self._mask_id: int = tokenizer.mask_token_id
        self._pad_id: int | None = tokenizer.pad_token_id
        self._strings: dict[int, str] = {}

    def write(self, scores: torch.Tensor, payloads: Sequence[Payload]) -> list[Answer]:
        """The answers of plain items.

        Args:
            scores: of the masked positions, in order; shape (items, most masks, vocabulary).
            payloads: the items.
        """
        ids: list[list[int]] = [p.tensors["input_ids"][0].tolist() for p in payloads]
        masks = [[n for n, token in enumerate(own) if token == self._mask_id] for own in ids]
        # One long text with many masks must not make room for as many rows of all the others.
        row = [place for own in masks for place in range(len(own))]
        item = [index for index, own in enumerate(masks) for _ in own]
        own_scores = scores[:, 0] if len(row) == len(ids) else scores[item, row]
        values, tokens = own_scores.softmax(dim=-1).topk(min(DEFAULT_TOP_K, scores.shape[-1]))
        found = iter(zip(values.tolist(), tokens.tolist(), strict=True))
        chosen = [[next(found) for _ in own] for own in masks]
        sequences = self._sequences(ids, masks, chosen)
        answers: list[Answer] = []
        for places in chosen:
            rows = [
                [
                    {
                        "score": value,
                        "token": token,
                        "token_str": self._string(token),
                        "sequence": next(sequences),
                    }
                    for value, token in zip(*place, strict=True)
                ]
                for place in places
            ]
            answers.append(rows[0] if len(rows) == 1 else rows)
        return answers

    def _sequences(
        self, ids: list[list[int]], masks: list[list[int]], chosen: list[list[_Row]]
    ) -> Iterator[str]:
        """Every sequence of every item, in order."""
        written: dict[bool, list[list[int]]] = {True: [], False: []}
        order: list[bool] = []
        for own, places, rows in zip(ids, masks, chosen, strict=True):
            lone = len(places) == 1  # more masks: the others shall stay in sight
            for place, (_, tokens) in zip(places, rows, strict=True):
                for token in tokens:
                    sequence = [*own[:place], token, *own[place + 1 :]]
                    if self._pad_id in sequence:
                        sequence = [one for one in sequence if one != self._pad_id]
                    written[lone].append(sequence)
                    order.append(lone)
        texts = {
            lone: iter(self._decode_batch(some, skip_special_tokens=lone) if some else ())
            for lone, some in written.items()
        }
        return (next(texts[lone]) for lone in order)

    def _string(self, token: int) -> str:
        found = self._strings.get(token)
        if found is None:
            found = self._strings[token] = self._decode([token])
        return found


def is_plain(payload: Payload) -> bool:
    """Whether the default is asked for."""
    return not payload.post or payload.post == {"top_k": DEFAULT_TOP_K}


def is_same(one: Answer, other: Answer) -> bool:
    """Whether two answers say the same, scores but for :data:`CLOSE`."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return False
    scores: list[Any] = [one.get("score"), other.get("score")]
    close = all(isinstance(score, float) for score in scores) and abs(scores[0] - scores[1]) < CLOSE
    return bool(close and {**one, "score": 0} == {**other, "score": 0})
