"""Modules stay small enough to be read at once, and are named after what they hold."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.tree import files
from tests.tools import ROOT

MOST_LINES = 300
MOST_TABLE_LINES = 340

TABLES = {"service/core/errors.py"}
"""Files that are one table; a row of it is four lines and cannot be shorter."""

DRAWERS = re.compile(r"(^|_)(utils?|helpers?|common|manag\w*|handlers?|misc|stuff)(_|\.|$)")
"""Names that say nothing, so that everything ends up there."""

PYTHON = [path for path in files() if path.suffix == ".py"]
CODE = [path for path in PYTHON if path.parts[0] in {"service", "deploy"}]


def length(path: Path) -> int:
    """How many lines a file has."""
    return (ROOT / path).read_text().count("\n")


def test_modules_are_small() -> None:
    """No module is longer than 300 lines, and the one table no longer than its rows need."""
    too_long = {
        str(path): length(path)
        for path in CODE
        if length(path) > (MOST_TABLE_LINES if str(path) in TABLES else MOST_LINES)
    }
    assert not too_long


def test_exceptions_are_needed() -> None:
    """Every file that is excused from the length is still longer than others may be."""
    assert all(length(Path(table)) > MOST_LINES for table in TABLES)


def test_no_drawers() -> None:
    """No module or folder bears a name that says nothing of what is in it."""
    assert not [str(path) for path in PYTHON if any(DRAWERS.search(part) for part in path.parts)]
