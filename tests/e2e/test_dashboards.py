"""Every panel shows what happens, and nothing where nothing happens: real servers, a real scrape.

Two replicas, one with an incident and one without any traffic, and a third that is not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from tests.contract.grafana_board import BOARD, PANELS
from tests.e2e.incident import EVERYTHING, LIMIT, Incident, Look, incident

pytestmark = [pytest.mark.e2e, pytest.mark.incident]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    """The incident, once it is over."""
    with incident(tmp_path_factory.mktemp("incident")) as found:
        yield found


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_expression_has_data_and_always_a_number(seen: Incident, name: str) -> None:
    """In the incident each expression shows something, and never NaN or infinity."""
    series = seen.throughout(name)
    assert series
    for labels, samples in series:
        assert samples, labels
        assert all(math.isfinite(value) for _, value in samples), labels


def test_without_traffic_there_is_zero_and_no_error(seen: Incident) -> None:
    """Before the first request shares and rates are 0, means and quantiles are absent."""
    look = seen.looks["nothing"]
    for name in ("Good answers/A", "Answered badly/A", "Queue fill/A", "Items waiting/A"):
        assert look.one(name) == 0, name
    assert look["Why requests fail/A"] == {("none",): 0}
    assert set(look["How requests end/A"].values()) == {0}
    assert set(look["What the workers do/A"].values()) == {0}
    assert look["Items per batch/C"] == {(): 0}
    assert set(look["Breaker/A"].values()) == {0}
    assert set(look["Workers/B"].values()) == {0}
    for name in ("Slowest good answers/A", "Latency of good answers/C", "Items per batch/A"):
        assert look[name] == {}, name


def test_replicas_are_counted_once(seen: Incident) -> None:
    """Two serve, one cannot be reached; with an open breaker one of the two does not serve."""

    def tile(name: str) -> tuple[float, ...]:
        return tuple(seen.looks[name].one(f"Replicas/{letter}") for letter in "ABC")

    assert tile("steady") == (2, 0, 1)
    assert tile("broken") == (1, 1, 1)
    assert tile("over") == (2, 0, 1)


def test_overload_shows_where_it_is(seen: Incident) -> None:
    """A full queue, its bound, the refusals by code, the late by stage, those who left."""
    look = seen.looks["overload"]
    busy, idle = (f"127.0.0.1:{server.port}" for server in (seen.busy, seen.idle))
    assert look["What refuses/A"][busy,] > 0.7 > look["What refuses/A"][idle,]
    assert look.one("Queue fill/A") == look["What refuses/A"][busy,]
    assert LIMIT - 1 < look.one("Items waiting/B") <= look.one("Items waiting/C") == LIMIT
    mean = [value for _, samples in seen.throughout("Items waiting/A") for _, value in samples]
    assert LIMIT / 4 < max(mean) < 2 * LIMIT  # an item's wait is known when it has waited
    assert look.one("Answered badly/A") > 0.05
    assert look["How requests end/A"]["shed",] > look["How requests end/A"]["ok",] > 0
    assert look["Why requests fail/A"]["queue_full",] > 1
    assert ("none",) not in look["Why requests fail/A"]
    assert look.one("Waiting/D") >= 1  # whole seconds, and at least one
    assert look["At the door/A"]["queued",] > 5
    shares = look["What the workers do/A"]
    assert 0 < sum(shares.values()) < 0.8  # one of two workers has nothing to do


def test_late_and_gone_are_told_by_stage(seen: Incident) -> None:
    """Late in the queue and late in the model are two things, and clients that left a third."""
    assert seen.looks["late"]["Why requests fail/B"].keys() == {("queued",), ("running",)}
    assert seen.looks["late"]["How requests end/A"]["late",] > 0
    gone = {labels["stage"] for labels, _ in seen.throughout("Why requests fail/C")}
    assert gone
    assert gone <= {"prepare", "queued", "running"}


def test_faults_show_by_what_became_of_them(seen: Incident) -> None:
    """Batches that do not fit or hold a culprit are told apart, and what they cost is wasted."""
    look = seen.looks["faults"]
    assert look["Memory of a batch/A"]["failed",] > 0
    assert look["Memory of a batch/B"]["isolate",] > 0
    wasted = [
        value
        for labels, samples in seen.throughout("What the workers do/A")
        for _, value in samples
        if labels["use"] == "wasted"
    ]
    assert max(wasted) > 0


def test_a_killed_worker_is_a_restart_and_not_an_outage(seen: Incident) -> None:
    """The reason shows, on the graph and as a mark, and counters go on from where they were."""
    look = seen.looks["killed"]
    assert look["Workers/B"]["crashed",] > 0
    assert [value for labels, value in look["Worker lost"].items() if "crashed" in labels]
    others = {labels: value for labels, value in look["Workers/B"].items() if value}
    assert set(others) == {("crashed",)}
    for name in ("Good answers/A", "CPU against its limit/A"):
        for _, samples in seen.throughout(name):
            assert all(0 <= value < 1000 for _, value in samples)


def test_an_open_breaker_shows_on_its_replica_only(seen: Incident) -> None:
    """Open on one and closed on the other, with the refusals that it causes and a mark."""
    look = seen.looks["broken"]
    busy, idle = (f"127.0.0.1:{server.port}" for server in (seen.busy, seen.idle))
    assert look["Breaker/A"] == {(busy,): 2, (idle,): 0}
    assert {(busy, "open")} <= set(look["Breaker"])
    refused = [labels["outcome"] for labels, _ in seen.throughout("Why requests fail/A")]
    assert "circuit_open" in refused


def test_afterwards_all_is_as_before(seen: Incident) -> None:
    """Nothing of the incident stays on the tiles."""
    look = seen.looks["over"]
    assert look.one("Answered badly/A") == 0
    assert look.one("Queue fill/A") < 0.5
    assert look.one("Good answers/A") > 1
    assert look["Why requests fail/A"] == {("none",): 0}
    assert 0 < look.one("Slowest good answers/A") < look.one("Slowest good answers/B")


def empty(look: Look) -> set[str]:
    """What shows nothing."""
    return {name for name, shown in look.shown.items() if not shown}


def test_a_replica_without_traffic_is_no_error(seen: Incident) -> None:
    """Chosen alone it shows zeros, and nothing only where there is nothing to measure."""
    look = seen.look(instance=f"127.0.0.1:{seen.idle.port}")
    assert look.one("Answered badly/A") == 0
    assert look.one("Good answers/A") == 0
    for name, shown in look.shown.items():
        assert all(math.isfinite(value) for value in shown.values()), name
    without = {name.split("/")[0] for name in empty(look)}
    assert without == {
        "Slowest good answers", "Why requests fail", "Latency of good answers",
        "Where the time goes", "Waiting", "Items per batch", "Time of a batch",
        "Predicted against actual", "Worker lost", "Breaker",
    }  # fmt: skip


def test_a_dead_replica_is_told_as_dead(seen: Incident) -> None:
    """Chosen alone it is unreachable and answers nothing; nothing else of it is 0."""
    look = seen.look(instance=seen.dead)
    assert {name for name in EVERYTHING if look[name]} == {
        "Replicas/A", "Replicas/B", "Replicas/C", "Good answers/A",
    }  # fmt: skip
    assert [look.one(f"Replicas/{letter}") for letter in "ABC"] == [0, 0, 1]
    assert look.one("Good answers/A") == 0


def test_the_table_has_a_line_for_each_replica(seen: Incident) -> None:
    """Each column of the table has a value for both replicas, under the same name."""
    [table] = [panel for panel in PANELS if panel["type"] == "table"]
    places = {f"127.0.0.1:{server.port}" for server in (seen.busy, seen.idle)}
    look = seen.looks["over"]
    for target in table["targets"]:
        found = look[f"{table['title']}/{target['refId']}"]
        assert {place for labels in found for place in labels if ":" in place} - {
            "synthetic:cpu"
        } == places


def test_job_and_replicas_can_be_chosen(seen: Incident) -> None:
    """The variables find the job and every target, those that are dead too."""
    found = {}
    for one in BOARD["templating"]["list"]:
        if one["type"] == "query":
            match = one["query"].removeprefix("label_values(").rpartition(",")[0]
            asked = {"match[]": match.replace("$job", "seawall")}
            found[one["name"]] = set(seen.prometheus.get(f"label/{one['name']}/values", **asked))
    servers = {f"127.0.0.1:{server.port}" for server in (seen.busy, seen.idle)}
    assert found == {"job": {"seawall"}, "instance": {*servers, seen.dead}}
