"""Check a dashboard against Grafana's JSON schemas (grafana-foundation-sdk, folder ``jsonschema``).

The schemas are not part of the repository; a developer who has them passes their folder. The check
is stricter than theirs: options, the custom part of fields and targets, which the dashboard's own
schema leaves open, are held to the schemas of their panel and of Prometheus, and units to the list
of units.

``ANY`` is how those schemas write "any value"; where Grafana puts words there (what a matcher
matches, the value of an override) it is read so.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ANY = {"type": "object", "additionalProperties": {}}
WORDS = (("MatcherConfig", "options"), ("DynamicConfigValue", "value"))

FILES = {
    "stat": "stat",
    "timeseries": "timeseries",
    "state-timeline": "statetimeline",
    "table": "table",
}
"""The schema's file of each kind of panel."""


def faults(board: dict[str, Any], folder: Path) -> list[str]:
    """What the schemas do not take, each with its place.

    Raises:
        ModuleNotFoundError: jsonschema is not installed.
        FileNotFoundError: a schema is not there.
    """
    found = [*_check(board, _opened(_load(folder, "dashboard")), "")]
    for number, panel in enumerate(board["panels"]):
        if panel["type"] != "row":
            found += _panel(panel, folder, f"panels.{number}")
    return found


def _opened(schema: dict[str, Any]) -> dict[str, Any]:
    for name, member in WORDS:
        place = schema["definitions"].get(name, {}).get("properties", {})
        if {key: place.get(member, {}).get(key) for key in ANY} == ANY:
            place[member] = {}
    return schema


def _panel(panel: dict[str, Any], folder: Path, place: str) -> Iterator[str]:
    own = _load(folder, FILES[panel["type"]])
    defaults = panel["fieldConfig"]["defaults"]
    yield from _check(panel["options"], _part(own, "Options"), f"{place}.options")
    if "custom" in defaults:
        yield from _check(defaults["custom"], _part(own, "FieldConfig"), f"{place}.custom")
    for number, target in enumerate(panel["targets"]):
        yield from _check(target, _load(folder, "prometheus"), f"{place}.targets.{number}")
    units = {one.get("const") for one in _load(folder, "units")["definitions"].values()}
    used = [defaults["unit"]]
    for override in panel["fieldConfig"]["overrides"]:
        for one in override["properties"]:
            used += [one["value"]] if one["id"] == "unit" else []
            if one["id"].startswith("custom."):
                custom = {one["id"].removeprefix("custom."): one["value"]}
                looser = _part(own, "FieldConfig", optional=True)
                yield from _check(custom, looser, f"{place}.overrides")
    yield from (f"{place}: {unit!r} is no unit" for unit in used if unit not in units)


def _part(schema: dict[str, Any], name: str, *, optional: bool = False) -> dict[str, Any]:
    definitions = schema["definitions"]
    part = definitions[name]
    if "$ref" in part:
        part = definitions[part["$ref"].rpartition("/")[2]]
    kept = {key: value for key, value in part.items() if not (optional and key == "required")}
    return {**kept, "definitions": definitions}


def _load(folder: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / f"{name}.jsonschema.json").read_text())
    return loaded


def _check(value: object, schema: dict[str, Any], place: str) -> Iterator[str]:
    jsonschema = importlib.import_module("jsonschema")
    for error in jsonschema.Draft7Validator(schema).iter_errors(value):
        # Of several forms that a value may have, the nearest one says what is wrong.
        one = jsonschema.exceptions.best_match([error])
        where = ".".join(map(str, (place, *one.absolute_path))).strip(".")
        yield f"{where}: {one.message}"
