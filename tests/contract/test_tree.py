"""What lies in the source tree, and what must not."""

from __future__ import annotations

import re

from tests.contract.tree import files
from tests.tools import ROOT

TOP = {
    "service", "tests", "deploy", "dashboards", "docs", ".ci",
    "pyproject.toml", "CHANGELOG.md", "README.md", "LICENSE", "Makefile",
    ".dockerignore", ".gitignore", ".editorconfig",
}  # fmt: skip
"""Every name at the top of the tree."""

LARGEST_BYTES = 40_000_000
"""A little over the weights of the packaged model, the largest file."""

WORD_PIECES = {"tokenizer.json", "vocab.txt"}
"""Lists of word pieces: any word may be in them."""

# The patterns below do not match themselves: that is what their brackets are for.
REGISTRY_HOSTS = re.compile(
    r"pypi[.]org|pythonhosted[.]org|download[.]pytorch|npmjs[.]|deb[.]debian|anaconda[.]org"
)

MACHINE_PATHS = re.compile(r"(?<![\w.\-/}$])/(wor[k]|roo[t]|tmp/de[v])/\w")
"""Paths of the machine that something was written on."""

LEFTOVERS = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X]|HAC[K])\b")


def texts() -> dict[str, str]:
    """Every file that is text, by its path."""
    found = {}
    for path in files():
        content = (ROOT / path).read_bytes()
        if path.name not in WORD_PIECES and b"\0" not in content:
            found[str(path)] = content.decode()
    return found


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """Every line of the tree in which a pattern occurs, with its place."""
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_top_level() -> None:
    """At the top of the tree lie the named files and folders, and nothing else."""
    assert {path.parts[0] for path in files()} == TOP


def test_no_machine_paths() -> None:
    """No file holds a path of the machine that it was written on."""
    assert not lines_with(MACHINE_PATHS)


def test_no_registry_hosts() -> None:
    """No file names a package registry's host: where packages come from is the user's choice."""
    assert not lines_with(REGISTRY_HOSTS)


def test_no_leftovers() -> None:
    """Nothing is left for later in a comment."""
    assert not lines_with(LEFTOVERS)


def test_layout_of_text() -> None:
    """Every text ends with one line break, and no line of it with a blank."""
    bad = [
        path
        for path, text in texts().items()
        if text
        and (not text.endswith("\n") or text.endswith("\n\n") or re.search(r"[ \t]\n", text))
    ]
    assert not bad


def test_no_large_files() -> None:
    """No file is larger than the weights of the packaged model."""
    assert not [path for path in files() if (ROOT / path).stat().st_size > LARGEST_BYTES]
