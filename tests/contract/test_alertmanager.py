"""The routing: valid, whole, and about alerts that exist."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from tests.contract.rules import Rule, alerts, name_of
from tests.tools import ROOT, require_tool

FILE = ROOT / "deploy/alertmanager/alertmanager.yml"
CONFIG: dict[str, Any] = yaml.safe_load(FILE.read_text())
NAMES = {name_of(alert) for alert in alerts()}

MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


def amtool(*args: str) -> str:
    """What amtool says; it must succeed."""
    done = subprocess.run(
        [require_tool("amtool"), *args], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_alertmanager_takes_the_file() -> None:
    """The configuration is valid for a real Alertmanager."""
    assert "SUCCESS" in amtool("check-config", str(FILE))


@pytest.mark.parametrize("alert", alerts(), ids=name_of)
def test_every_alert_reaches_whom_its_severity_means(alert: Rule) -> None:
    """Pages go to the pager, tickets to the tickets, the watchdog to its switch alone."""
    severity = alert["labels"]["severity"]
    route = ("config", "routes", "test", f"--config.file={FILE}")
    labels = f"alertname={name_of(alert)}", f"severity={severity}", "job=seawall"
    expected = "watchdog" if severity == "none" else severity
    assert amtool(*route, *labels).split() == [expected]


def test_an_unknown_severity_is_a_ticket() -> None:
    """What no route knows is not lost, and gets nobody up."""
    route = ("config", "routes", "test", f"--config.file={FILE}")
    assert amtool(*route, "alertname=Other", "severity=warning").split() == ["ticket"]


def test_inhibition_names_alerts_that_exist() -> None:
    """Both sides of every rule are alerts of ours."""
    for rule in CONFIG["inhibit_rules"]:
        for side in ("source_matchers", "target_matchers"):
            [(label, operator, value)] = [
                found for one in rule[side] for found in MATCHER.findall(one)
            ]
            assert label == "alertname"
            assert set(value.split("|")) <= NAMES
            assert operator in {"=", "=~", "!~"}


def test_nothing_is_compared_that_an_alert_lacks() -> None:
    """A label that both sides must share is one that both have: two missing ones would be equal."""
    of_one = {
        name_of(one) for one in alerts() if "$labels.instance" in one["annotations"]["summary"]
    }
    for rule in CONFIG["inhibit_rules"]:
        assert rule["equal"] in (["job"], ["job", "instance"])
        if "instance" in rule["equal"]:
            sides = " ".join((*rule["source_matchers"], *rule["target_matchers"]))
            named = {one for _, _, value in MATCHER.findall(sides) for one in value.split("|")}
            assert named <= of_one


def test_a_page_is_silenced_only_by_a_page() -> None:
    """A ticket never keeps a page from anybody."""
    severity = {name_of(one): one["labels"]["severity"] for one in alerts()}
    for rule in CONFIG["inhibit_rules"]:
        [(_, _, source)] = MATCHER.findall(rule["source_matchers"][0])
        [(_, operator, target)] = MATCHER.findall(rule["target_matchers"][0])
        targets = NAMES - set(target.split("|")) if operator == "!~" else set(target.split("|"))
        if "page" in {severity[one] for one in targets}:
            assert severity[source] == "page"


def test_receivers_are_all_used() -> None:
    """Every receiver is of a route, and every route's receiver is there."""
    routes = [CONFIG["route"], *CONFIG["route"]["routes"]]
    assert {one["receiver"] for one in routes} == {one["name"] for one in CONFIG["receivers"]}


def test_inhibitors_are_told_before_what_they_silence() -> None:
    """Pages wait less than tickets, so that what a page keeps silent is not told just before it."""
    ticket, (watchdog, page) = CONFIG["route"], CONFIG["route"]["routes"]
    assert (page["group_wait"], ticket["group_wait"]) == ("15s", "1m")
    assert watchdog["group_wait"] == "0s"
