"""feature-extraction that can make one vector of a text's tokens: pooling.

Laws
- Without ``pooling`` the answer is the stock pipeline's, token by token.
- ``model`` does what the folder says in the files of sentence-transformers: the poolings that it
  names, then the length 1 where it says so. A folder that says nothing gets the mean, of length 1.
- What is longer than the folder's ``max_seq_length`` is refused under ``model``, as anything else
  that is too long: sentence-transformers would cut it without a word.
- A step that stands in the folder and is not known here is refused: leaving it out would give
  vectors that look right and fit nobody else's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from service.tasks import Task
from service.tasks.feature_extraction import AS_THE_MODEL, NO_POOLING
from service.worker.interface import CannotLoad, Foreign, PreparedInput, Unsuitable
from service.worker.pipelines.pieces import Pieces
from service.worker.pipelines.stock import Payload
from service.worker.pipelines.tasked import Tasked
from service.worker.wire import Facts, Load

_OURS = ("pooling", "normalize")
# As the configuration of sentence-transformers names them, in the order in which it joins them.
_NAMES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt",
    "pooling_mode_weightedmean_tokens": "weighted",
    "pooling_mode_lasttoken": "last",
}
_WORDS = {"cls": "cls", "max": "max", "mean": "mean", "mean_sqrt_len": "mean_sqrt",
          "mean_sqrt_len_tokens": "mean_sqrt", "weightedmean": "weighted",
          "lasttoken": "last"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pooling:
    """How the vectors of a text's tokens become one.

    Attributes:
        modes: each gives a vector; they are joined.
        normalize: whether the result has the length 1.
        known: whether every step of the folder is one that is known here.
        most_tokens: of a text, 0 where the folder names no limit beside the model's.
    """

    modes: tuple[str, ...] = ("mean",)
    normalize: bool = True
    known: bool = True
    most_tokens: int = 0


def pooling_of(folder: Path) -> Pooling:
    """What the folder says.

    Raises:
        CannotLoad: its files cannot be read.
    """
    if not (folder / "modules.json").is_file():
        return Pooling()
    steps = _read(folder / "modules.json")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise CannotLoad("model_broken", "The model's modules.json is no list of modules.")
    kinds = [str(step.get("type", "")).rpartition(".")[2] for step in steps]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        return Pooling(known=False)
    modes = _modes(_read(folder / str(steps[1].get("path", "")) / "config.json"))
    normalize = "Normalize" in kinds
    return Pooling(modes, normalize, known=bool(modes), most_tokens=_most_tokens(folder))


def _most_tokens(folder: Path) -> int:
    path = folder / "sentence_bert_config.json"
    config = _read(path) if path.is_file() else {}
    most = config.get("max_seq_length") if isinstance(config, dict) else None
    return most if type(most) is int and most > 0 else 0


def _modes(config: Foreign) -> tuple[str, ...]:
    if not isinstance(config, dict):
        raise CannotLoad("model_broken", "The model's pooling configuration is no JSON object.")
    word = config.get("pooling_mode")
    words = word if isinstance(word, list) else [] if word is None else [word]
    if words:
        modes = tuple(_WORDS.get(str(name), "") for name in words)
        return modes if all(modes) else ()
    named = {name for name, value in config.items() if value is True and name.startswith("pooling")}
    if not named <= _NAMES.keys():
        return ()
    return tuple(mode for name, mode in _NAMES.items() if name in named)


def _read(path: Path) -> Foreign:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CannotLoad("model_broken", "The model's pooling files cannot be read.") from error


def pooled(vectors: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    """One vector of a text's, which are of the shape (tokens, width)."""
    tokens = vectors.float()
    vector = torch.cat([_one(tokens, mode) for mode in pooling.modes])
    if pooling.normalize:
        vector = torch.nn.functional.normalize(vector, dim=0)
    return vector


def _one(tokens: torch.Tensor, mode: str) -> torch.Tensor:
    count = len(tokens)
    match mode:
        case "cls":
            return tokens[0]
        case "last":
            return tokens[-1]
        case "max":
            return tokens.amax(0)
        case "mean_sqrt":
            return tokens.sum(0).div(count**0.5)
        case "weighted":
            weights = torch.arange(1, count + 1, dtype=tokens.dtype, device=tokens.device)
            return (tokens * weights[:, None]).sum(0).div(weights.sum())
    return tokens.mean(0)


class Embedding(Tasked):
    """The stock pipeline, and what follows it where a client asks for one vector.

    Args:
        load: as it came in LOAD.
        task: its entry.
        pipe: the stock pipeline.
        folder: of the model.
    """

    def __init__(self, load: Load, task: Task, pipe: Foreign, *, folder: Path) -> None:
        super().__init__(load, task, pipe)
        self._model = pooling_of(folder)
        self._width = 0

    @property
    def facts(self) -> Facts:
        """With the width of a pooled vector."""
        return msgspec.structs.replace(super().facts, width=self._width)

    def learn(self, outputs: Foreign) -> None:
        """How wide it is."""
        super().learn(outputs)
        [first] = outputs[0]
        if self._model.known:
            self._width = int(first[0].shape[-1]) * len(self._model.modes)

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """The stock preprocess; the pooling goes with the item.

        Raises:
            Unsuitable: as stock, or the model's own pooling is not served.
        """
        pooling = self._asked(parameters)
        item = super().prepare(inputs, media, parameters)
        if pooling is None:
            return item
        pieces: Pieces[Payload] = item.payload
        rows = (replace(pieces.rows[0], post={"pooling": pooling}), *pieces.rows[1:])
        return replace(item, payload=replace(pieces, rows=rows))

    def most_tokens(self, parameters: Mapping[str, Any]) -> int:
        """The model's own vectors are those of texts as long as it was made for."""
        most = super().most_tokens(parameters)
        if parameters.get("pooling") == AS_THE_MODEL and self._model.most_tokens:
            return min(most, self._model.most_tokens)
        return most

    def stock_call(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Without what only this class knows."""
        return super().stock_call(
            {name: value for name, value in parameters.items() if name not in _OURS}
        )

    def _asked(self, parameters: Mapping[str, Any]) -> Pooling | None:
        name = parameters.get("pooling", NO_POOLING)
        if name == NO_POOLING:
            return None
        if name != AS_THE_MODEL:
            return Pooling((name,), normalize=parameters.get("normalize", False))
        if not self._model.known:
            raise Unsuitable(
                "this model's own pooling has a step that is not served; name one, for example "
                "'mean'",
                pointer="/parameters/pooling",
            )
        return replace(self._model, normalize=parameters.get("normalize", self._model.normalize))

    def answer(self, pieces: Pieces[Payload], outputs: list[Foreign]) -> Foreign:
        """The stock answer, or one vector."""
        pooling = pieces.rows[0].post.get("pooling")
        if pooling is None:
            return super().answer(pieces, outputs)
        return pooled(outputs[0][0][0], pooling).tolist()
