"""The model as every one of these servers holds it: the stock pipeline, called with a batch."""

from __future__ import annotations

from typing import Any

import torch
from transformers import pipeline

from tests.bench.peers_servers.knobs import Knobs

WARM_UP = ("one [MASK] text", "another [MASK] that is longer than the first")


class Model:
    """Loads and warms up."""

    def __init__(self, knobs: Knobs) -> None:
        torch.set_num_threads(knobs.threads)
        self._pipe = pipeline("fill-mask", model=knobs.model, device="cpu")
        for _ in range(3):
            self.answers(list(WARM_UP))

    def answers(self, texts: list[str]) -> list[Any]:
        """The answer to each text, all of them run as one batch."""
        found: list[Any] = self._pipe(texts, batch_size=len(texts))
        return found if len(texts) > 1 else [found]
