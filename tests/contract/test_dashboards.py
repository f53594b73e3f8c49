"""The dashboard asks for what is there, in a form that means something, and says what it means."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.__main__ import main
from dashboards.rows.traffic import CLASS_COLORS, CODES, SHED_COLORS, STAGE_COLORS
from dashboards.seawall import LEFT_OUT
from service.core.errors import ERRORS, OutcomeClass
from service.logs import EVENTS
from service.metrics import CATALOGUE
from service.metrics.catalogue import DROP_REASONS, TIMED_STAGES
from service.settings import Settings
from service.workers import Loss
from tests.contract.expressions import PARTS, SCRAPED, faults, grouped, selectors
from tests.contract.grafana_board import BOARD, EXPRESSIONS, FOLDER, MARKS, PANELS, TEXT, filled
from tests.contract.rules import alerts, rules
from tests.contract.test_alerts import anchor
from tests.contract.tree import modules
from tests.promtool import promtool
from tests.tools import ROOT

PAPER = (ROOT / "docs/operations.md").read_text()
TITLES = {panel["title"] for panel in PANELS}
EVERYTHING = {**EXPRESSIONS, **MARKS}

# ---------------------------------------------------------------- what is made


def test_the_committed_files_are_what_the_description_makes() -> None:
    """Dashboard and table are fresh; ``python -m dashboards`` writes them."""
    assert main(["--check"]) == 0


def test_the_text_is_canonical() -> None:
    """Sorted keys, two blanks, one line break at the end: a change shows as what it is."""
    again = json.dumps(json.loads(TEXT), indent=2, sort_keys=True, ensure_ascii=False)
    assert again + "\n" == TEXT


@pytest.mark.parametrize("name", ["seawall.json", "README.md"])
def test_a_stale_file_is_told_and_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that differs fails the check and is left alone by it; without it, it is made."""
    for one in ("seawall.json", "README.md"):
        shutil.copy(FOLDER / one, tmp_path)
    stale = tmp_path / name
    text = stale.read_text()
    stale.write_text(text.replace("Queue fill", "Queue full"))
    assert main(["--check"], tmp_path) == 1
    assert capsys.readouterr().out.split()[0] == name
    assert stale.read_text() != text
    assert main([], tmp_path) == 0
    assert stale.read_text() == text
    assert main(["--check"], tmp_path) == 0


def test_a_table_without_its_marks_is_not_guessed(tmp_path: Path) -> None:
    """A paper that has lost a mark is an error, not a paper without its table."""
    (tmp_path / "README.md").write_text("# Dashboards\n")
    with pytest.raises(ValueError, match="marks"):
        main([], tmp_path)


def test_it_is_made_with_nothing_but_python() -> None:
    """The description imports itself and Python's own modules."""
    for path, tree in modules("dashboards"):
        for node in ast.walk(tree):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in {"dashboards", *sys.stdlib_module_names}, path


# ---------------------------------------------------------------- what is asked


@pytest.mark.parametrize("expr", EVERYTHING.values(), ids=EVERYTHING)
def test_every_expression_asks_for_what_is_there(expr: str) -> None:
    """Metrics, labels and their values exist; rates are of counters, quantiles of buckets."""
    assert faults(expr) == []


def test_prometheus_parses_every_expression(tmp_path: Path) -> None:
    """A real Prometheus takes each expression."""
    rules = [
        {"record": f"seawall:test:{number}", "expr": filled(expr)}
        for number, expr in enumerate(EVERYTHING.values())
    ]
    (tmp_path / "rules.yaml").write_text(yaml.dump({"groups": [{"name": "all", "rules": rules}]}))
    checked = promtool("check", "rules", "rules.yaml", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules)} rules found".encode() in checked.stdout


@pytest.mark.parametrize("expr", EVERYTHING.values(), ids=EVERYTHING)
def test_every_selector_is_of_the_chosen_job_and_replicas(expr: str) -> None:
    """Nothing of another job or of a replica that was not chosen gets into a panel."""
    for one in selectors(expr):
        assert one.matchers[:2] == (("job", "=~", "$job"), ("instance", "=~", "$instance"))


@pytest.mark.parametrize("expr", EVERYTHING.values(), ids=EVERYTHING)
def test_ranges_follow_the_scrape_interval(expr: str) -> None:
    """A range is Grafana's for rates, or the whole time shown, never a number of minutes."""
    windows = {one.window for one in selectors(expr)} - {""}
    assert windows <= {"$__rate_interval", "$__range"}
    assert "$__range" not in windows or expr == EXPRESSIONS["What runs where/F"]


def test_every_metric_is_on_a_panel_or_left_out_with_a_reason() -> None:
    """No metric is forgotten, and none is both shown and excused."""
    shown = {one.name for expr in EXPRESSIONS.values() for one in selectors(expr)}
    shown |= {PARTS[name].name for name in shown & set(PARTS)}
    catalogue = {row.name for row in CATALOGUE}
    assert shown & catalogue == catalogue - set(LEFT_OUT)
    assert set(LEFT_OUT) <= catalogue
    assert all(len(reason) > 40 for reason in LEFT_OUT.values())


def legends(panel: dict[str, Any], target: dict[str, Any]) -> set[str]:
    """The labels that name a target's series."""
    if panel["type"] == "table":
        columns = {one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]}
        assert columns <= set(panel["transformations"][2]["options"]["renameByName"].values())
        return {"instance"}
    return set(re.findall(r"{{(\w+)}}", target["legendFormat"]))


def test_legends_tell_series_apart() -> None:
    """A query's series are named by exactly the labels that it groups by."""
    for panel in PANELS:
        for target in panel["targets"]:
            # The outermost group is what is left of the labels; inner ones end in it.
            outer = re.match(r"\(*(?:sum|max|min|count)(?: by \(([^)]*)\))?", target["expr"])
            left = set(re.split(r", ?", outer[1])) if outer and outer[1] else set()
            if panel["type"] != "table":
                assert legends(panel, target) == left, target["expr"]
                assert target["legendFormat"]
            else:
                assert legends(panel, target) <= left


def test_marks_name_what_they_group_by() -> None:
    """The text of a mark has the labels that its expression keeps."""
    for mark in BOARD["annotations"]["list"]:
        named = set(re.findall(r"{{(\w+)}}", mark["titleFormat"]))
        groups = grouped(mark["target"]["expr"])
        assert named == (groups[0] if groups else {"instance"})


def test_tiles_and_tables_ask_for_this_moment() -> None:
    """What a dead replica said last is not shown as if it were now; graphs ask for the range."""
    for panel in PANELS:
        at_once = panel["type"] in {"stat", "table"}
        for target in panel["targets"]:
            assert (target["instant"], target["range"]) == (at_once, not at_once)


# ---------------------------------------------------------------- what is drawn


def test_no_limit_is_a_number_where_a_metric_has_it() -> None:
    """Seconds, items and tokens have their limits from metrics; thresholds are of shares only."""
    for panel in PANELS:
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] == "timeseries" and defaults["unit"] != "percentunit":
            assert len(defaults["thresholds"]["steps"]) == 1, panel["title"]
    limits = {
        one.name
        for name, expr in EXPRESSIONS.items()
        if name.split("/")[0] in {"Latency of good answers", "Items waiting", "Waiting"}
        for one in selectors(expr)
    }
    wanted = {"seawall_deadline_seconds", "seawall_queue_limit", "seawall_wait_cap_seconds"}
    assert wanted <= limits


def values(thresholds: dict[str, Any]) -> list[float | None]:
    """Where each colour begins."""
    return [step["value"] for step in thresholds["steps"]]


def test_thresholds_are_those_of_the_alerts() -> None:
    """What turns red on the dashboard is what calls somebody."""
    shedding, filling, memory = (
        float(re.findall(r"> (0\.\d+)", rules()[f"Seawall{name}"]["expr"])[-1])
        for name in ("Shedding", "QueueFilling", "MemoryNearLimit")
    )
    tiles = {
        panel["title"]: values(one["value"])
        for panel in PANELS
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == "thresholds"
    }
    assert tiles["Answered badly"][-1] == shedding
    assert tiles["Queue fill"][1] == filling
    lines = {
        panel["title"]: values(panel["fieldConfig"]["defaults"]["thresholds"]) for panel in PANELS
    }
    assert lines["What refuses"][1] == filling
    assert lines["Memory against its limit"][-1] == memory


def test_each_class_has_its_color() -> None:
    """Every outcome class has a colour, no two the same, and every code that of its class."""
    assert set(CLASS_COLORS) == {one.value for one in OutcomeClass}
    assert len(set(CLASS_COLORS.values())) == len(CLASS_COLORS)
    by_stage = {"deadline_exceeded", "client_gone"}
    for one in OutcomeClass:
        codes = {code for code, kind in ERRORS.items() if kind.outcome_class is one} - by_stage
        assert set(CODES.get(one.value, ())) == codes
    assert set(SHED_COLORS) == set(CODES["shed"])
    assert all(color.endswith(CLASS_COLORS["shed"]) for color in SHED_COLORS.values())


def test_each_stage_has_its_color() -> None:
    """Every stage that is timed has a colour, no two the same."""
    assert set(STAGE_COLORS) == set(TIMED_STAGES)
    assert len(set(STAGE_COLORS.values())) == len(STAGE_COLORS)


# ---------------------------------------------------------------- what people read


def test_every_panel_leads_to_its_runbook() -> None:
    """Each panel links to a heading that exists, below an address that stands once."""
    start = "${docs:raw}/docs/operations.md"
    headings = {anchor(one) for one in re.findall(r"^#+ (.+)$", PAPER, re.MULTILINE)}
    for panel in PANELS:
        [link] = panel["links"]
        address, _, heading = link["url"].partition("#")
        assert address == start
        assert heading in headings, panel["title"]
    assert [link["url"] for link in BOARD["links"]] == [start]
    assert TEXT.count("https://") == len({"current.text", "current.value", "query"})
    [docs] = [one for one in BOARD["templating"]["list"] if one["name"] == "docs"]
    for alert in alerts():
        assert alert["annotations"]["runbook_url"].startswith(
            f"{docs['query']}/docs/operations.md#"
        )


def test_every_panel_says_what_it_means() -> None:
    """Question, meaning, first step and metrics, in whole sentences."""
    for panel in PANELS:
        question, meaning, first, metrics = panel["description"].split("\n\n")
        assert re.fullmatch(r"\*\*[A-Z].+\?\*\*", question), panel["title"]
        assert question.count("?") == 1, panel["title"]
        assert re.fullmatch(r"(?s).{40,}\.", meaning), panel["title"]
        assert re.fullmatch(r"\*\*Do first:\*\* .{20,}[.?]", first), panel["title"]
        named = [one.name for target in panel["targets"] for one in selectors(target["expr"])]
        assert metrics == f"Metrics: {', '.join(f'`{name}`' for name in dict.fromkeys(named))}"


def test_every_word_that_is_named_exists() -> None:
    """Other panels, settings, log events, codes and reasons in the texts are real ones."""
    words = {*Settings.model_fields, *EVENTS, *ERRORS, *DROP_REASONS, *(one.value for one in Loss)}
    words |= {"/readyz", "/errors/CODE"}
    texts = [panel["description"].split("\n\nMetrics:")[0] for panel in PANELS]
    texts += [f"**{reason}**" for reason in LEFT_OUT.values()]
    for text in texts:
        assert set(re.findall(r"`([^`]+)`", text)) <= words, text
        assert set(re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", text)) <= TITLES, text
        assert not re.search(r"(?<![`\w])[a-z]+[._][a-z_.]+[a-z](?!`)", text), text


def test_labels_of_variables_are_scraped_ones() -> None:
    """Job and replica are chosen by the labels that Prometheus adds, off metrics that exist."""
    asked = {one["name"]: one for one in BOARD["templating"]["list"] if one["type"] == "query"}
    assert set(asked) == SCRAPED
    for name, one in asked.items():
        expr, label = re.fullmatch(r"label_values\((.+), (\w+)\)", one["query"]).groups()  # type: ignore[union-attr]
        assert label == name
        assert faults(expr) == []
        assert one["refresh"] == 2  # when the time range changes, so that new replicas are there
