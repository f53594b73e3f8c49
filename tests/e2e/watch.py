"""What a prober and a scraper see while something else goes on."""

from __future__ import annotations

import threading
import time
from typing import Self

from tests.e2e.server import Server


class Watch:
    """Asks ``/livez`` and ``/metrics`` again and again while its block runs.

    Attributes:
        lives: every status of ``/livez``.
        slowest_s: how long the slowest of them took.
        depths: every depth of the queue that was seen.
    """

    def __init__(self, server: Server) -> None:
        self.lives: list[int] = []
        self.slowest_s = 0.0
        self.depths: list[float] = []
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        while not self._over.is_set():
            before = time.monotonic()
            self.lives.append(self._server.get("/livez").status_code)
            self.slowest_s = max(self.slowest_s, time.monotonic() - before)
            self.depths.append(self._server.metric("seawall_queue_depth"))
            self._over.wait(0.05)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
