"""From the description to the JSON that Grafana reads.

Laws
- The text is canonical: keys sorted, two blanks of indent, one line break at the end; ids and the
  order of panels come from the description alone.
- Data source, job and instance are chosen in the dashboard; nothing names a place.
- Every member is written that Grafana's schema demands, none that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from string import ascii_uppercase
from typing import Any

from dashboards.model import Dashboard, Kind, Panel, Query, Row
from dashboards.promql import metrics, scoped
from dashboards.style import NARROW, graph_defaults, looks, mapping, thresholds

SCHEMA_VERSION = 39
"""Grafana 10.4; later ones bring it up to date when they load it."""

WIDTH = 24
"""Grid units from left to right."""

DOCS = "https://seawall.example.com"
"""Where the repository's docs can be read; the same constant as in the alerts."""

SOURCE = {"type": "prometheus", "uid": "${datasource}"}

TILE_POINTS = 2000
"""Tiles ask with a fine step, so that a rate is of the last minutes in a range of a day too."""

OPTIONS: dict[Kind, dict[str, Any]] = {
    Kind.TILES: {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showPercentChange": False,
        "wideLayout": True,
    },
    Kind.LINES: {
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"hideZeros": True, "mode": "multi", "sort": "desc"},
    },
    Kind.STATES: {
        "alignValue": "left",
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": False},
        "mergeValues": True,
        "rowHeight": 0.9,
        "showValue": "auto",
        "tooltip": {"mode": "single", "sort": "none"},
    },
    Kind.TABLE: {"cellHeight": "sm", "frameIndex": 0, "showHeader": True},
}


def text(dashboard: Dashboard) -> str:
    """The dashboard in canonical form."""
    return json.dumps(build(dashboard), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def build(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana's model."""
    return {
        "annotations": {"list": list(_marks(dashboard))},
        "description": dashboard.description,
        "editable": False,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "id": None,
        "links": [_link("Operations", "", "What each alert means and what to do")],
        "liveNow": False,
        "panels": list(_rows(dashboard.rows)),
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["seawall"],
        "templating": {"list": _variables()},
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": dashboard.title,
        "uid": dashboard.uid,
        "weekStart": "",
    }


def _rows(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    top = 0
    for row in rows:
        place = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        yield {
            "collapsed": False, "gridPos": place, "id": row.id, "panels": [], "title": row.title,
            "type": "row",
        }  # fmt: skip
        top, left = top + 1, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top, left = top + row.height, 0
            yield _panel(panel, {"h": row.height, "w": panel.width, "x": left, "y": top})
            left += panel.width
        top += row.height


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "datasource": SOURCE,
        "description": description(panel),
        "fieldConfig": {"defaults": _defaults(panel), "overrides": looks(panel)},
        "gridPos": place,
        "id": panel.id,
        "links": [_link("Read on", f"#{panel.runbook}", panel.question)],
        "options": dict(OPTIONS[panel.kind]),
        "targets": [
            _target(panel, ref, query)
            for ref, query in zip(ascii_uppercase, panel.queries, strict=False)
        ],
        "title": panel.title,
        "type": panel.kind.value,
    }
    if panel.interval:
        made["interval"] = panel.interval
    if panel.kind is Kind.TILES:
        made["maxDataPoints"] = TILE_POINTS
        made["options"]["textMode"] = "value_and_name" if len(panel.queries) > 1 else "value"
    if panel.kind is Kind.TABLE:
        made["transformations"] = _columns(panel)
    return made


def description(panel: Panel) -> str:
    """What is shown when somebody asks what a panel is."""
    named = dict.fromkeys(name for query in panel.queries for name in metrics(query.expr))
    return (
        f"**{panel.question}**\n\n{panel.moves}\n\n**Do first:** {panel.first}\n\n"
        f"Metrics: {', '.join(f'`{name}`' for name in named)}"
    )


def _target(panel: Panel, ref: str, query: Query) -> dict[str, Any]:
    at_once = panel.kind in {Kind.TILES, Kind.TABLE}
    return {
        "datasource": SOURCE,
        "editorMode": "code",
        "exemplar": query.exemplars,
        "expr": scoped(query.expr),
        "format": "table" if panel.kind is Kind.TABLE else "time_series",
        "instant": at_once,
        "legendFormat": query.legend,
        "range": not at_once,
        "refId": ref,
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    mode = "palette-classic" if panel.kind is Kind.LINES else "thresholds"
    made: dict[str, Any] = {
        "color": {"mode": mode},
        "mappings": [],
        "noValue": panel.empty,
        "thresholds": thresholds(panel.steps),
        "unit": panel.unit.value,
    }
    if panel.kind is Kind.LINES:
        made |= {"custom": graph_defaults(panel), "min": 0}
    elif panel.kind is Kind.STATES:
        made["custom"] = {"fillOpacity": 70, "lineWidth": 0, "spanNulls": False}
        words = {value: word for value, (word, _) in panel.words.items()}
        colors = {value: color for value, (_, color) in panel.words.items()}
        made["mappings"] = [mapping(words, colors)]
    elif panel.kind is Kind.TABLE:
        made["custom"] = {"align": "auto", "inspect": False, "minWidth": NARROW}
    return made


def _columns(panel: Panel) -> list[dict[str, Any]]:
    sources = [column.source for column in panel.columns]
    pattern = f"^({'|'.join(sources)})$"
    names = {column.source: column.title for column in panel.columns}
    order = {source: index for index, source in enumerate(sources)}
    return [
        {"id": "joinByField", "options": {"byField": "instance", "mode": "outer"}},
        {"id": "filterFieldsByName", "options": {"include": {"pattern": pattern}}},
        {
            "id": "organize",
            "options": {"excludeByName": {}, "indexByName": order, "renameByName": names},
        },
    ]


def _link(title: str, anchor: str, tooltip: str) -> dict[str, Any]:
    return {
        "asDropdown": False,
        "icon": "doc",
        "includeVars": False,
        "keepTime": False,
        "tags": [],
        "targetBlank": True,
        "title": title,
        "tooltip": tooltip,
        "type": "link",
        "url": f"${{docs:raw}}/docs/operations.md{anchor}",
    }


def _marks(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    for mark in dashboard.marks:
        yield {
            "datasource": SOURCE,
            "enable": True,
            "hide": False,
            "iconColor": mark.color,
            "name": mark.name,
            "target": {"expr": scoped(mark.expr), "interval": "", "refId": "Anno"},
            "titleFormat": mark.title,
            "useValueForTime": mark.at_value,
        }


def _variables() -> list[dict[str, Any]]:
    jobs = "label_values(seawall_build_info, job)"
    instances = 'label_values(up{job=~"$job"}, instance)'
    asked = {"datasource": SOURCE, "hide": 0, "refresh": 2, "regex": "", "sort": 1, "type": "query"}
    return [
        {
            "current": {"text": "default", "value": "default"},
            "hide": 0, "includeAll": False, "label": "Data source", "multi": False,
            "name": "datasource", "query": "prometheus", "refresh": 1, "regex": "",
            "type": "datasource",
        },
        asked | {
            "current": {"text": "seawall", "value": "seawall"},
            "definition": jobs, "includeAll": False, "label": "Job", "multi": False,
            "name": "job", "query": jobs,
        },
        asked | {
            "allValue": ".+",
            "current": {"text": ["All"], "value": ["$__all"]},
            "definition": instances, "includeAll": True, "label": "Replica", "multi": True,
            "name": "instance", "query": instances,
        },
        {
            "current": {"text": DOCS, "value": DOCS},
            "description": "Where the repository's docs can be read",
            "hide": 2, "label": "Docs", "name": "docs", "query": DOCS, "type": "constant",
        },
    ]  # fmt: skip
