"""Ray Serve: a deployment with a batched method."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

from tests.bench.peers_servers.knobs import WAIT_MS, Knobs
from tests.bench.peers_servers.model import Model

KNOBS = Knobs.read()
ONGOING = 2 * KNOBS.batch
"""In each replica: the batch that runs, and the next one."""

_WAITING = max(1, KNOBS.cap - KNOBS.workers * ONGOING)
_CAP = {"max_queued_requests": _WAITING} if KNOBS.cap else {}
OBJECT_STORE_BYTES = 200_000_000
"""Nothing of this goes through it; by default it takes a third of the memory."""


@serve.deployment(
    num_replicas=KNOBS.workers,
    max_ongoing_requests=ONGOING,
    ray_actor_options={"num_cpus": KNOBS.threads},
    **_CAP,
)
class FillMask:
    """One replica."""

    def __init__(self) -> None:
        self._model = Model(KNOBS)

    @serve.batch(max_batch_size=KNOBS.batch, batch_wait_timeout_s=WAIT_MS / 1000)  # type: ignore[untyped-decorator]
    async def answers(self, texts: list[str]) -> list[Any]:
        """Those of one batch."""
        return self._model.answers(texts)

    async def __call__(self, request: Request) -> Any:
        return await self.answers((await request.json())["text"])


def main() -> None:
    """Serve until it is told to end."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    ray.init(
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        num_cpus=max(os.cpu_count() or 1, KNOBS.workers * KNOBS.threads),
    )
    serve.start(http_options={"host": "127.0.0.1", "port": KNOBS.port})
    serve.run(FillMask.bind())  # type: ignore[attr-defined]
    told.wait()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
