"""The stock pipeline and one real worker process, shared: each takes seconds to load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from service.worker.wire import Facts
from tests.worker.line import PACKAGED, Line, process


@pytest.fixture(scope="session")
def stock() -> Any:
    """The stock pipeline with the packaged model, as its users call it."""
    import torch
    from transformers import pipeline

    torch.set_num_threads(1)
    return pipeline("fill-mask", model=PACKAGED, device="cpu")


@pytest.fixture(scope="session")
def real() -> Iterator[tuple[Line, Facts]]:
    """A worker process that has loaded the packaged model and rehearses, and its facts."""
    with process() as worker:
        facts = worker.load(PACKAGED, "fill-mask", rehearsal=True)
        yield worker, facts
        worker.sock.close()
        assert worker.wait() == 0
        assert worker.output() == ""
