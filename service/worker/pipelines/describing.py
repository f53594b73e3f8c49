"""image-text-to-text: a text with images, and then token by token.

Laws
- Prompt and answer together fit the model, as ``room`` says.
- Each input runs alone: what its images add to the text is the processor's own affair.
- A prompt in which marks and images differ in number is the client's to mend: the model would fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from transformers.utils.chat_template_utils import Chat

from service.worker.interface import Foreign, PreparedInput, Unsuitable
from service.worker.pipelines.pieces import Pieces
from service.worker.pipelines.room import new_tokens, step_units
from service.worker.pipelines.rows import Made
from service.worker.pipelines.shaped import Shaped


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
        pieces: Pieces[Made] = item.payload
        new = new_tokens(self.pipe.model, pieces.rows[0].tokens, self.max_tokens, pieces.call)
        units = item.units + round(new * self.step_units)
        fixed = replace(pieces, call={**pieces.call, "max_new_tokens": new})
        return PreparedInput(units, item.nbytes, fixed, f"{item.key};new={new}")

    def answer(self, pieces: Pieces[Made], outputs: list[Foreign]) -> Foreign:
        """The stock answer, less what the client has sent."""
        return _without_images(super().answer(pieces, outputs))

    # -- warming up ------------------------------------------------------------------------------

    def example_parameters(self) -> Mapping[str, Any]:
        """One new token, surely: the fit is about reading the prompt."""
        return {**self.task.example_parameters, "max_new_tokens": 1, "do_sample": False}

    def measure_step(self) -> float:
        """Seconds of one more token, in units of the fit."""
        task = self.task
        payload = self.prepare(*task.taken(task.example, ""), self.example_parameters()).payload

        def run(steps: int) -> None:
            exact = {"min_new_tokens": steps, "do_sample": False}
            call = {**payload.call, "max_new_tokens": steps, "generate_kwargs": exact}
            self.forward([replace(payload, call=call)])

        with torch.inference_mode():
            return step_units(run, self.cost_unit_s)


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
