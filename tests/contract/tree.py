"""The files of the project: what git has or would take, without what tools leave behind."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tools import ROOT

LEFT_BY_TOOLS = {"__pycache__", "dist", "node_modules"}


@cache
def files() -> tuple[Path, ...]:
    """Every file of the project, relative to its top."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        paths = [Path(name) for name in listed.split("\0") if name]
    else:
        paths = [path.relative_to(ROOT) for path in ROOT.rglob("*") if not _is_left(path)]
    return tuple(sorted(path for path in paths if (ROOT / path).is_file()))


def _is_left(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    hidden = parts[0].startswith(".") and parts[0] not in {".ci", ".gitignore", ".editorconfig"}
    return hidden or not LEFT_BY_TOOLS.isdisjoint(parts)


def modules(*rooms: str) -> Iterator[tuple[str, ast.Module]]:
    """Path and syntax tree of every Python file under the named folders."""
    for path in files():
        if path.suffix == ".py" and path.parts[0] in rooms:
            yield str(path), ast.parse((ROOT / path).read_text())
