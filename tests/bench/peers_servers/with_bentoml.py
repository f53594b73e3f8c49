"""BentoML: a service with a batchable method, whose batches it sizes by what it observes."""

from __future__ import annotations

from typing import Any

import bentoml  # type: ignore[import-not-found]

from tests.bench.peers_servers.knobs import TIMEOUT_S, Knobs
from tests.bench.peers_servers.model import Model

KNOBS = Knobs.read()
_CAP = {"max_concurrency": max(1, KNOBS.cap // KNOBS.workers)} if KNOBS.cap else {}


@bentoml.service(workers=KNOBS.workers, traffic={"timeout": TIMEOUT_S, **_CAP})
class FillMask:
    """One worker."""

    def __init__(self) -> None:
        self._model = Model(KNOBS)

    @bentoml.api(batchable=True, max_batch_size=KNOBS.batch)  # type: ignore[untyped-decorator]
    def fill(self, texts: list[str]) -> list[list[dict[str, Any]]]:
        """The answer to each text."""
        return self._model.answers(texts)
