"""Every panel shows what happens, and nothing where nothing happens: real servers, a real scrape.

Two replicas, one with an incident and one without any traffic, and a third that is not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from service.metrics import CATALOGUE, Kind
from tests.contract.grafana_board import BOARD, EXPRESSIONS, PANELS
from tests.e2e.incident import EVERYTHING, LIMIT, TRACE, Incident, Look, incident

pytestmark = pytest.mark.e2e


def tile(look: Look) -> tuple[float, ...]:
    """Replicas that are ready, not ready, unreachable."""
    ready, not_ready, unreachable = (look.one(f"Replicas/{letter}") for letter in "ABC")
    return ready, not_ready, unreachable


# ---------------------------------------------------------------- what each phase must show


def nothing(_: Incident, look: Look) -> None:
    """Shares and rates are 0, means and quantiles are absent."""
    assert tile(look) == (2, 0, 1)
    for name in ("Good answers/A", "Answered badly/A", "Queue fill/A", "Items waiting/A"):
        assert look.one(name) == 0, name
    assert look["Why requests fail/A"] == {("none",): 0}
    assert look["How requests end/A"] == {(): 0}
    assert set(look["How requests end/B"].values()) == {0}
    assert set(look["What the workers do/A"].values()) == {0}
    assert look["Items per batch/C"] == {(): 0}
    assert set(look["Breaker/A"].values()) == {0}
    assert look["Workers/A"] == {("ready",): 2}
    for name in (
        "Slowest good answers/A", "Latency of good answers/C", "Items per batch/A", "Workers/B",
    ):  # fmt: skip
        assert look[name] == {}, name


def late(_: Incident, look: Look) -> None:
    """Late in the queue and late in the model are two things, and those who left a third."""
    assert look["Why requests fail/B"].keys() == {("queued",), ("running",)}
    assert look["Why requests fail/C"].keys() == {("queued",)}
    assert look["How requests end/B"]["late",] > 0
    assert look["How requests end/B"]["gone",] > 0
    assert look["What the workers do/A"]["wasted",] > 0
    assert look["At the door/C"].keys() == {("bad_http",)}


def too_large(_: Incident, look: Look) -> None:
    """A batch that does not fit is halved, and what fits nowhere fails alone."""
    assert look["Memory of a batch/A"]["failed",] > 0
    assert look["Memory of a batch/B"]["oom",] > 0
    assert look["Why requests fail/A"].keys() == {("out_of_memory",)}


def culprit(_: Incident, look: Look) -> None:
    """Who makes a batch raise is looked for and found."""
    assert look["Memory of a batch/B"]["isolate",] > 0
    assert look["Why requests fail/A"].keys() == {("model_error",)}


def steady(_: Incident, look: Look) -> None:
    """Two serve and one cannot be reached; good answers and nothing else."""
    assert tile(look) == (2, 0, 1)
    assert look.one("Good answers/A") > 2
    assert look.one("Answered badly/A") == 0
    assert look.one("Queue fill/A") < 0.5
    assert look["Why requests fail/A"] == {("none",): 0}
    assert 0 < look.one("Slowest good answers/A") < look.one("Slowest good answers/B")


def overload(found: Incident, look: Look) -> None:
    """A full queue, its bound, the refusals by code, and what the refused are told."""
    busy, idle = found.places
    assert look["What refuses/A"][busy,] > 0.7 > look["What refuses/A"][idle,]
    assert look["What refuses/B"]["items",] > 0.2
    assert look.one("Queue fill/A") == look["What refuses/A"][busy,]
    assert look.one("Items waiting/A") > LIMIT / 4
    assert LIMIT - 1 < look.one("Items waiting/B") <= look.one("Items waiting/C") == LIMIT
    assert look.one("Answered badly/A") > 0.05
    assert look["How requests end/B"]["shed",] > look.one("How requests end/A") > 0
    assert look["Why requests fail/A"].keys() == {("queue_full",)}
    assert look["Why requests fail/A"]["queue_full",] > 1
    assert look.one("Waiting/D") >= 1  # whole seconds, and at least one
    assert look["At the door/A"]["queued",] > 5
    assert 0 < sum(look["What the workers do/A"].values()) < 0.8  # one of two has nothing to do


def killed(_: Incident, look: Look) -> None:
    """The reason shows on the graph and as a mark."""
    assert look["Workers/B"].keys() == {("crashed",)}
    assert look["Workers/B"]["crashed",] > 0
    assert [labels for labels in look["Worker lost"] if "crashed" in labels]


def broken(found: Incident, look: Look) -> None:
    """Open on one and closed on the other, with the refusals that it causes and a mark."""
    busy, idle = found.places
    assert tile(look) == (1, 1, 1)
    assert look["Breaker/A"] == {(busy,): 2, (idle,): 0}
    assert {(busy, "open")} <= set(look["Breaker"])
    assert look["Why requests fail/A"]["circuit_open",] > 0


def over(found: Incident, look: Look) -> None:
    """Nothing of the incident stays on the tiles."""
    steady(found, look)
    assert set(look["Breaker/A"].values()) == {0}
    assert look["Workers/B"] == {}


MUST = {
    "nothing": nothing, "late": late, "too large": too_large, "culprit": culprit,
    "steady": steady, "overload": overload, "killed": killed, "broken": broken, "over": over,
}  # fmt: skip


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    """The incident, once it is over."""
    with incident(tmp_path_factory.mktemp("incident"), MUST) as found:
        yield found


@pytest.mark.parametrize("phase", MUST)
def test_a_phase_shows_what_it_must(seen: Incident, phase: str) -> None:
    """Whatever happens shows on the panels that are for it, and on no other."""
    MUST[phase](seen, seen.looks[phase])


# ---------------------------------------------------------------- all the time


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_expression_has_data_and_always_a_number(seen: Incident, name: str) -> None:
    """In the incident each expression shows something, and never NaN or infinity."""
    series = seen.throughout(name)
    assert series
    for labels, samples in series:
        assert samples, labels
        assert all(math.isfinite(value) for _, value in samples), labels


def test_the_mean_number_waiting_is_no_more_than_can_wait(seen: Incident) -> None:
    """By Little's law, over all of it: a wait counts once, on whatever way out."""
    [(_, samples)] = seen.throughout("Items waiting/A")
    assert 0 < sum(value for _, value in samples) / len(samples) <= LIMIT


def test_no_counter_ever_falls(seen: Incident) -> None:
    """One process counts for all: no scrape meets another's numbers, no lost worker takes any."""
    for row in CATALOGUE:
        if row.kind is not Kind.GAUGE:
            name = row.name + ("_count" if row.kind is Kind.HISTOGRAM else "")
            assert seen.prometheus.value(f"max(resets({name}[1h]))") == 0, name


def test_a_trace_leads_from_the_latency_to_its_request(seen: Incident) -> None:
    """The trace id of a request stands behind the panel's number, in Prometheus itself."""
    [target] = [one["expr"] for panel in PANELS for one in panel["targets"] if one.get("exemplar")]
    asked = EXPRESSIONS["Latency of good answers/C"]
    assert target == asked
    found = seen.prometheus.get(
        "query_exemplars",
        query='seawall_request_duration_seconds_bucket{outcome_class="ok"}',
        start=seen.start,
        end=seen.start + 3600,
    )
    traces = {one["labels"]["trace_id"] for series in found for one in series["exemplars"]}
    assert traces == {TRACE}


# ---------------------------------------------------------------- one replica


def test_a_replica_without_traffic_is_no_error(seen: Incident) -> None:
    """Chosen alone it shows zeros, and nothing only where there is nothing to measure."""
    look = seen.look(instance=f"127.0.0.1:{seen.idle.port}")
    assert look.one("Answered badly/A") == 0
    assert look.one("Good answers/A") == 0
    for name, shown in look.shown.items():
        assert all(math.isfinite(value) for value in shown.values()), name
    without = {name.split("/")[0] for name in look.empty()}
    assert without == {
        "Slowest good answers", "Why requests fail", "Latency of good answers",
        "Where the time goes", "At the door", "Waiting", "Items per batch", "Time of a batch",
        "Predicted against actual", "Workers", "Worker lost", "Breaker",
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
