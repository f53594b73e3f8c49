"""The committed dashboard, as tests read it."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.tools import ROOT

FOLDER = ROOT / "dashboards"
TEXT = (FOLDER / "seawall.json").read_text()
BOARD: dict[str, Any] = json.loads(TEXT)
ROWS: list[dict[str, Any]] = [one for one in BOARD["panels"] if one["type"] == "row"]
PANELS: list[dict[str, Any]] = [one for one in BOARD["panels"] if one["type"] != "row"]

EXPRESSIONS: dict[str, str] = {
    f"{panel['title']}/{target['refId']}": target["expr"]
    for panel in PANELS
    for target in panel["targets"]
}
"""The expression of every target, by the panel's title and the target's letter."""

MARKS: dict[str, str] = {
    mark["name"]: mark["target"]["expr"] for mark in BOARD["annotations"]["list"]
}
"""The expression of every mark."""


def filled(expr: str, *, job: str = "seawall", window: str = "1m", span: str = "1h") -> str:
    """An expression as Grafana sends it: every variable has its value."""
    values = {"job": job, "instance": ".+", "__rate_interval": window, "__range": span}
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)
