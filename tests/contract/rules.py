"""The shipped rules, and what of their tests one rule needs.

A change of one rule is judged by the cases that name it, not by all of them: a case about another
alert would say nothing, and all of them for each change would take an hour.
"""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.promtool import promtool
from tests.tools import ROOT

FOLDER = ROOT / "deploy/prometheus"
FILES = ("rules.yaml", "alerts.yaml")
TESTS = sorted(path.name for path in FOLDER.glob("*.test.yaml"))

RECORDED = re.compile(r"\bseawall:[\w:]+")

Rule = dict[str, Any]


@cache
def load(name: str) -> Any:
    """A shipped file as data, not to be changed."""
    return yaml.safe_load((FOLDER / name).read_text())


def name_of(rule: Rule) -> str:
    """An alert's or a recorded series' name."""
    name: str = rule.get("alert") or rule["record"]
    return name


def groups() -> list[dict[str, Any]]:
    """Every group, those that record first."""
    return [group for file in FILES for group in load(file)["groups"]]


@cache
def rules() -> dict[str, Rule]:
    """Every rule by its name."""
    return {name_of(rule): rule for group in groups() for rule in group["rules"]}


def alerts() -> list[Rule]:
    """Every alert, in the order of the file."""
    return [rule for rule in rules().values() if "alert" in rule]


@cache
def needed(name: str) -> frozenset[str]:
    """A rule and every rule whose series it reads, directly or not."""
    found, open_ = set[str](), {name}
    while open_:
        one = open_.pop()
        found.add(one)
        open_ |= set(RECORDED.findall(rules()[one]["expr"])) - found
    return frozenset(found)


@cache
def judged_by(name: str) -> frozenset[str]:
    """The alerts whose cases tell whether a rule is right."""
    return frozenset(one for one in map(name_of, alerts()) if name in needed(one))


def _of_case(case: dict[str, Any], wanted: frozenset[str], series: str) -> dict[str, Any]:
    part = dict(case)
    part["alert_rule_test"] = [
        one for one in case.get("alert_rule_test", ()) if one["alertname"] in wanted
    ]
    part["promql_expr_test"] = [
        one for one in case.get("promql_expr_test", ()) if series in RECORDED.findall(one["expr"])
    ]
    return part


@cache
def cases(name: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Each file of tests that judges a rule, cut down to the cases that do."""
    found = []
    for file in TESTS:
        content = load(file)
        parts = [_of_case(case, judged_by(name), name) for case in content["tests"]]
        kept = [one for one in parts if one["alert_rule_test"] or one["promql_expr_test"]]
        if kept:
            found.append((file, {**content, "tests": kept}))
    return tuple(found)


@cache
def _written(name: str) -> tuple[tuple[str, str], ...]:
    return tuple((file, json.dumps(content)) for file, content in cases(name))


def write(folder: Path, name: str, changed: Rule | None = None) -> list[str]:
    """Write a rule, what it needs and what judges it; returns the names of the files of tests.

    Args:
        folder: where to.
        name: of the rule.
        changed: what to write in its place.
    """
    wanted = needed(name).union(*map(needed, judged_by(name)))
    for file in FILES:
        content = copy.deepcopy(load(file))
        for group in content["groups"]:
            group["rules"] = [
                changed if changed and name_of(rule) == name else rule
                for rule in group["rules"]
                if name_of(rule) in wanted
            ]
        content["groups"] = [group for group in content["groups"] if group["rules"]]
        (folder / file).write_text(json.dumps(content))  # JSON is YAML, and quick to write
    for file, text in _written(name):
        (folder / file).write_text(text)
    return [file for file, _ in _written(name)]


def run_tests(folder: Path, files: list[str]) -> tuple[int, str]:
    """Exit code and output of ``promtool test rules``, of one file after the other until one fails.

    One that fails is an answer, and those of a month take seconds each.
    """
    code, output = 0, ""
    for name in files:
        tested = promtool("test", "rules", name, cwd=folder)
        code, output = tested.returncode, output + (tested.stdout + tested.stderr).decode()
        if code:
            break
    return code, output
