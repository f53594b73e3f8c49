"""A real server whose worker processes obey a script.

``python -m tests.e2e.stubbed SCRIPT [--SETTING VALUE]...``; the scripts are those of
``tests/worker/stub_worker``. Everything else is as in ``seawall serve``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import service.app
from service.server import serve
from service.settings import Settings, load_settings
from service.supervisor import worker_factory
from service.workers import WorkerFactory
from tests.tools import ROOT

STUB = ROOT / "tests" / "worker" / "stub_worker.py"


def serve_with(worker: Path, argument: str, flags: list[str]) -> int:
    """Serve with another worker program; returns the exit code."""

    def other_workers(settings: Settings) -> WorkerFactory:
        return worker_factory(settings, (sys.executable, "-P", str(worker), argument))

    service.app._real_workers = other_workers
    return serve(load_settings(flags, os.environ))


if __name__ == "__main__":
    sys.exit(serve_with(STUB, sys.argv[1], sys.argv[2:]))
