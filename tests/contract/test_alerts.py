"""The alerts: valid, tested, able to fail, about metrics that exist, each with its runbook."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.core.errors import ERRORS, OutcomeClass
from service.metrics import CATALOGUE, Kind, Row
from tests.promtool import promtool
from tests.tools import ROOT

FOLDER = ROOT / "deploy/prometheus"
RULES = (FOLDER / "alerts.yaml").read_text()
PAPER = (ROOT / "docs/operations.md").read_text()
RUNBOOKS = "https://seawall.example.com/docs/operations.md#"

ROWS: dict[str, Row] = {row.name: row for row in CATALOGUE}
PARTS: dict[str, Row] = {
    row.name + suffix: row
    for row in CATALOGUE
    if row.kind is Kind.HISTOGRAM
    for suffix in ("_bucket", "_sum", "_count")
}

SELECTOR = re.compile(r"(seawall_\w+)(?:\{([^}]*)\})?(\[\w+\])?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


def alerts() -> list[dict[str, Any]]:
    """Every alert of the rules."""
    return [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]


def selectors() -> Iterator[tuple[str, str, str]]:
    """Metric, matchers and range of every selector in every alert."""
    for alert in alerts():
        yield from SELECTOR.findall(alert["expr"])


# ---------------------------------------------------------------- Prometheus' own judgement


@pytest.mark.parametrize("what, name", [("config", "prometheus.yml"), ("rules", "alerts.yaml")])
def test_prometheus_takes_the_files(what: str, name: str) -> None:
    """The configuration and the rules are valid for a real Prometheus."""
    checked = promtool("check", what, name, cwd=FOLDER)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def run_rule_tests(folder: Path) -> tuple[int, str]:
    """Exit code and output of the rules' own tests."""
    tested = promtool("test", "rules", "alerts.test.yaml", cwd=folder)
    return tested.returncode, (tested.stdout + tested.stderr).decode()


def test_rules_pass_their_tests() -> None:
    """Each alert fires when it should and is silent when it should be."""
    code, output = run_rule_tests(FOLDER)
    assert code == 0, output


FILLING, SHEDDING, NOBODY = (f"- alert: Seawall{name}" for name in (
    "QueueFilling", "Shedding", "NoReadyReplica",
))  # fmt: skip

MUTATIONS = [
    (FILLING, "> 0.7", "> 0.96"),
    (FILLING, "> 0.7", "> 0.35"),
    (FILLING, "for: 5m", "for: 4m"),
    (FILLING, "for: 5m", "for: 15m"),
    (FILLING, "keep_firing_for: 5m", "keep_firing_for: 1m"),
    (FILLING, "keep_firing_for: 5m", "keep_firing_for: 15m"),
    (FILLING, "rate(seawall_queue_fill_seconds_total[2m])", "seawall_queue_fill_ratio"),
    (FILLING, "severity: warning", "severity: page"),
    (SHEDDING, "> 0.05", "> 0.1"),
    (SHEDDING, "> 0.05", "> 0.01"),
    (SHEDDING, "for: 5m", "for: 4m"),
    (SHEDDING, "for: 5m", "for: 15m"),
    (SHEDDING, "keep_firing_for: 5m", "keep_firing_for: 1m"),
    (SHEDDING, "keep_firing_for: 5m", "keep_firing_for: 15m"),
    (SHEDDING, "queue_full|overloaded", "queue_full"),
    (SHEDDING, "queue_full|overloaded", "overloaded"),
    (SHEDDING, "queue_full|overloaded", "queue_full|overloaded|draining"),
    (SHEDDING, "client|gone", "gone"),
    (SHEDDING, "client|gone", "client"),
    (SHEDDING, "client|gone", "ok"),
    (NOBODY, 'or sum by (job) (up{job="seawall"}) == 0', ""),
    (NOBODY, "sum by (job) (seawall_ready) == 0\n            or ", ""),
    (NOBODY, "sum by (job) (seawall_ready)", "min by (job) (seawall_ready)"),
    (NOBODY, "sum by (job) (up", "min by (job) (up"),
    (NOBODY, "for: 1m", "for: 0s"),
    (NOBODY, "for: 1m", "for: 15m"),
]


@pytest.mark.parametrize("alert, old, new", MUTATIONS)
def test_a_changed_rule_fails_its_tests(alert: str, old: str, new: str, tmp_path: Path) -> None:
    """The rules' tests notice each threshold, time and matcher that is moved."""
    before, section = RULES.split(alert)
    assert old in section.split("- alert:")[0]
    (tmp_path / "alerts.yaml").write_text(before + alert + section.replace(old, new, 1))
    shutil.copy(FOLDER / "alerts.test.yaml", tmp_path)
    checked = promtool("check", "rules", "alerts.yaml", cwd=tmp_path)
    assert checked.returncode == 0, "the mutation must stay a valid rule"
    code, output = run_rule_tests(tmp_path)
    assert code != 0, output


# ---------------------------------------------------------------- metrics that exist


def test_every_metric_exists() -> None:
    """An alert asks for metrics of the catalogue, in a form that they have."""
    found = list(selectors())
    assert len(found) >= 4
    for name, _, _ in found:
        assert name in ROWS or name in PARTS
        assert not (name in ROWS and ROWS[name].kind is Kind.HISTOGRAM)


def test_rates_are_of_counters_and_counters_are_rated() -> None:
    """``rate`` is taken of counters and parts of histograms only, and of those always."""
    for alert in alerts():
        rated = set(re.findall(r"(?:rate|irate|increase)\((seawall_\w+)", alert["expr"]))
        for name, _, window in SELECTOR.findall(alert["expr"]):
            counts = name in PARTS or ROWS[name].kind is Kind.COUNTER
            assert (name in rated) == counts == bool(window), name


def test_every_matcher_can_match() -> None:
    """Labels in matchers exist, and each value that they name is there from the start."""
    for name, matchers, _ in selectors():
        labels = dict((ROWS.get(name) or PARTS[name]).labels)
        for label, operator, value in MATCHER.findall(matchers):
            wanted = value.split("|") if operator.endswith("~") else [value]
            assert set(wanted) <= set(labels[label]), (name, label)


def test_shedding_is_what_refuses_for_load() -> None:
    """The shedding alert counts every code of class shed but draining, a rollout's own."""
    (expr,) = (one["expr"] for one in alerts() if one["alert"] == "SeawallShedding")
    shed = {code for code, kind in ERRORS.items() if kind.outcome_class is OutcomeClass.SHED}
    (counted,) = re.findall(r'outcome=~"([^"]*)"', expr)
    assert set(counted.split("|")) == shed - {"draining"}


def test_the_scrape_job_has_the_name_that_rules_use() -> None:
    """Rules match the job that the shipped configuration scrapes."""
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("seawall", "/metrics")
    assert set(re.findall(r'job="([^"]*)"', RULES)) == {"seawall"}
    assert config["rule_files"] == ["alerts.yaml"]


# ---------------------------------------------------------------- what people read


def anchor(heading: str) -> str:
    """The link that a heading gets where Markdown is shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_alert_says_what_is_wrong_and_where_to_read_on() -> None:
    """Each alert has severity, summary, description and a runbook that exists."""
    sections = {anchor(one) for one in re.findall(r"^#+ (.+)$", PAPER, re.MULTILINE)}
    for alert in alerts():
        assert alert["labels"]["severity"] in {"page", "ticket", "warning"}
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
        assert alert["annotations"]["runbook_url"] == RUNBOOKS + alert["alert"].lower()
        assert alert["alert"].lower() in sections


def test_every_runbook_has_its_alert() -> None:
    """The sections under Alerts are the alerts, each with what it means and what to do and not."""
    body = PAPER.split("\n## Alerts\n", 1)[1].split("\n## ", 1)[0]
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", body, re.MULTILINE | re.DOTALL))
    assert list(sections) == [alert["alert"] for alert in alerts()]
    for name, text in sections.items():
        for part in ("**What it means.**", "**Look at first**", "**Do.**", "**Do not**"):
            assert part in text, (name, part)


def test_links_inside_the_paper_lead_somewhere() -> None:
    """Every link within the operations paper has its heading."""
    sections = {anchor(one) for one in re.findall(r"^#+ (.+)$", PAPER, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]*)\)", PAPER)) <= sections
