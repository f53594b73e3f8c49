"""What holds for every test.

Properties are tried with the same examples in every run: a red test stays red. A log that a test
has set up ends with it, so that none inherits another's level or pipe.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from service.logs import setup

settings.register_profile("seawall", derandomize=True, deadline=None, database=None)
settings.load_profile("seawall")


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """Take back what a test has done to the log."""
    yield
    setup.shutdown()
    structlog.reset_defaults()
    setup._log.bound = structlog.get_logger()
