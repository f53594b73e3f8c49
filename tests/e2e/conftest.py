"""Servers that several tests share: a start with the real model costs seconds of every core."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2e.server import Server

PATIENT = ("--deadline-ms", "60000", "--max-wait-ms", "60000", "--watchdog-ms", "60000")
"""However slow the machine is, nobody is late, refused for the predicted wait, or taken for hung.

Of a flag that is given twice the last one holds.
"""

MEASURED = ("test_drain", "test_start")
"""Modules about what only a whole process does: there its coverage is measured as well."""


@pytest.fixture(scope="module", autouse=True)
def _measured(request: pytest.FixtureRequest) -> Iterator[None]:
    """Measure no coverage in the servers of other modules: it is a third of all they cost.

    What runs in them is measured where it is tested by itself, and in the server that is shared.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.node.path.stem not in MEASURED:
            for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def model_server() -> Iterator[Server]:
    """The packaged model behind a patient server that can rehearse faults and logs everything."""
    flags = ("--rehearsal", "--queue-limit", "1000", "--batch-ms", "1000", "--log-level", "debug")
    with Server(*PATIENT, *flags) as server:
        yield server


@pytest.fixture
def model(model_server: Server) -> Iterator[Server]:
    """The same, and after the test it is as healthy as before."""
    worker = model_server.worker_pid
    yield model_server
    model_server.healthy()
    assert model_server.worker_pid == worker
    assert model_server.breaker == "closed"
