"""A real server whose worker processes obey a script.

``python -m tests.e2e.stubbed SCRIPT [--SETTING VALUE]...``; the scripts are those of
``tests/worker/stub_worker``. Everything else is as in ``seawall serve``.
"""

from __future__ import annotations

import os
import sys

import service.app
from service.server import serve
from service.settings import Settings, load_settings
from service.supervisor import worker_factory
from service.workers import WorkerFactory
from tests.tools import ROOT

STUB = ROOT / "tests" / "worker" / "stub_worker.py"


def main(script: str, flags: list[str]) -> int:
    """Serve; returns the exit code."""

    def stub_workers(settings: Settings) -> WorkerFactory:
        return worker_factory(settings, (sys.executable, "-P", str(STUB), script))

    service.app._real_workers = stub_workers
    return serve(load_settings(flags, os.environ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
