"""The alerts: valid, tested, about metrics that exist, each with its runbook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from service.core.errors import ERRORS, OutcomeClass
from service.metrics import CATALOGUE
from tests.contract.expressions import faults
from tests.contract.grafana_board import PANELS
from tests.contract.rules import (
    FILES,
    FOLDER,
    RECORDED,
    TESTS,
    alerts,
    load,
    name_of,
    rules,
    run_tests,
)
from tests.promtool import promtool
from tests.tools import ROOT

PAPER = (ROOT / "docs/operations.md").read_text()
RUNBOOKS = "https://seawall.example.com/docs/operations.md#"

METRICS = {row.name for row in CATALOGUE}
ALL = rules()


# ---------------------------------------------------------------- Prometheus' own judgement


@pytest.mark.parametrize(
    "what, name", [("config", "prometheus.yml"), *(("rules", f) for f in FILES)]
)
def test_prometheus_takes_the_files(what: str, name: str) -> None:
    """The configuration and the rules are valid for a real Prometheus."""
    checked = promtool("check", what, name, cwd=FOLDER)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", TESTS)
def test_rules_pass_their_tests(name: str) -> None:
    """Each alert fires when it should and is silent when it should be."""
    code, output = run_tests(FOLDER, [name])
    assert code == 0, output


@pytest.mark.parametrize("name", TESTS)
def test_what_is_recorded_is_there_before_it_is_read(name: str) -> None:
    """A file of tests with long steps fixes the order of groups, else its result is chance."""
    content = load(name)
    assert content["rule_files"] == list(FILES)
    if content["evaluation_interval"] != "15s":
        order = [group["name"] for file in FILES for group in load(file)["groups"]]
        given = content.get("group_eval_order", [])
        assert given == order[: len(given)]
        budget = any(
            "seawall:" in ALL[one["alertname"]]["expr"]
            for case in content["tests"]
            for one in case.get("alert_rule_test", ())
        )
        assert "seawall-service" in given or not budget


# ---------------------------------------------------------------- metrics that exist


@pytest.mark.parametrize(
    "name", [name for name, rule in ALL.items() if "vector(" not in rule["expr"]]
)
def test_every_rule_asks_for_what_is_there(name: str) -> None:
    """Metrics, labels and values are the catalogue's; rates are of counters, and counters rated."""
    expr = ALL[name]["expr"]
    assert set(RECORDED.findall(expr)) <= set(ALL)
    # A recorded series is a gauge without labels of its own.
    assert faults(RECORDED.sub("seawall_ready", expr)) == []


def test_every_recorded_series_is_of_use() -> None:
    """What is recorded is read by a rule, or is what people look at."""
    read = {one for rule in ALL.values() for one in RECORDED.findall(rule["expr"])}
    recorded = {name for name, rule in ALL.items() if "record" in rule}
    assert recorded - read == {"seawall:error_budget:left"}


def test_shedding_is_what_refuses_for_load() -> None:
    """The shedding alert counts every code of class shed but draining, a rollout's own."""
    shed = {code for code, kind in ERRORS.items() if kind.outcome_class is OutcomeClass.SHED}
    (counted,) = re.findall(r'outcome=~"([^"]*)"', ALL["SeawallShedding"]["expr"])
    assert set(counted.split("|")) == shed - {"draining"}


def test_the_service_level_is_that_of_the_error_list() -> None:
    """Every window counts as bad what the error list calls bad, and all but clients' own ends."""
    classes = {one.value for one in OutcomeClass}
    for name, rule in ALL.items():
        window = re.search(r"increase(\w+)$", name)
        if "record" not in rule or window is None:
            continue
        (operator, value), (range_,) = (
            re.findall(r'outcome_class(=~|!~)"([^"]*)"', rule["expr"])[0],
            re.findall(r"\[(\w+)\]", rule["expr"]),
        )
        named = set(value.split("|"))
        counted = named if operator == "=~" else classes - named
        assert counted == ({"shed", "late", "server"} | ({"ok"} if "bad" not in name else set()))
        assert range_ == window[1]


def test_the_scrape_job_has_the_name_that_rules_use() -> None:
    """Rules match the job that the shipped configuration scrapes, and it loads them all."""
    config = load("prometheus.yml")
    (job,) = config["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("seawall", "/metrics")
    text = "".join((FOLDER / name).read_text() for name in FILES)
    assert set(re.findall(r'job="([^"]*)"', text)) == {"seawall"}
    assert config["rule_files"] == list(FILES)


# ---------------------------------------------------------------- what people read


def anchor(heading: str) -> str:
    """The link that a heading gets where Markdown is shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def runbooks() -> dict[str, str]:
    """The sections under Alerts."""
    body = PAPER.split("\n## Alerts\n", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", body, re.MULTILINE | re.DOTALL))


def test_every_alert_says_what_is_wrong_and_where_to_read_on() -> None:
    """Each alert has severity, summary, description and a runbook that exists."""
    for alert in alerts():
        name = name_of(alert)
        assert alert["labels"].keys() == {"severity"}
        assert alert["labels"]["severity"] in {"page", "ticket"} or name == "SeawallWatchdog"
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
        assert alert["annotations"]["runbook_url"] == RUNBOOKS + name.lower()
        assert name in runbooks()


def test_every_alert_says_where() -> None:
    """A summary names the replica if the alert is of one, else the service."""
    for alert in alerts():
        named = re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"])
        by = re.findall(r"\bby \(([^)]*)\)", alert["expr"])
        of_all = re.search(r"absent|seawall:", alert["expr"])
        of_one = "instance" in by[0] if by else not of_all
        expected = ["instance" if of_one else "job"]
        assert named == ([] if name_of(alert) == "SeawallWatchdog" else expected), name_of(alert)


def test_every_runbook_has_its_alert() -> None:
    """The sections under Alerts are the alerts, each with what it means and what to do and not."""
    assert list(runbooks()) == [name_of(alert) for alert in alerts()]
    for name, text in runbooks().items():
        for part in ("**What it means.**", "**Look at first**", "**Do.**", "**Do not**"):
            assert text.count(part) == 1, (name, part)


def test_the_table_of_alerts_is_the_rules() -> None:
    """The operations paper lists every alert with its severity and how long it must last."""
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| (\w+) \| (\S+) \| .+ \|$", PAPER, re.MULTILINE)
    assert rows == [
        (name, name.lower(), alert["labels"]["severity"], alert.get("for", "–"))
        for alert in alerts()
        for name in [name_of(alert)]
    ]


def test_the_objective_that_the_paper_names_is_the_recorded_one() -> None:
    """The service level in the operations paper is the one that the alerts go by."""
    objective = re.fullmatch(r"vector\(([\d.]+)\)", ALL["seawall:objective"]["expr"])
    assert objective is not None
    assert f"{float(objective[1]) * 100:g} %" in PAPER


def test_every_query_in_the_runbooks_can_be_asked(tmp_path: Path) -> None:
    """At three in the morning a query that is copied from a runbook works."""
    quoted = re.findall(r"`([^`\n]*\bseawall[_:][^`\n]*)`", "".join(runbooks().values()))
    queries = [one for one in quoted if not one.startswith("seawall ")]
    assert len(queries) > 20
    asked = [{"record": f"test:{n}", "expr": one} for n, one in enumerate(queries)]
    content = {"groups": [{"name": "runbooks", "rules": asked}]}
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump(content))
    checked = promtool("check", "rules", "queries.yaml", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for query in queries:
        if re.search(r"[({ ]", query):
            assert faults(RECORDED.sub("seawall_ready", query)) == [], query
        else:
            assert query in ALL or query in METRICS, query


def test_every_panel_that_the_runbooks_name_exists() -> None:
    """A panel in a runbook is one of the dashboard."""
    titles = {panel["title"] for panel in PANELS}
    named = re.findall(r"(?<!\*)\*([A-Z][^*\n]+)\*(?!\*)", "".join(runbooks().values()))
    assert len(named) > 10
    assert set(named) <= titles


def test_links_inside_the_paper_lead_somewhere() -> None:
    """Every link within the operations paper has its heading."""
    sections = {anchor(one) for one in re.findall(r"^#+ (.+)$", PAPER, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]*)\)", PAPER)) <= sections
