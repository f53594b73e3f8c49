"""automatic-speech-recognition: a sound, in one piece or cut into pieces that overlap.

==============  =========================  ====================  ================================
model           hears                      may tell              batches
==============  =========================  ====================  ================================
CTC             as much as it is given     word, char            all rows; the frames of padding
                                                                 are cut off where it is proved
Whisper         windows of 30 s            true, word            its windows; alone: times of words,
                                                                 its language, a longer sound in one
other seq2seq   as much as it is given     nothing               rows of one shape
==============  =========================  ====================  ================================

Laws
- Every piece counts: its own length, and for a model that generates the tokens that it may make.
- What a model cannot do is refused by the parameter's name before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from service.tasks import Task
from service.tasks.generation import DEFAULT_NEW_TOKENS
from service.worker.interface import Foreign, PreparedInput, Unsuitable
from service.worker.pipelines.hearing import UNITS_A_SECOND
from service.worker.pipelines.pieces import Pieces, Row
from service.worker.pipelines.room import step_units
from service.worker.pipelines.stock import Payload
from service.worker.pipelines.tuning import Hearing, at
from service.worker.sounds import MAX_SOUND_S, Samples
from service.worker.wire import Load

_OF_GENERATION = ("max_new_tokens", "num_beams", "language", "task")
_OF_WHISPER = ("language", "task", "return_language")
_LONE = ("lang_id", "token_timestamps")
"""Outputs of a row that runs alone, of whatever form."""

_FIRST_TOKENS = 8
"""Room for what stands before the text: begin, language, task, timestamps."""


class Listening(Hearing):
    """A model that writes down speech."""

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        super().__init__(load, task, pipe)
        self.kind: str = pipe.type
        self.generates = not self.kind.startswith("ctc")
        self.whisper = self.kind == "seq2seq_whisper"

    def check(self, samples: Samples, call: Mapping[str, Any]) -> None:
        """Refuse parameters that are not this model's, and what is too long at once.

        Raises:
            Unsuitable: one of them, by its name.
        """
        config = getattr(self.pipe.model, "generation_config", None)
        for name in call:
            if name in _OF_GENERATION and not self.generates:
                raise _not(name, "leave it out; this model generates nothing")
            if name in _OF_WHISPER and not getattr(config, "lang_to_id", None):
                raise _not(name, "leave it out; this model knows one language and one task")
        self._check_times(call.get("return_timestamps"), config)
        self._check_tokens(call, config)
        seconds = len(samples) / self.rate_hz
        if "chunk_length_s" in call:
            most_s = self.max_tokens / UNITS_A_SECOND if self.max_tokens else call["chunk_length_s"]
            if call["chunk_length_s"] > most_s:
                raise _not("chunk_length_s", f"send a number from 1 to {most_s:g}")
        elif self.whisper and len(samples) > self.pipe.feature_extractor.n_samples:
            if not (call.get("return_timestamps") or getattr(config, "return_timestamps", False)):
                window_s = self.pipe.feature_extractor.chunk_length
                raise Unsuitable(
                    f"send a sound of at most {window_s} s, or chunk_length_s or "
                    "return_timestamps with it",
                    limit=window_s,
                )
        elif not self.windowed and self.max_tokens and seconds * UNITS_A_SECOND > self.max_tokens:
            most_s = self.max_tokens / UNITS_A_SECOND
            message = f"send a sound of at most {most_s:g} s, or chunk_length_s with it"
            raise Unsuitable(message, limit=int(most_s))

    def _check_times(self, asked: Any, config: Foreign) -> None:  # noqa: ANN401 - JSON
        if not asked:
            return
        may: tuple[Any, ...] = ("word", "char") if self.kind == "ctc" else ()
        if self.whisper and hasattr(config, "no_timestamps_token_id"):
            may = (True, "word") if getattr(config, "alignment_heads", None) else (True,)
        if asked not in may:
            known = ", ".join("true" if one is True else one for one in may)
            message = f"send {known}" if known else "leave it out; this model tells no times"
            raise _not("return_timestamps", message)

    def _check_tokens(self, call: Mapping[str, Any], config: Foreign) -> None:
        most = getattr(self.pipe.model.config, "max_target_positions", None)
        if "max_new_tokens" in call and most and call["max_new_tokens"] > most - _FIRST_TOKENS:
            raise _not("max_new_tokens", f"send an integer from 1 to {most - _FIRST_TOKENS}")
        if "language" not in call:
            return
        from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

        word = call["language"].lower()
        code = TO_LANGUAGE_CODE.get(word, word)
        if f"<|{code}|>" not in config.lang_to_id and word not in config.lang_to_id:
            raise _not("language", "send a language that the model knows, as 'en' or 'english'")

    def decided(self, item: PreparedInput) -> PreparedInput:
        """What may be generated for each piece counts."""
        pieces: Pieces[Payload] = item.payload
        steps = round(self._new(pieces.call) * self.step_units) if self.generates else 0
        units = pieces.units + len(pieces.rows) * steps
        return PreparedInput(units, item.nbytes, pieces, item.key)

    def _new(self, call: Mapping[str, Any]) -> int:
        config = self.pipe.model.generation_config
        given = (call.get("max_new_tokens"), config.max_new_tokens, config.max_length)
        return next((int(named) for named in given if named), DEFAULT_NEW_TOKENS)

    # -- running ---------------------------------------------------------------------------------

    def groups(self, items: Sequence[Pieces[Payload]]) -> Iterator[list[Row[Payload]]]:
        """As any sound; what the stock pipeline does for one row only runs alone."""
        for group in super().groups(items):
            if self._is_lone(items[0].call) or self._is_long(group[0].payload):
                yield from ([row] for row in group)
            else:
                yield group

    def _is_lone(self, call: Mapping[str, Any]) -> bool:
        """The library takes the language of the first row for all, and the times of words fail."""
        words = call.get("return_timestamps") == "word"
        return self.whisper and bool(call.get("return_language") or words)

    def _is_long(self, row: Payload) -> bool:
        return self.whisper and row.length > self.max_tokens > 0

    def apart(self, outputs: Foreign, rows: Sequence[Payload]) -> list[Foreign]:
        """What the stock forward would have given for each row alone; frames of padding cut off.

        Raises:
            Mismatch: the model gave another number of rows.
        """
        lone = {name: outputs[name][:1] for name in _LONE if name in outputs}
        shared = {name: value for name, value in outputs.items() if name not in lone}
        owned = [{**own, **lone} for own in super().apart(shared, rows)]
        for own, row in zip(owned, rows, strict=True):
            if self.padding and (frames := self.frames(row)) is not None:
                own["tokens"] = own["tokens"][:, :frames]
        return owned

    # -- warming up ------------------------------------------------------------------------------

    def most(self, example: PreparedInput) -> int:
        """A sound of the greatest length, in pieces that overlap by half."""
        whole = 2 * MAX_SOUND_S * UNITS_A_SECOND
        pieces = -(-whole // max(1, self.max_tokens)) if self.generates else 0
        return int(whole + pieces * (example.units - example.payload.units))

    def fitted(self, pieces: Pieces[Payload]) -> Pieces[Payload]:
        """An input of the fit: one token, so that it is about hearing."""
        return at(pieces, max_new_tokens=1) if self.generates else pieces

    def measure_step(self) -> float:
        """Seconds of one more token, in units of the fit."""
        if not self.generates:
            return 0.0
        pieces = self._of(1, {})

        def run(steps: int) -> None:
            self.forward([at(pieces, max_new_tokens=steps, min_new_tokens=steps)])

        with torch.inference_mode():
            return step_units(run, self.cost_unit_s)


def _not(name: str, message: str) -> Unsuitable:
    return Unsuitable(message, pointer=f"/parameters/{name}")
