"""The changelog keeps the form of Keep a Changelog, one sentence a line."""

from __future__ import annotations

import re

from service import __version__
from tests.tools import ROOT

LINES = (ROOT / "CHANGELOG.md").read_text().splitlines()
VERSIONS = [line for line in LINES if line.startswith("## ")]
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_unreleased_comes_first() -> None:
    """The first section is always the one for what is not released yet."""
    assert LINES[0] == "# Changelog"
    assert VERSIONS[0] == "## [Unreleased]"


def test_releases_are_dated() -> None:
    """Every release has its version and its day, the present version first among them."""
    releases = VERSIONS[1:]
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", line) for line in releases)
    assert not releases or releases[0].startswith(f"## [{__version__}]")


def test_kinds_of_change() -> None:
    """Changes stand under the six fixed headings."""
    assert {line.removeprefix("### ") for line in LINES if line.startswith("### ")} <= KINDS


def test_one_sentence_a_line() -> None:
    """Every change is one line, a sentence with its full stop."""
    changes = LINES[LINES.index(VERSIONS[0]) :]
    changes = [line for line in changes if line and not line.startswith("#")]
    assert changes
    assert not [line for line in changes if not re.fullmatch(r"- .+[^.]\.", line)]
