"""How series look: what all graphs share, and what sets one series apart."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_uppercase
from typing import Any

from dashboards.model import Column, Kind, Look, Panel, Query, Steps

FILL = {Look.LINE: 0, Look.AREA: 20, Look.STACK: 65, Look.BARS: 80, Look.LIMIT: 0}
"""Per cent of cover under a series."""

NARROW = 50
"""Pixels: the least of a column that has no width of its own."""

Property = dict[str, Any]


def graph_defaults(panel: Panel) -> dict[str, Any]:
    """What every series of a graph has."""
    made: dict[str, Any] = {
        "axisPlacement": "auto",
        "drawStyle": "line",
        "fillOpacity": FILL[Look.LINE],
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "none"},
        "thresholdsStyle": {"mode": "dashed" if panel.steps else "off"},
    }
    if panel.most is not None:
        made["axisSoftMax"] = panel.most
    return made


def looks(panel: Panel) -> list[dict[str, Any]]:
    """What sets series apart: by query, by family, by name, by column."""
    by_query = (
        _override("byFrameRefID", ref, _of_query(panel, query))
        for ref, query in zip(ascii_uppercase, panel.queries, strict=False)
    )
    by_family = (_override("byRegexp", name, [_family(c)]) for name, c in panel.families.items())
    by_name = (_override("byName", name, [_fixed(c)]) for name, c in panel.colors.items())
    by_column = (_override("byName", one.title, _of_column(one)) for one in panel.columns)
    every = (*by_query, *by_family, *by_name, *by_column)
    return [made for made in every if made["properties"]]


def _override(matcher: str, which: str, properties: list[Property]) -> dict[str, Any]:
    return {"matcher": {"id": matcher, "options": which}, "properties": properties}


def thresholds(steps: Steps) -> dict[str, Any]:
    """Colours from values on, over a green base."""
    base = {"color": "green", "value": None}
    rest = ({"color": color, "value": value} for value, color in steps)
    return {"mode": "absolute", "steps": [base, *rest]}


def mapping(words: Mapping[float, str], colors: Mapping[float, str]) -> dict[str, Any]:
    """Words in the place of values."""
    options: dict[str, dict[str, Any]] = {}
    for index, (value, word) in enumerate(words.items()):
        options[f"{value:g}"] = {"index": index, "text": word}
        if value in colors:
            options[f"{value:g}"]["color"] = colors[value]
    return {"options": options, "type": "value"}


def _fixed(color: str) -> Property:
    return {"id": "color", "value": {"fixedColor": color, "mode": "fixed"}}


def _family(color: str) -> Property:
    if color == "text":  # its shades can be too dark to be seen
        return _fixed(color)
    return {"id": "color", "value": {"fixedColor": color, "mode": "shades"}}


def _of_query(panel: Panel, query: Query) -> list[Property]:
    made: list[Property] = []
    if query.look is Look.LIMIT:
        made.append(_fixed("red"))
        made.append({"id": "custom.lineStyle", "value": {"dash": [10, 10], "fill": "dash"}})
    elif query.look is not Look.LINE:
        made.append({"id": "custom.fillOpacity", "value": FILL[query.look]})
    if query.look in {Look.STACK, Look.BARS}:
        stack = {"group": query.look.value, "mode": "normal"}
        made.append({"id": "custom.stacking", "value": stack})
        # A line round a layer of no height would lie on the one below as if it were its own.
        made.append({"id": "custom.lineWidth", "value": 0})
    if query.look is Look.BARS:
        made.append({"id": "custom.drawStyle", "value": "bars"})
    if query.color:
        made.append(_fixed(query.color))
    if query.right:
        made.append({"id": "unit", "value": query.right.value})
        made.append({"id": "custom.axisPlacement", "value": "right"})
    if query.steps and panel.kind is Kind.TILES:
        made.append({"id": "thresholds", "value": thresholds(query.steps)})
    return made


def _of_column(column: Column) -> list[Property]:
    made: list[Property] = []
    if column.unit:
        made.append({"id": "unit", "value": column.unit.value})
    if column.words:
        made.append({"id": "mappings", "value": [mapping(column.words, {})]})
    if column.width:
        made.append({"id": "custom.width", "value": column.width})
    return made
