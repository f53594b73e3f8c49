"""text-generation: a prompt, and then token by token.

Laws
- Padding stands on the left, so that every prompt ends where its text goes on.
- Items of one batch get the same number of new tokens: it is part of the batch key.
- Each new token is a forward of its own, whatever the batch: its cost in units was measured.
- Prompt and answer together fit the model, as ``room`` says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from transformers.utils.chat_template_utils import Chat

from service.worker.interface import Foreign, PreparedInput, Unsuitable
from service.worker.pipelines.pieces import Pieces
from service.worker.pipelines.room import STEPS, new_tokens, step_units
from service.worker.pipelines.stock import Payload
from service.worker.pipelines.tasked import Tasked


class Generating(Tasked):
    """A causal language model."""

    padding_side = "left"

    def stock_input(self, value: Foreign) -> Foreign:
        """A text, or the messages of a chat.

        Raises:
            Unsuitable: the model has no template for chats.
        """
        if isinstance(value, str):
            return value
        if not getattr(self.prepare_tokenizer, "chat_template", None):
            raise Unsuitable("send a text; this model has no template for chats")
        return Chat(value)

    def decided(self, item: PreparedInput) -> PreparedInput:
        """How many tokens there is room for.

        Raises:
            Unsuitable: more were asked for, or there is room for none.
        """
        pieces: Pieces[Payload] = item.payload
        new = new_tokens(self.pipe.model, pieces.length, self.max_tokens, pieces.call)
        fixed = {"max_new_tokens": new}
        units = pieces.length + round(new * self.step_units)
        return PreparedInput(units, item.nbytes, replace(pieces, fixed=fixed), f";new={new}")

    def cut(self, own: dict[str, Any], row: Payload, padded: int) -> None:
        """Nothing: postprocess leaves the padding out."""

    # -- warming up ------------------------------------------------------------------------------

    def stretched(self, payload: Foreign, length: int) -> Pieces[Payload]:
        """The prompt, so long, with one new token: the fit is about reading it."""
        return replace(super().stretched(payload, length), fixed=_greedy(1))

    def batches_rightly(self, payload: Foreign) -> bool:
        """The same tokens follow a prompt beside a longer one as follow it alone."""
        short = replace(payload, fixed=_greedy(STEPS))
        room = self.max_tokens - STEPS
        longer = replace(self.stretched(payload, min(room, payload.length + 9)), fixed=short.fixed)
        if longer.length <= short.length:
            return True
        [beside], _ = self.forward([short, longer])
        [[alone]] = self.forward([short])
        return [_new(one) for one in (beside,)] == [_new(alone)]

    def measure_step(self) -> float:
        """Seconds of one more token, in units of the fit."""
        payload = self.prepare(self.text(self.task.example), b"", {"max_new_tokens": 1}).payload

        def run(steps: int) -> None:
            self.forward([replace(payload, fixed=_greedy(steps) | {"min_new_tokens": steps})])

        with torch.inference_mode():
            return step_units(run, self.cost_unit_s)


def _greedy(steps: int) -> dict[str, Any]:
    return {"max_new_tokens": steps, "do_sample": False}


def _new(outputs: Foreign) -> list[int]:
    start = outputs["input_ids"].shape[1]
    tokens: list[int] = outputs["generated_sequence"][0, 0, start:].tolist()
    return tokens
