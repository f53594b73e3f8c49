"""What a server is set to: one variable of the environment, the same for all of them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Self

VARIABLE = "PEER_KNOBS"

USUAL_BATCH = 16
"""A usual figure of examples for batching servers; several of them leave it open."""

WAIT_MS = 10
"""For a batch to fill: the default of those that have one."""

TIMEOUT_S = 60
"""Longer than any answer takes: what is late is the client's to say."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """The settings of one server.

    Attributes:
        model: folder of the model.
        port: to listen on, of loopback.
        threads: of torch in each worker.
        workers: processes with a model each.
        batch: most texts in one batch.
        cap: most requests inside, 0 for what the server does by itself.
    """

    model: str
    port: int
    threads: int
    workers: int = 1
    batch: int = USUAL_BATCH
    cap: int = 0

    @classmethod
    def read(cls) -> Self:
        """The settings of this process."""
        return cls(**json.loads(os.environ[VARIABLE]))

    def variables(self) -> dict[str, str]:
        """Their place in the environment."""
        return {VARIABLE: json.dumps(asdict(self))}
