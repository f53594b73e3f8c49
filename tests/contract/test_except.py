"""Everything is caught only where that isolates, and each such place is named here."""

from __future__ import annotations

import ast

from tests.contract.tree import modules
from tests.tools import ROOT

ISOLATES = {
    ("service/http/access.py", "Access._serve"): "a bug of ours must not end the connection",
    ("service/http/door.py", "Door.refusal"): "a bug of ours becomes an answer further inside",
    ("service/worker/pipelines/folder.py", "_find_on_hub"): "the hub's client raises anything",
    ("service/worker/pictures.py", "open_image"): "a decoder may raise anything",
    ("service/worker/pipelines/stepped.py", "Stepped._owned"): "each device has a word for oom",
    ("service/worker/pipelines/gathering.py", "is_equal"): "foreign code is tried out",
    ("service/worker/pipelines/loading.py", "_named"): "foreign code loads the model",
    ("service/worker/pipelines/warmup.py", "tried"): "foreign code is tried at its limits",
    ("service/worker/preparer.py", "Preparer._answer"): "one item's fault stays its own",
    ("service/worker/preparer.py", "Preparer._resolve"): "handed to the model thread whole",
    ("service/worker/runner.py", "Runner._loaded"): "a failed load is told, whatever it raised",
    ("service/worker/runner.py", "Runner._self_test"): "a failed self-test is an answer",
    ("service/worker/runner.py", "Runner._run"): "a failed batch is told, whatever it raised",
    ("service/worker/runner.py", "Runner._probe"): "a failed canary is an answer",
}
"""Path and function of every place that catches everything, with the reason."""

EVERYTHING = {"Exception", "BaseException"}


class Catches(ast.NodeVisitor):
    """Collects the places of one module that catch everything: function and line."""

    def __init__(self) -> None:
        self.scope: list[str] = []
        self.found: list[tuple[str, int]] = []

    def visit_scope(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.scope.append(node.name)
        self.generic_visit(node)
        self.scope.pop()

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = visit_scope  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if any(kind is None or getattr(kind, "id", "") in EVERYTHING for kind in kinds):
            self.found.append((".".join(self.scope), node.lineno))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name == "suppress" and any(getattr(kind, "id", "") in EVERYTHING for kind in node.args):
            self.found.append((".".join(self.scope), node.lineno))
        self.generic_visit(node)


def places() -> dict[tuple[str, str], list[int]]:
    """Every place in the code that catches everything, with its lines."""
    found: dict[tuple[str, str], list[int]] = {}
    for path, tree in modules("service", "deploy"):
        catches = Catches()
        catches.visit(tree)
        for function, line in catches.found:
            found.setdefault((path, function), []).append(line)
    return found


def test_only_in_named_places() -> None:
    """Nothing catches everything but the places that are named here, and each of them does."""
    assert {*places()} == {*ISOLATES}


def test_each_says_why() -> None:
    """Where everything is caught a comment beside it says why."""
    silent = [
        f"{path}:{line}"
        for (path, _), lines in places().items()
        for line in lines
        if "#" not in "".join((ROOT / path).read_text().splitlines()[line - 2 : line + 1])
    ]
    assert not silent


def test_every_form_is_seen() -> None:
    """The search sees each way of catching everything, and none that names what it catches."""
    catches = Catches()
    catches.visit(
        ast.parse(
            "try: a\nexcept: b\n"
            "try: a\nexcept Exception: b\n"
            "try: a\nexcept (OSError, BaseException): b\n"
            "with suppress(Exception): a\n"
            "try: a\nexcept (OSError, ValueError): b\n"
        )
    )
    assert [line for _, line in catches.found] == [2, 4, 6, 7]
