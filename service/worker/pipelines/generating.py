"""text-generation: a prompt, and then token by token.

Laws
- Padding stands on the left, so that every prompt ends where its text goes on.
- Items of one batch get the same number of new tokens: it is part of the batch key.
- Each new token is a forward of its own, whatever the batch: its cost in units was measured.
- Prompt and answer together fit the model: more is refused if it was asked for, and given as far as
  there is room if it was not.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from transformers.utils.chat_template_utils import Chat

from service.tasks.text_generation import DEFAULT_NEW_TOKENS
from service.worker.interface import Foreign, PreparedInput, Unsuitable
from service.worker.pipelines.pieces import Pieces
from service.worker.pipelines.stock import Payload
from service.worker.pipelines.tasked import Tasked

_STEPS = 8
"""New tokens of the measurement."""


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
        pieces: Pieces = item.payload
        room = self.max_tokens - pieces.length
        asked = pieces.call.get("max_new_tokens")
        if room < 1:
            raise Unsuitable(
                f"the text has {pieces.length} tokens, this model takes at most "
                f"{self.max_tokens} with its answer; send a shorter text",
                limit=self.max_tokens - 1,
            )
        if asked is not None and asked > room:
            message = f"for this text send an integer from 1 to {room}"
            raise Unsuitable(message, limit=room, pointer="/parameters/max_new_tokens")
        new = asked if asked is not None else min(self._default_new(), room)
        if pieces.call.get("min_new_tokens", 0) > new:
            message = f"for this text send an integer from 0 to {new}"
            raise Unsuitable(message, limit=new, pointer="/parameters/min_new_tokens")
        fixed = {"max_new_tokens": new}
        units = pieces.length + round(new * self.step_units)
        return PreparedInput(units, item.nbytes, replace(pieces, fixed=fixed), f";new={new}")

    def _default_new(self) -> int:
        named = getattr(self.pipe.model.generation_config, "max_new_tokens", None)
        return named if isinstance(named, int) else DEFAULT_NEW_TOKENS

    def own(
        self, outputs: Foreign, index: int, row: Payload, padded: int, rows: int
    ) -> dict[str, Any]:
        """One prompt with what was generated behind it; postprocess leaves the padding out."""
        del row, padded
        own = {
            name: value[index : index + 1]
            for name, value in outputs.items()
            if isinstance(value, torch.Tensor) and len(value) == rows
        }
        return {**own, "prompt_text": outputs["prompt_text"][index]}

    # -- warming up ------------------------------------------------------------------------------

    def stretched(self, payload: Foreign, length: int) -> Pieces:
        """The prompt, so long, with one new token: the fit is about reading it."""
        return replace(super().stretched(payload, length), fixed=_greedy(1))

    def batches_rightly(self, payload: Foreign) -> bool:
        """The same tokens follow a prompt beside a longer one as follow it alone."""
        short = replace(payload, fixed=_greedy(_STEPS))
        room = self.max_tokens - _STEPS
        longer = replace(self.stretched(payload, min(room, payload.length + 9)), fixed=short.fixed)
        if longer.length <= short.length:
            return True
        [beside], _ = self.forward([short, longer])
        [[alone]] = self.forward([short])
        return [_new(one) for one in (beside,)] == [_new(alone)]

    def measure_step(self) -> float:
        """Seconds of one more token, in units of the fit."""
        payload = self.prepare(self.text(self.task.example), b"", {"max_new_tokens": 1}).payload
        took = []
        with torch.inference_mode():
            for steps in (1, 1 + _STEPS):
                pieces = replace(payload, fixed=_greedy(steps) | {"min_new_tokens": steps})
                times = []
                for _ in range(3):
                    started = perf_counter()
                    self.forward([pieces])
                    times.append(perf_counter() - started)
                took.append(min(times))
        return max(0.0, took[1] - took[0]) / _STEPS / max(self.cost_unit_s, 1e-9)


def _greedy(steps: int) -> dict[str, Any]:
    return {"max_new_tokens": steps, "do_sample": False}


def _new(outputs: Foreign) -> list[int]:
    start = outputs["input_ids"].shape[1]
    tokens: list[int] = outputs["generated_sequence"][0, 0, start:].tolist()
    return tokens
