"""Modules stay small enough to be read at once, and are named after what they hold."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.tree import files
from tests.tools import ROOT

MOST_LINES = 300

DRAWERS = re.compile(r"(^|_)(utils?|helpers?|common|manag\w*|handlers?|misc|stuff)(_|\.|$)")
"""Names that say nothing, so that everything ends up there."""

PYTHON = [path for path in files() if path.suffix == ".py"]
CODE = [path for path in PYTHON if path.parts[0] in {"service", "deploy", "dashboards"}]


def length(path: Path) -> int:
    """How many lines a file has."""
    return (ROOT / path).read_text().count("\n")


def test_modules_are_small() -> None:
    """No module is longer than 300 lines."""
    assert not {str(path): length(path) for path in CODE if length(path) > MOST_LINES}


def test_no_drawers() -> None:
    """No module or folder bears a name that says nothing of what is in it."""
    assert not [str(path) for path in PYTHON if any(DRAWERS.search(part) for part in path.parts)]
