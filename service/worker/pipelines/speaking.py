"""text-to-audio: the stock call for one text after the other, its answer as a WAV.

Laws
- What a generating model may make counts in an input's cost, a token as much as four characters;
  a model that speaks the text in one go takes no parameters of generation.
- A model that makes spectrograms is refused: the stock pipeline would fetch a vocoder for it.
- An answer that holds a number that is none is the item's own failure, as everywhere.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from service.tasks import Task
from service.tasks.generation import DEFAULT_NEW_TOKENS
from service.worker.interface import Answer, Foreign, PreparedInput, Unsuitable
from service.worker.pipelines.whole import Call, Whole
from service.worker.sounds import write_wav
from service.worker.wire import Load


class Speaking(Whole):
    """A model that makes sound of a text."""

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        super().__init__(load, task, pipe)
        self._tokenizer = copy.deepcopy(pipe.tokenizer)  # the prepare thread's own
        self.step_units = 1.0 if pipe.model.can_generate() else 0.0

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """Take the input apart, and count what may be generated.

        Raises:
            Unsuitable: too long, nothing to say, or parameters that the model does not know.
        """
        item = super().prepare(inputs, media, parameters)
        if not len(self._tokenizer(inputs)["input_ids"]):
            raise Unsuitable("send a text of which the model's tokenizer leaves something")
        given = {name: value for name, value in parameters.items() if value is not None}
        if given and not self.step_units:
            name = next(iter(given))
            message = "leave it out; this model speaks the text in one go"
            raise Unsuitable(message, pointer=f"/parameters/{name}")
        call = {"generate_kwargs": given} if given else {}
        steps = given.get("max_new_tokens", self._default_new())
        units = item.units + round(steps * self.step_units)
        return replace(item, units=units, payload=Call(item.payload.value, call))

    def _default_new(self) -> int:
        config = getattr(self.pipe.model, "generation_config", None)
        named = getattr(config, "max_new_tokens", None) or getattr(config, "max_length", None)
        return named if isinstance(named, int) else DEFAULT_NEW_TOKENS

    def run(self, items: Sequence[PreparedInput]) -> list[Answer]:
        """The stock call for each, the sound as WAV."""
        return [_written(answer) for answer in super().run(items)]

    def warm_up(self) -> None:
        """As for any stock call; a step costs what was assumed."""
        super().warm_up()
        self._facts = msgspec.structs.replace(self.facts, step_units=self.step_units)


def _written(answer: Mapping[str, Any]) -> Answer:
    rate_hz = int(answer["sampling_rate"])
    sounds = answer["audio"] if isinstance(answer["audio"], list) else [answer["audio"]]
    if not all(np.isfinite(sound).all() for sound in sounds):
        return {"audio": math.nan, "sampling_rate": rate_hz}
    return {"audio": write_wav(np.concatenate(sounds, axis=-1), rate_hz), "sampling_rate": rate_hz}
