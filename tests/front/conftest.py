"""A server on a loopback socket, on either event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.front.http_served import Serve
from tests.front.http_stage import Served, Stage, serving


@pytest.fixture(params=["uvloop", "asyncio"])
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    """Starts a server with these settings, on either loop."""
    with ExitStack() as stack:

        def start(**settings: Any) -> tuple[Stage, Served]:
            stage = Stage(**settings)
            return stage, stack.enter_context(serving(stage, request.param))

        yield start
