"""The dashboard's JSON has the form that Grafana reads: members, types, ids, places, variables.

Grafana's own schemas are not part of this repository (``python -m dashboards --schemas`` checks
against them where they are); this is what they demand of the members that are used here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dashboards.__main__ import main
from tests.contract import expressions
from tests.contract.expressions import PARTS, selectors
from tests.contract.grafana_board import BOARD, PANELS, ROWS

MOST_PANELS = 24
WIDTH = 24

Shape = Mapping[str, type | tuple[type, ...]]

NUMBER = (int, float)
WHOLE: Shape = {
    "annotations": dict, "description": str, "editable": bool, "fiscalYearStartMonth": int,
    "graphTooltip": int, "id": type(None), "links": list, "liveNow": bool, "panels": list,
    "refresh": str, "schemaVersion": int, "tags": list, "templating": dict, "time": dict,
    "timepicker": dict, "timezone": str, "title": str, "uid": str, "weekStart": str,
}  # fmt: skip
ROW: Shape = {
    "collapsed": bool, "gridPos": dict, "id": int, "panels": list, "title": str, "type": str,
}  # fmt: skip
PANEL: Shape = {
    "datasource": dict, "description": str, "fieldConfig": dict, "gridPos": dict, "id": int,
    "links": list, "options": dict, "targets": list, "title": str, "type": str,
}  # fmt: skip
SOME_PANELS: Shape = {"interval": str, "maxDataPoints": int, "transformations": list}
TARGET: Shape = {
    "datasource": dict, "editorMode": str, "exemplar": bool, "expr": str, "format": str,
    "instant": bool, "legendFormat": str, "range": bool, "refId": str,
}  # fmt: skip
LINK: Shape = {
    "asDropdown": bool, "icon": str, "includeVars": bool, "keepTime": bool, "tags": list,
    "targetBlank": bool, "title": str, "tooltip": str, "type": str, "url": str,
}  # fmt: skip
MARK: Shape = {
    "datasource": dict, "enable": bool, "hide": bool, "iconColor": str, "name": str,
    "target": dict, "titleFormat": str, "useValueForTime": bool,
}  # fmt: skip
DEFAULTS: Shape = {
    "color": dict, "mappings": list, "noValue": str, "thresholds": dict, "unit": str,
}  # fmt: skip
SOME_DEFAULTS: Shape = {"custom": dict, "min": NUMBER}
OPTIONS: Mapping[str, Shape] = {
    "stat": {
        "colorMode": str, "graphMode": str, "justifyMode": str, "orientation": str,
        "percentChangeColorMode": str, "reduceOptions": dict, "showPercentChange": bool,
        "textMode": str, "wideLayout": bool,
    },
    "timeseries": {"legend": dict, "tooltip": dict},
    "state-timeline": {
        "alignValue": str, "legend": dict, "mergeValues": bool, "rowHeight": NUMBER,
        "showValue": str, "tooltip": dict,
    },
    "table": {"cellHeight": str, "frameIndex": int, "showHeader": bool},
}  # fmt: skip
OVERRIDDEN = {
    "color", "custom.axisPlacement", "custom.drawStyle", "custom.fillOpacity", "custom.lineStyle",
    "custom.lineWidth", "custom.stacking", "custom.width", "mappings", "thresholds", "unit",
}  # fmt: skip


def check(value: dict[str, Any], shape: Shape, some: Shape | None = None) -> None:
    """A value has every member of the shape, those of ``some`` or not, and no other."""
    some = some or {}
    assert set(shape) <= set(value) <= {*shape, *some}
    for name, member in value.items():
        kind = shape.get(name) or some[name]
        assert isinstance(member, kind), name
        assert isinstance(member, bool) == (kind is bool), name


def test_the_whole_has_its_members() -> None:
    """The dashboard, its links and its marks have the members that Grafana reads."""
    check(BOARD, WHOLE)
    assert (BOARD["uid"], BOARD["title"], BOARD["schemaVersion"]) == ("seawall", "Seawall", 39)
    assert BOARD["editable"] is False
    for link in (*BOARD["links"], *(link for panel in PANELS for link in panel["links"])):
        check(link, LINK)
    for mark in BOARD["annotations"]["list"]:
        check(mark, MARK)
        check(mark["target"], {"expr": str, "interval": str, "refId": str})
    assert {mark["name"] for mark in BOARD["annotations"]["list"]} == {
        "Server started", "Worker lost", "Breaker",
    }  # fmt: skip


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panel_has_its_members(panel: dict[str, Any]) -> None:
    """A panel, its queries, options and fields have the members that Grafana reads."""
    check(panel, PANEL, SOME_PANELS)
    check(panel["options"], OPTIONS[panel["type"]])
    check(panel["fieldConfig"], {"defaults": dict, "overrides": list})
    check(panel["fieldConfig"]["defaults"], DEFAULTS, SOME_DEFAULTS)
    assert panel["fieldConfig"]["defaults"]["noValue"] in {"No replica", "No traffic"}
    for override in panel["fieldConfig"]["overrides"]:
        check(override, {"matcher": dict, "properties": list})
        check(override["matcher"], {"id": str, "options": str})
        assert {one["id"] for one in override["properties"]} <= OVERRIDDEN
    assert panel["targets"]
    for target in panel["targets"]:
        check(target, TARGET)
        assert target["format"] == ("table" if panel["type"] == "table" else "time_series")
    assert [target["refId"] for target in panel["targets"]] == [*"ABCDEF"][: len(panel["targets"])]


def names(panel: dict[str, Any]) -> set[str]:
    """Every name that a series or a column of a panel can have, those by replica left out."""
    found: set[str] = set()
    for step in panel.get("transformations", ()):
        found |= set(step["options"].get("renameByName", {}).values())
    for target in panel["targets"]:
        start, _, label = target["legendFormat"].partition("{{")
        values = {"": ("",), "instance": ()}.get(label.removesuffix("}}"))
        if values is None:
            rows = [
                expressions.ROWS.get(one.name) or PARTS[one.name]
                for one in selectors(target["expr"])
            ]
            values = next(dict(row.labels)[label.removesuffix("}}")] for row in rows)
            values = (*values, *re.findall(r'label_replace\(.*"(\w+)", "", ""\)', target["expr"]))
        found |= {start + value for value in values}
    return found


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_overrides_match_something(panel: dict[str, Any]) -> None:
    """What is set apart is a query that is there, or a name that a series or column can have."""
    letters = {target["refId"] for target in panel["targets"]}
    for override in panel["fieldConfig"]["overrides"]:
        how, which = override["matcher"]["id"], override["matcher"]["options"]
        if how == "byFrameRefID":
            assert which in letters
        elif how == "byRegexp":
            assert (which[0], which[-1]) == ("/", "/")
            assert any(re.search(which[1:-1], name) for name in names(panel)), which
        else:
            assert (how, which in names(panel)) == ("byName", True), which


def test_thresholds_rise_from_a_base() -> None:
    """Every list of colours begins with a base without a value and rises."""
    found = [panel["fieldConfig"]["defaults"]["thresholds"] for panel in PANELS]
    for panel in PANELS:
        for override in panel["fieldConfig"]["overrides"]:
            found += [o["value"] for o in override["properties"] if o["id"] == "thresholds"]
    for one in found:
        check(one, {"mode": str, "steps": list})
        base, *rest = one["steps"]
        assert base == {"color": "green", "value": None}
        values = [step["value"] for step in rest]
        assert values == sorted(set(values))
        assert all(step["color"] for step in rest)


# ---------------------------------------------------------------- places


def test_at_most_24_panels_in_five_rows() -> None:
    """The rows are the promised ones, all open, and no more panels than can be known by heart."""
    assert [row["title"] for row in ROWS] == [
        "Now",
        "Traffic and latency",
        "Queue and shedding",
        "Batches, model and breaker",
        "Replicas and process",
    ]
    for row in ROWS:
        check(row, ROW)
        assert (row["type"], row["collapsed"], row["panels"]) == ("row", False, [])
    assert 1 <= len(PANELS) <= MOST_PANELS


def test_ids_and_titles_are_unique() -> None:
    """No two panels share an id or a title: links and people go by them."""
    for name in ("id", "title"):
        found = [one[name] for one in BOARD["panels"]]
        assert len(set(found)) == len(found)


IDS = {
    10: "Now",
    20: "Traffic and latency",
    30: "Queue and shedding",
    40: "Batches, model and breaker",
    50: "Replicas and process",
    11: "Replicas", 12: "Good answers", 13: "Answered badly", 14: "Slowest good answers",
    15: "Queue fill",
    21: "How requests end", 22: "Why requests fail", 23: "Latency of good answers",
    24: "Where the time goes", 25: "At the door",
    31: "What refuses", 32: "Items waiting", 33: "Waiting",
    41: "Items per batch", 42: "Time of a batch", 43: "What the workers do",
    44: "Predicted against actual", 45: "Memory of a batch", 46: "Breaker",
    51: "Workers", 52: "Memory against its limit", 53: "CPU against its limit",
    54: "Event loop lag", 55: "What runs where",
}  # fmt: skip
"""Links of others lead to a panel by its id: it stays with its title, whatever comes between."""


def test_ids_stay() -> None:
    """A panel keeps its id."""
    assert {one["id"]: one["title"] for one in BOARD["panels"]} == IDS


def test_panels_neither_overlap_nor_leave_holes() -> None:
    """Every cell of the grid belongs to exactly one panel or row heading."""
    taken: dict[tuple[int, int], str] = {}
    for one in BOARD["panels"]:
        place = one["gridPos"]
        check(place, dict.fromkeys("hwxy", int))
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (one["title"], taken[x, y])
                taken[x, y] = one["title"]
    assert {x for x, _ in taken} == set(range(WIDTH))
    assert len(taken) == WIDTH * (1 + max(y for _, y in taken))


def test_panels_stand_below_their_row() -> None:
    """In the file and on the screen a row's panels come after it and before the next one."""
    tops = [row["gridPos"]["y"] for row in ROWS]
    assert tops == sorted(tops)
    places = [(one["gridPos"]["y"], one["gridPos"]["x"]) for one in BOARD["panels"]]
    assert places == sorted(places)
    for above, below in pairwise(BOARD["panels"]):
        assert not above["type"] == below["type"] == "row"


# ---------------------------------------------------------------- variables


def test_source_job_and_replica_are_chosen() -> None:
    """Nothing names a place: every query goes to the chosen source, and all replicas are shown."""
    variables = {one["name"]: one for one in BOARD["templating"]["list"]}
    assert [(name, one["type"]) for name, one in variables.items()] == [
        ("datasource", "datasource"), ("job", "query"), ("instance", "query"), ("docs", "constant"),
    ]  # fmt: skip
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["datasource"]["query"] == "prometheus"
    assert variables["instance"]["allValue"] == ".+"
    assert variables["instance"]["multi"]
    assert variables["instance"]["includeAll"]
    asked = [variables["job"], variables["instance"], *PANELS, *BOARD["annotations"]["list"]]
    asked += [target for panel in PANELS for target in panel["targets"]]
    assert all(one["datasource"] == source for one in asked)
    for one in variables.values():
        check(one["current"], {"text": (str, list), "value": (str, list)})


def test_schemas_need_their_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the package or the schemas, a developer is told what is missing."""
    with pytest.raises(SystemExit, match="2"):
        main(["--schemas", str(tmp_path)])
    assert "dashboard.jsonschema.json" in capsys.readouterr().err
    (tmp_path / "dashboard.jsonschema.json").write_text('{"definitions": {}}')
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(SystemExit, match="2"):
        main(["--schemas", str(tmp_path)])
    assert "pip install jsonschema" in capsys.readouterr().err
