"""image-text-to-text: a text with images, and then token by token.

Laws
- Prompt and answer together fit the model, as in ``generating``.
- Each input runs alone: what its images add to the text is the processor's own affair.
- A prompt in which marks and images differ in number is the client's to mend: the model would fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from transformers.utils.chat_template_utils import Chat

from service.tasks.image_text_to_text import DEFAULT_NEW_TOKENS
from service.worker.interface import Foreign, PreparedInput, Unsuitable
from service.worker.pipelines.shaped import Shaped, Shapes

_STEPS = 8
"""New tokens of the measurement."""


class Describing(Shaped):
    """A language model that sees."""

    def stock_input(self, value: Foreign) -> Foreign:
        """A chat, or a text with its images.

        Raises:
            Unsuitable: the model has no template for chats, or marks are missing.
        """
        processor = self._preparing.processor
        mark = getattr(processor, "image_token", None)
        if isinstance(value, list):
            if getattr(processor, "chat_template", None):
                return Chat(value)
            if self._facts is not None:
                raise Unsuitable(
                    "send an object with 'text' and 'images'; this model takes no chat"
                )
            parts = [part for message in value for part in message["content"]]
            texts = [part["text"] for part in parts if part["type"] == "text"]
            images = [part["image"] for part in parts if part["type"] == "image"]
            return {"images": images, "text": f"{(mark or '') * len(images)} {' '.join(texts)}"}
        if isinstance(mark, str) and value["text"].count(mark) != len(value["images"]):
            raise Unsuitable(f"write {mark} in the text where an image stands, once for each")
        return value

    def decided(self, item: PreparedInput) -> PreparedInput:
        """How many tokens there is room for.

        Raises:
            Unsuitable: more were asked for, or there is room for none.
        """
        shapes: Shapes = item.payload
        tokens = shapes.rows[0].tokens
        room = self.max_tokens - tokens
        asked = shapes.call.get("max_new_tokens")
        if room < 1:
            raise Unsuitable(
                f"text and images have {tokens} tokens, this model takes at most "
                f"{self.max_tokens} with its answer; send less",
                limit=self.max_tokens - 1,
            )
        if asked is not None and asked > room:
            message = f"for this input send an integer from 1 to {room}"
            raise Unsuitable(message, limit=room, pointer="/parameters/max_new_tokens")
        new = asked if asked is not None else min(self._default_new(), room)
        units = item.units + round(new * self._step_units)
        fixed = replace(shapes, call={**shapes.call, "max_new_tokens": new})
        return PreparedInput(units, item.nbytes, fixed, f"{item.key};new={new}")

    def _default_new(self) -> int:
        named = getattr(self.pipe.model.generation_config, "max_new_tokens", None)
        return named if isinstance(named, int) else DEFAULT_NEW_TOKENS

    def _answer(self, shapes: Shapes, outputs: list[Foreign]) -> Foreign:
        return _without_images(super()._answer(shapes, outputs))

    # -- warming up ------------------------------------------------------------------------------

    _step_units = 0.0

    def example_parameters(self) -> Mapping[str, Any]:
        """One new token, surely: the fit is about reading the prompt."""
        return {**self.task.example_parameters, "max_new_tokens": 1, "do_sample": False}

    def measure_step(self, unit_s: float) -> float:
        """Seconds of one more token, in units of the fit."""
        task = self.task
        payload = self.prepare(*task.taken(task.example, ""), self.example_parameters()).payload
        took = []
        with torch.inference_mode():
            for steps in (1, 1 + _STEPS):
                exact = {"min_new_tokens": steps, "do_sample": False}
                call = {**payload.call, "max_new_tokens": steps, "generate_kwargs": exact}
                took.append(self._best_s([replace(payload, call=call)]))
        self._step_units = max(0.0, took[1] - took[0]) / _STEPS / max(unit_s, 1e-9)
        return self._step_units

    def _best_s(self, batch: Sequence[Shapes]) -> float:
        times = []
        for _ in range(3):
            started = perf_counter()
            self.forward(batch)
            times.append(perf_counter() - started)
        return min(times)


def _without_images(value: Foreign) -> Foreign:
    """An answer's chat without the pictures that the client has sent."""
    if isinstance(value, dict):
        is_image = value.get("type") == "image"
        return {
            name: _without_images(part)
            for name, part in value.items()
            if not (is_image and name == "image")
        }
    if isinstance(value, list | tuple):
        return [_without_images(part) for part in value]
    return value
