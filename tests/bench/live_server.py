"""A real server with one thing changed, for comparisons that the product has no knob for.

``python -m tests.bench.live_server VARIANT [--SETTING VALUE]...``

=============  =====================================================================
variant        what differs from ``seawall serve``
=============  =====================================================================
fifo-32        batches are the 32 oldest items, whatever their lengths
speed=FACTOR   the estimator believes at start that the model takes FACTOR x as long
slowable       the synthetic device becomes slower at a signal (``live_worker``)
=============  =====================================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import service.app
import service.dispatcher.pool
from service.core.batching import Pick
from service.core.cost import Cost
from service.core.item import Item
from service.core.memory import padded_units
from service.server import serve
from service.settings import Settings, load_settings
from service.supervisor import worker_factory
from service.workers import WorkerFactory
from tests.tools import ROOT

WORKER = ROOT / "tests" / "bench" / "live_worker.py"
MOST_ITEMS = 32


def fifo_32(waiting: Sequence[Item], now: float, **_: Any) -> Pick:
    """The usual dynamic batch: the oldest, up to a fixed number."""
    chosen = [item for item in waiting[:MOST_ITEMS] if item.key == waiting[0].key]
    return Pick(tuple(chosen), (), padded_units(chosen))


def believe(factor: float) -> None:
    """Let every estimator begin with a wrong speed."""
    begin = Cost.__init__

    def wrong(self: Cost, *args: float, **named: float) -> None:
        begin(self, *args, **named)
        self.speed = factor

    setattr(Cost, "__init__", wrong)  # noqa: B010 - that is what is changed


def slowable(settings: Settings) -> WorkerFactory:
    """Workers whose device obeys signals."""
    return worker_factory(settings, (sys.executable, "-P", str(WORKER)))


def main(variant: str, flags: list[str]) -> int:
    """Serve; returns the exit code."""
    name, _, value = variant.partition("=")
    match name:
        case "fifo-32":
            setattr(service.dispatcher.pool, "pick", fifo_32)  # noqa: B010 - as above
        case "speed":
            believe(float(value))
        case "slowable":
            service.app._real_workers = slowable
        case _:
            raise SystemExit(f"no such variant: {variant}")
    return serve(load_settings(flags, os.environ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
