"""A real server whose model fails as real models do (``faulty_worker``).

``python -m tests.e2e.faulty FOLDER [--SETTING VALUE]...``. Everything else is as in
``seawall serve``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from service.core.memory import MemoryBudget
from tests.e2e.stubbed import serve_with
from tests.tools import ROOT

WORKER = ROOT / "tests" / "e2e" / "faulty_worker.py"


def faulty(folder: Path, *flags: str) -> tuple[str, ...]:
    """The command of such a server with one worker; ``folder`` is where its faults stand."""
    return (
        sys.executable, "-m", "tests.e2e.faulty", str(folder), "--bind", "127.0.0.1:0",
        "--log-format", "json", "--workers", "1", *flags,
    )  # fmt: skip


@contextmanager
def flagged(folder: Path, name: str) -> Iterator[None]:
    """The file of that name, which the worker looks for, is there meanwhile."""
    flag = folder / name
    flag.touch()
    try:
        yield
    finally:
        flag.unlink()


def broken(folder: Path) -> AbstractContextManager[None]:
    """The model is broken meanwhile."""
    return flagged(folder, "broken")


@contextmanager
def ceiling(folder: Path, padded: int) -> Iterator[None]:
    """The memory holds batches of so many padded units meanwhile."""
    flag, new = folder / "ceiling", folder / "new"
    new.write_text(str(padded))
    new.rename(flag)  # whole at once: the model may look at any time
    try:
        yield
    finally:
        flag.unlink()


def know(folder: Path, padded: int) -> None:
    """A server that starts then makes no batch of more padded units, from the first one on."""
    (folder / "known").write_text(str(padded))


def _bounded(folder: Path) -> None:
    known = folder / "known"
    if not known.exists():
        return
    most, limit = int(known.read_text()), MemoryBudget.limit

    def fitting(budget: MemoryBudget, maximum: float) -> float:
        return limit(budget, min(most, maximum))

    setattr(MemoryBudget, "limit", fitting)  # noqa: B010 - an oracle in place of what is learned


if __name__ == "__main__":
    _bounded(Path(sys.argv[1]))
    sys.exit(serve_with(WORKER, sys.argv[1], sys.argv[2:]))
