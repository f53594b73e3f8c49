"""A real Alertmanager with the shipped routing: who is told, and what is kept silent."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest

from tests.contract.rules import alerts, name_of
from tests.e2e.alertmanager import Alertmanager, Inbox
from tests.e2e.server import wait_for

pytestmark = pytest.mark.e2e

FACTOR = 60

HERE, ANYWHERE = "of the same replica", "of the same service"

SILENT = {
    "SeawallTargetsAbsent": {
        name_of(one): ANYWHERE
        for one in alerts()
        if name_of(one) not in {"SeawallTargetsAbsent", "SeawallWatchdog"}
    },
    "SeawallNoReadyReplica": dict.fromkeys(
        (
            "SeawallBudgetBurningFast", "SeawallBudgetBurningSlow", "SeawallShedding",
            "SeawallDeadlineMisses", "SeawallQueueFilling", "SeawallQueueStalled",
            "SeawallEventLoopLag",
        ),
        ANYWHERE,
    ),
    "SeawallShedding": {"SeawallQueueFilling": ANYWHERE},
    "SeawallBudgetBurningFast": {"SeawallBudgetBurningSlow": ANYWHERE},
    "SeawallQueueStalled": {"SeawallQueueFilling": HERE, "SeawallDeadlineMisses": ANYWHERE},
    "SeawallCrashLoop": {"SeawallBreakerOpen": HERE, "SeawallTargetDown": HERE},
    "SeawallTargetDown": {
        "SeawallQueueFilling": HERE, "SeawallMemoryNearLimit": HERE, "SeawallEventLoopLag": HERE,
    },
}  # fmt: skip
"""By what fires: what is not told meanwhile."""

BOTH = {name_of(alert): alert for alert in alerts()}


@pytest.fixture(scope="module")
def inbox() -> Iterator[Inbox]:
    """Who is told."""
    with Inbox() as found:
        yield found


@pytest.fixture(scope="module")
def manager(inbox: Inbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    """An Alertmanager that runs."""
    folder = tmp_path_factory.mktemp("alertmanager")
    with Alertmanager(folder, inbox.address, FACTOR) as running:
        wait_for(running.ready, "Alertmanager")
        yield running


def labels(name: str, job: str, instance: str) -> dict[str, str]:
    """What an alert carries: the replica only where it is of one."""
    of_one = "$labels.instance" in BOTH[name]["annotations"]["summary"]
    own = {"alertname": name, **BOTH[name]["labels"]}
    if name == "SeawallWatchdog":
        return {**own, "pair": job}
    return {**own, "job": job, **({"instance": instance} if of_one else {})}


@pytest.mark.parametrize("place, kinds", [("a", {HERE, ANYWHERE}), ("b", {ANYWHERE})])
def test_what_follows_from_another_alert_is_silent(
    place: str, kinds: set[str], manager: Alertmanager
) -> None:
    """Of each two alerts one silences the other as listed and no other, each service for itself."""
    pairs = {f"{place}-{i}": pair for i, pair in enumerate(permutations(BOTH, 2))}
    for job, (source, target) in pairs.items():
        manager.post([labels(source, job, "a:8000"), labels(target, job, f"{place}:8000")])

    def seen() -> list[dict[str, Any]]:
        jobs = [one["labels"].get("job", one["labels"].get("pair")) for one in manager.alerts()]
        return manager.alerts() if sum(job in pairs for job in jobs) == 2 * len(pairs) else []

    def silent() -> set[tuple[str, str]]:
        found = set()
        for one in seen():
            job = one["labels"].get("job", one["labels"].get("pair"))
            if job in pairs and one["status"]["inhibitedBy"]:
                source, target = pairs[job]
                name = one["labels"]["alertname"]
                found.add((source, name) if name == target else (target, name))
        return found

    expected = {
        (source, target)
        for source, targets in SILENT.items()
        for target, kind in targets.items()
        if kind in kinds
    }
    wait_for(lambda: silent() == expected, "exactly the listed ones to be silent")


def test_everybody_is_told_what_is_theirs(manager: Alertmanager, inbox: Inbox) -> None:
    """Pages, tickets and the watchdog reach their own receivers, one message of one kind each."""
    job = "told"
    for name in BOTH:
        manager.post([labels(name, f"{job}-{name}", "a:8000")])
    wanted = {
        (name, "watchdog" if name == "SeawallWatchdog" else BOTH[name]["labels"]["severity"])
        for name in BOTH
    }

    def told() -> set[tuple[str, str]]:
        return {
            (alert["labels"]["alertname"], receiver)
            for receiver, message in list(inbox.messages)
            for alert in message["alerts"]
            if alert["labels"].get("job", alert["labels"].get("pair", "")).startswith(job)
        }

    wait_for(lambda: told() == wanted, "everybody to be told")


def test_a_page_gathers_what_one_service_has(manager: Alertmanager, inbox: Inbox) -> None:
    """Pages of one service are one message; of two replicas' tickets of one kind one message."""
    manager.post([
        labels("SeawallShedding", "gathered", "a:8000"),
        labels("SeawallBudgetBurningFast", "gathered", "a:8000"),
        labels("SeawallMemoryNearLimit", "gathered", "a:8000"),
        labels("SeawallMemoryNearLimit", "gathered", "b:8000"),
    ])  # fmt: skip

    def last() -> dict[tuple[str, str], int]:
        """Of each group that was told: how many alerts its last message had."""
        return {
            (receiver, message["groupKey"]): len(message["alerts"])
            for receiver, message in list(inbox.messages)
            if message["commonLabels"].get("job") == "gathered"
        }

    wait_for(lambda: list(last().values()) == [2, 2], "one message of each")
    assert {receiver for receiver, _ in last()} == {"page", "ticket"}
