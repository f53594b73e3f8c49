"""Sped-up rules are the shipped ones but for their times."""

from __future__ import annotations

import re

import yaml

from tests.contract.rules import FILES, FOLDER, load
from tests.e2e.faster import DURATIONS, SECONDS, faster
from tests.tools import ROOT

ROUTING = (ROOT / "deploy/alertmanager/alertmanager.yml").read_text()


def test_every_duration_is_divided() -> None:
    """What lasts, goes on, looks back or waits does so for a sixtieth of its time."""
    rule = {
        "alert": "A", "for": "5m", "keep_firing_for": "1h",
        "expr": 'rate(a{b="5m"}[2m]) > 5 and sum_over_time(c:d1h[30d]) > 1',
    }  # fmt: skip
    given = {"groups": [{"name": "g", "interval": "1m", "rules": [rule]}], "group_wait": "0s"}
    [group] = faster(given, 60)["groups"]
    assert faster(given, 60)["group_wait"] == "0ms"
    assert group == {
        "name": "g",
        "interval": "1000ms",
        "rules": [
            {
                "alert": "A", "for": "5000ms", "keep_firing_for": "60000ms",
                "expr": 'rate(a{b="5m"}[2000ms]) > 5 and sum_over_time(c:d1h[43200000ms]) > 1',
            }
        ],
    }  # fmt: skip


def test_nothing_else_is_changed() -> None:
    """At a factor of one all files are what they were, and no duration is overlooked."""
    in_seconds = re.compile(r"\b(\d+)(ms|s|m|h|d)\b(?!\w)")

    def plain(text: str) -> str:
        return in_seconds.sub(lambda found: f"{int(found[1]) * SECONDS[found[2]]:g} s", text)

    for text in [*((FOLDER / name).read_text() for name in FILES), ROUTING]:
        data = yaml.safe_load(text)
        once = yaml.safe_dump(faster(data, 1), width=1e9)
        assert plain(once) == plain(yaml.safe_dump(data, width=1e9))


def test_every_key_that_holds_a_duration_is_known() -> None:
    """A value that reads as a duration stands under a key that is divided."""
    found = set()

    def look(data: object, key: str = "") -> None:
        if isinstance(data, dict):
            for name, value in data.items():
                look(value, name)
        elif isinstance(data, list):
            for value in data:
                look(value, key)
        elif isinstance(data, str) and re.fullmatch(r"\d+(ms|s|m|h|d)", data):
            found.add(key)

    for data in [*map(load, FILES), yaml.safe_load(ROUTING), load("prometheus.yml")]:
        look(data)
    assert found <= DURATIONS
    assert {"for", "group_wait", "scrape_interval"} <= found
