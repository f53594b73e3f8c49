"""The laws of the house: import-linter finds them kept, and finds each one when it is broken."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

from tests.contract.tree import modules
from tests.tools import ROOT

VALUE_TOOLS = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "functools", "heapq",
    "itertools", "math", "operator", "statistics", "types", "typing",
}  # fmt: skip
"""The standard library's value tools: what the core may import."""

SEEN_BY_THE_FRONT = {
    "service.worker",
    "service.worker.framing",
    "service.worker.rehearsal",
    "service.worker.wire",
}
"""What the front may import of the worker's room."""

CONTRACTS = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
}

BREACHES = [
    ("core-is-pure", "core/errors.py", "import time"),
    ("core-is-pure", "core/queue.py", "from service.metrics import Metrics"),
    ("core-is-pure", "core/cost.py", "import numpy"),
    ("front-knows-no-torch", "settings/model.py", "import torch"),
    ("front-knows-no-torch", "http/pages.py", "from transformers import pipeline"),
    ("front-knows-no-torch", "app.py", "from service.worker.runner import main"),
    ("protocol-not-supervisor", "http/gate.py", "import service.supervisor"),
    ("protocol-not-supervisor", "dispatcher/__init__.py", "from service import supervisor"),
    ("rooms", "metrics/catalogue.py", "import service.http"),
    ("rooms", "supervisor/__init__.py", "import service.dispatcher"),
    ("rooms", "drawer.py", '"""A module that has no room."""'),
]


def lint(folder: Path) -> str:
    """What import-linter says about the package in a folder; empty if nothing is broken."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_laws_are_kept() -> None:
    """The package keeps every law that import-linter checks."""
    assert lint(ROOT) == ""


@pytest.mark.parametrize("law,module,line", BREACHES)
def test_breach_is_found(law: str, module: str, line: str, tmp_path: Path) -> None:
    """A module that breaks a law is found, and the law is named."""
    shutil.copytree(
        ROOT / "service",
        tmp_path / "service",
        ignore=shutil.ignore_patterns("models", "__pycache__"),
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    broken = tmp_path / "service" / module
    before = broken.read_text() if broken.exists() else ""
    broken.write_text(f"{before}\n{line}\n")
    found = lint(tmp_path)
    named = " ".join(found.replace("\n", " ").split())
    assert f"{CONTRACTS[law]['name']} BROKEN" in named, found


def test_core_imports_value_tools_only() -> None:
    """The core imports the core and the standard library's value tools, nothing else."""
    found = {
        (path, name)
        for path, tree in modules("service")
        if path.startswith("service/core/")
        for node in ast.walk(tree)
        for name in imported(node)
        if name.split(".")[0] not in VALUE_TOOLS and not name.startswith("service.core")
    }
    assert not found


def imported(node: ast.AST) -> list[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "."]
    return []


def test_every_room_of_the_front_is_kept_from_torch() -> None:
    """The contract that keeps torch out names every room but the worker's."""
    rooms = {
        f"service.{Path(path).parts[1].removesuffix('.py')}" for path, _ in modules("service")
    } - {"service.__init__", "service.worker"}
    assert rooms <= {*CONTRACTS["front-knows-no-torch"]["source_modules"]}


def test_front_sees_little_of_the_worker() -> None:
    """Of the worker's room the front imports the wire and the rehearsed faults' names, no more."""
    graph = grimp.build_graph("service", cache_dir=None)
    seen = {
        target
        for module in graph.modules
        if not f"{module}.".startswith("service.worker.")
        for target in graph.find_modules_directly_imported_by(module)
        if f"{target}.".startswith("service.worker.")
    }
    assert seen <= SEEN_BY_THE_FRONT
