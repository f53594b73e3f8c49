"""mosec: a worker behind a server in Rust, which gathers the batches.

The rest of its settings stand on its command line: ``--port``, ``--capacity``, ``--timeout``.
"""

from __future__ import annotations

from typing import Any

from mosec import Server, Worker  # type: ignore[import-not-found]

from tests.bench.peers_servers.knobs import WAIT_MS, Knobs
from tests.bench.peers_servers.model import Model


class FillMask(Worker):  # type: ignore[misc]
    """One worker."""

    def __init__(self) -> None:
        self._model = Model(Knobs.read())

    def forward(self, data: list[dict[str, str]]) -> list[Any]:
        return self._model.answers([one["text"] for one in data])


def main() -> None:
    """Serve."""
    knobs = Knobs.read()
    server = Server()
    server.append_worker(
        FillMask, num=knobs.workers, max_batch_size=knobs.batch, max_wait_time=WAIT_MS
    )
    server.run()


if __name__ == "__main__":
    main()
