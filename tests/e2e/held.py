"""A worker that is busy for exactly as long as a test wants.

What has to happen while a batch runs cannot be hurried: on a busy machine a batch of a second is
over before twenty requests have come. So the batch waits for the test, and not the test for a
moment. The server must be a ``faulty`` one, and its watchdog patient.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.e2e.faulty import flagged
from tests.e2e.faulty_worker import HELD
from tests.e2e.load import Answer, Call
from tests.e2e.server import Server

HELD_TEXT = f"a [MASK] {HELD}"


def hold(folder: Path) -> AbstractContextManager[None]:
    """A batch that holds :data:`HELD` is not done before the block ends."""
    return flagged(folder, "held")


@contextmanager
def busy(
    server: Server, folder: Path, holder: Call | None = None
) -> Iterator[Future[list[Answer]]]:
    """The worker runs a request that is not done before the block ends; its answer."""
    with hold(folder):
        held = server.send(holder or Call(HELD_TEXT))
        server.wait_running()
        yield held


def in_one_batch(server: Server, folder: Path, *calls: Call) -> list[Answer]:
    """Send requests of one input each while the worker is busy: they wait for it together."""
    with busy(server, folder) as held:
        sent = server.send(*calls)
        server.wait_depth(len(calls))
    assert held.result()[0].status == 200
    return sent.result()
