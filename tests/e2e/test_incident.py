"""An incident from its begin to its end: exactly the right people are told, of the right things."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.rules import alerts, name_of
from tests.e2e.alerting import Incident, incident

pytestmark = pytest.mark.e2e

FAST, SLOW = ("page", "SeawallBudgetBurningFast"), ("ticket", "SeawallBudgetBurningSlow")
"""The budget remembers: its page goes on for half an hour of the rules after the trouble, and keeps
its ticket silent. How long that is in the phases of a test depends on the machine, so from the
second trouble on either may be told again, or not."""


OF_THE_MACHINE = ("ticket", "SeawallEventLoopLag")
"""How late a loop is says how busy the machine is that the tests run on: it may be told, or not."""


def told(seen: Incident, phase: str) -> list[tuple[str, str]]:
    """What was told for the first time in a phase."""
    return [one for one in seen.told[phase] if one != OF_THE_MACHINE]


def but_for_the_budget(seen: Incident, phase: str) -> list[tuple[str, str]]:
    """The same without what the budget remembers."""
    return [one for one in told(seen, phase) if one not in {FAST, SLOW}]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    """The incident, once it is over."""
    with incident(tmp_path_factory.mktemp("incident")) as found:
        yield found


def test_steady_traffic_tells_nobody(seen: Incident) -> None:
    """While all is well the watchdog is all that is heard."""
    assert told(seen, "steady") == [("watchdog", "SeawallWatchdog")]


def test_an_overload_pages(seen: Incident) -> None:
    """Refusals for load page, the budget too; the full queue is known and kept silent by them."""
    assert told(seen, "overload") == [FAST, ("page", "SeawallShedding")]
    assert seen.silent - {SLOW[1], OF_THE_MACHINE[1]} == {"SeawallQueueFilling"}


def test_what_the_overload_cost_is_known(seen: Incident) -> None:
    """After the overload nobody is told of anything but what was spent of the budget."""
    assert but_for_the_budget(seen, "calm") == []
    assert "SeawallBudgetBurningSlow" in seen.known


def test_one_lost_worker_of_two_tells_nobody(seen: Incident) -> None:
    """A worker that is killed and comes back is nothing that anybody has to know."""
    assert but_for_the_budget(seen, "killed") == []


def test_an_open_breaker_pages_with_its_cause(seen: Incident) -> None:
    """With the only replica's breaker open nobody is ready; the ticket beside the page says why."""
    assert but_for_the_budget(seen, "broken") == [
        ("page", "SeawallNoReadyReplica"),
        ("ticket", "SeawallBreakerOpen"),
    ]


def test_a_drain_without_a_successor_pages(seen: Incident) -> None:
    """The only replica drains and is gone: nobody is ready, and then its target is down."""
    assert but_for_the_budget(seen, "drained") == [
        ("page", "SeawallNoReadyReplica"),
        ("ticket", "SeawallTargetDown"),
    ]


def test_every_message_can_be_acted_on(seen: Incident) -> None:
    """What is told carries numbers and names in the place of templates, and the runbook."""
    runbooks = {name_of(one): one["annotations"]["runbook_url"] for one in alerts()}
    for alert in seen.inbox.alerts():
        annotations = alert["annotations"]
        assert annotations["runbook_url"] == runbooks[alert["labels"]["alertname"]]
        text = f"{annotations['summary']} {annotations['description']}"
        assert not any(bad in text for bad in ("{{", "}}", "<no value>", "NaN", "Inf"))
