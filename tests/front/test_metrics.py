"""What is counted, and the page that a scrape gets."""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample

from service.core.errors import ERRORS, OUTCOMES, OutcomeClass, Stage, outcome_class
from service.metrics import (
    CATALOGUE,
    IDLE,
    LATENCY_BUCKETS_S,
    OTHER,
    ROUTES,
    Kind,
    LoopLag,
    Metrics,
    Snapshot,
)
from service.metrics.loop_lag import INTERVAL_S
from service.workers import WorkerState
from tests.promtool import promtool
from tests.virtual import run_virtual

PROMETHEUS_ACCEPT = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"

BUSY = Snapshot(
    queue_depth=3,
    queue_depth_peak=7.5,
    queue_limit=10,
    fill_ratio=0.4,
    fill_seconds=12.5,
    full_items_seconds=1.5,
    full_wait_seconds=2.5,
    oldest_age_s=0.25,
    predicted_wait_s=0.75,
    wait_cap_s=2.5,
    deadline_s=5.0,
    in_flight_queued=2,
    in_flight_running=4,
    memory_budget_tokens=4096.0,
    breaker_state="half_open",
    ready=True,
    draining=True,
    worker_states=("ready", "restarting"),
)


def page(metrics: Metrics) -> str:
    """The page in the text format."""
    return metrics.render(None)[0].decode()


def samples(metrics: Metrics) -> Iterator[Sample]:
    """Every sample of the page."""
    for family in parse_text(page(metrics)):
        yield from family.samples


def read(metrics: Metrics, name: str, **labels: str) -> float:
    """The one sample with that name and these labels."""
    (found,) = (
        one.value
        for one in samples(metrics)
        if one.name == name and labels.items() <= one.labels.items()
    )
    return found


def parse_openmetrics(body: bytes) -> list[Metric]:
    """The families of an OpenMetrics page, by the library's strict parser."""
    families = openmetrics.text_string_to_metric_families(body.decode())  # type: ignore[no-untyped-call]
    return list(families)


def total(metrics: Metrics, name: str) -> float:
    """The sum over all label values."""
    return sum(one.value for one in samples(metrics) if one.name == name)


def busy() -> Metrics:
    """Metrics after some of everything."""
    metrics = Metrics()
    metrics.bind(lambda: BUSY)
    for outcome in OUTCOMES:
        metrics.request_done(outcome, 0.02, stage=Stage.QUEUED, trace_id=TRACE_ID)
    metrics.http_response("/livez", 200)
    metrics.connection_opened()
    metrics.connection_dropped("too_many")
    metrics.stage_seconds("infer", 0.01)
    metrics.queue_wait(0.01)
    metrics.retry_after(2.0)
    metrics.batch(items=4, seconds=0.1, units=30, padded=40, wasted_share=0.25, predicted_s=0.08)
    metrics.failed_batch(0.5)
    metrics.batch_gap(0.001)
    metrics.batch_split("oom")
    metrics.oom("split")
    metrics.breaker_transition("open")
    metrics.worker_restart("hung")
    metrics.worker_sample(0, 1000, 1.5, (1, 2, 3))
    metrics.model_loaded(2.5)
    metrics.loop_lag(0.001)
    metrics.log_lines_dropped(3)
    metrics.build_info(version="1.2.3", task="fill-mask", model="small", device="cpu")
    return metrics


# ---------------------------------------------------------------- the page


@pytest.mark.parametrize("make", [Metrics, busy])
def test_page_is_what_prometheus_reads(make: type[Metrics]) -> None:
    """The page parses, fresh and used, and Prometheus' own linter has nothing to say."""
    body, content_type = make().render(None)
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert len(list(parse_text(body.decode()))) > len(CATALOGUE)
    checked = promtool("check", "metrics", page=body)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


@pytest.mark.parametrize("make", [Metrics, busy])
def test_openmetrics_page_parses_strictly(make: type[Metrics]) -> None:
    """Who accepts OpenMetrics gets it, complete and valid."""
    body, content_type = make().render(PROMETHEUS_ACCEPT)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert len(parse_openmetrics(body)) > len(CATALOGUE)


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "*/*",
        "text/plain",
        "text/html,application/xhtml+xml",
        ";;;,,,q=",
        "application/openmetrics-text-no",
        "text/plain;version=x.y",
    ],
)
def test_everybody_else_gets_text(accept: str | None) -> None:
    """No other Accept header, however broken, gets anything but the text format."""
    assert Metrics().render(accept)[1] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize("version", ["1.0.0", "9.9", "x", "1.0.0;escaping=evil", '"'])
def test_nothing_of_the_accept_header_comes_back(version: str) -> None:
    """The content type is ours, whatever the client writes into its version."""
    _, content_type = Metrics().render(f"application/openmetrics-text;version={version}")
    assert content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"


def test_no_created_series() -> None:
    """The page has no ``_created`` series in either format."""
    metrics = busy()
    for accept in (None, PROMETHEUS_ACCEPT):
        assert b"_created" not in metrics.render(accept)[0]


def test_page_is_the_catalogue_and_the_process() -> None:
    """Everything in the catalogue is on the page with its type, and nothing else of ours."""
    families = {family.name: family.type for family in parse_text(page(busy()))}
    ours = {name: kind for name, kind in families.items() if name.startswith("seawall_")}
    expected = {
        row.name.removesuffix("_total") if row.kind is Kind.COUNTER else row.name: row.kind.value
        for row in CATALOGUE
    }
    assert ours == expected
    assert {"process_cpu_seconds", "process_resident_memory_bytes", "python_info"} <= set(families)


def test_every_series_is_there_from_the_start_at_zero() -> None:
    """Before anything has happened each label combination of the catalogue exists, at 0."""
    found = {(one.name, frozenset(one.labels.items())): one.value for one in samples(Metrics())}
    closed = ("seawall_breaker_state", frozenset({("state", "closed")}))
    assert found.pop(closed) == 1
    for row in CATALOGUE:
        suffix = "_count" if row.kind is Kind.HISTOGRAM else ""
        for values in row.children():
            key = (row.name + suffix, frozenset(zip(row.label_names, values, strict=True)))
            if key == closed or row.name.startswith(("seawall_memory_u", "seawall_memory_l")):
                continue
            if row.name.startswith("seawall_cpu_"):
                continue
            assert found[key] == 0, key


def test_use_makes_no_new_series() -> None:
    """Nothing that happens adds a series, but the build info and the workers' states."""

    def names(metrics: Metrics) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        return {
            (one.name, frozenset(one.labels.items()))
            for one in samples(metrics)
            if one.name not in {"seawall_build_info", "seawall_worker_state"}
        }

    assert names(busy()) == names(Metrics())


def test_two_servers_in_one_process_do_not_share() -> None:
    """Each server counts for itself."""
    one, other = Metrics(), Metrics()
    one.request_done("ok", 0.1)
    assert total(one, "seawall_requests_total") == 1
    assert total(other, "seawall_requests_total") == 0


# ---------------------------------------------------------------- requests


def test_a_request_counts_once_in_each_place() -> None:
    """Outcomes, classes and durations add up to the requests, and stages to their outcomes."""
    metrics = Metrics()
    rng = random.Random(7)
    ends = [rng.choice(OUTCOMES) for _ in range(500)]
    for outcome in ends:
        metrics.request_done(outcome, rng.random(), stage=rng.choice([None, *Stage]))
    for outcome in OUTCOMES:
        assert read(metrics, "seawall_requests_total", outcome=outcome) == ends.count(outcome)
    for one in OutcomeClass:
        expected = sum(outcome_class(outcome) is one for outcome in ends)
        name = "seawall_request_duration_seconds_count"
        assert read(metrics, name, outcome_class=one) == expected
    for outcome in ("deadline_exceeded", "client_gone"):
        assert total(metrics, f"seawall_{outcome}_total") == ends.count(outcome)


@pytest.mark.parametrize("stage", list(Stage))
def test_late_and_gone_are_counted_by_stage(stage: Stage) -> None:
    """A late request and one whose client left count where they were."""
    metrics = Metrics()
    metrics.request_done("deadline_exceeded", 1.0, stage=stage)
    metrics.request_done("client_gone", 1.0, stage=stage)
    assert read(metrics, "seawall_deadline_exceeded_total", stage=stage) == 1
    assert read(metrics, "seawall_client_gone_total", stage=stage) == 1


@pytest.mark.parametrize("outcome", ["", "OK", "bad_luck", "late"])
def test_an_outcome_outside_the_list_is_a_bug(outcome: str) -> None:
    """A word that is no outcome raises and counts nothing."""
    metrics = Metrics()
    with pytest.raises(KeyError):
        metrics.request_done(outcome, 0.1)
    assert total(metrics, "seawall_requests_total") == 0
    assert total(metrics, "seawall_request_duration_seconds_count") == 0


def test_scanners_cannot_make_series() -> None:
    """A thousand random paths and statuses share one series that was there before."""
    metrics = Metrics()
    before = len(list(samples(metrics)))
    rng = random.Random(3)
    for _ in range(1000):
        path = "/" + "".join(rng.choices(string.printable, k=12))
        metrics.http_response(path, rng.randrange(1000, 10**6))
    assert len(list(samples(metrics))) == before
    assert read(metrics, "seawall_http_responses_total", route=OTHER, status=OTHER) == 1000


@pytest.mark.parametrize("route", ROUTES)
def test_each_route_counts_by_itself(route: str) -> None:
    """A known route and status have their own series."""
    metrics = Metrics()
    metrics.http_response(route, 200)
    assert read(metrics, "seawall_http_responses_total", route=route, status="200") == 1
    assert total(metrics, "seawall_http_responses_total") == 1


def test_a_trace_id_becomes_an_exemplar_in_openmetrics_only() -> None:
    """The latency bucket of a traced request carries its trace id, where the format has room."""
    metrics = Metrics()
    metrics.request_done("ok", 0.03, trace_id=TRACE_ID)
    exemplars = [
        (one.labels["le"], one.exemplar.labels)
        for family in parse_openmetrics(metrics.render(PROMETHEUS_ACCEPT)[0])
        for one in family.samples
        if one.exemplar
    ]
    assert exemplars == [("0.05", {"trace_id": TRACE_ID})]
    assert TRACE_ID not in page(metrics)


@pytest.mark.parametrize(
    "trace_id", ["", "x" * 32, TRACE_ID + "0", TRACE_ID.upper(), '"} 1\nevil 1', "٣" * 32]
)
def test_anything_but_a_trace_id_is_left_out(trace_id: str) -> None:
    """A client cannot write onto the page by way of its trace header."""
    metrics = Metrics()
    metrics.request_done("ok", 0.03, trace_id=trace_id)
    body = metrics.render(PROMETHEUS_ACCEPT)[0]
    assert not [one for family in parse_openmetrics(body) for one in family.samples if one.exemplar]


def test_time_that_ran_backwards_does_no_harm() -> None:
    """A negative duration counts as none, so that no sum falls."""
    metrics = Metrics()
    metrics.request_done("ok", -1.0)
    metrics.stage_seconds("queue", -1.0)
    metrics.queue_wait(-1.0)
    metrics.batch_gap(-1.0)
    metrics.loop_lag(-1.0)
    sums = [one.value for one in samples(metrics) if one.name.endswith("_seconds_sum")]
    assert len(sums) > 5
    assert set(sums) == {0.0}


# ---------------------------------------------------------------- histograms


def test_latency_bounds_fit_what_is_measured() -> None:
    """The first bound is a millisecond, the last the longest deadline, and they rise."""
    assert LATENCY_BUCKETS_S[0] == 0.001
    assert LATENCY_BUCKETS_S[-1] == 60.0
    assert sorted(set(LATENCY_BUCKETS_S)) == list(LATENCY_BUCKETS_S)
    for row in CATALOGUE:
        if row.kind is Kind.HISTOGRAM and row.name.endswith("_seconds"):
            assert row.buckets[-1] >= 30.0, row.name


@pytest.mark.parametrize("typical_s", [0.002, 0.0151, 0.4, 4.2, 50.0])
def test_quantiles_can_be_read_from_the_buckets(typical_s: float) -> None:
    """Median and 99th percentile from the buckets lie within half of the true ones."""
    metrics = Metrics()
    rng = random.Random(11)
    times = sorted(typical_s * rng.uniform(0.9, 1.1) for _ in range(1000))
    for seconds in times:
        metrics.request_done("ok", seconds)
    name = "seawall_request_duration_seconds_bucket"
    counts = [
        (float(one.labels["le"]), one.value)
        for one in samples(metrics)
        if one.name == name and one.labels["outcome_class"] == "ok"
    ]
    for share in (0.5, 0.99):
        rank, low, before = share * 1000, 0.0, 0.0
        for bound, count in counts:
            if count >= rank:
                read_off = low + (bound - low) * (rank - before) / (count - before)
                break
            low, before = bound, count
        assert read_off == pytest.approx(times[int(rank) - 1], rel=0.5)


# ---------------------------------------------------------------- the snapshot


def test_gauges_and_integrals_are_read_at_the_scrape() -> None:
    """What the dispatcher knows is on the page as it is at that moment."""
    now = IDLE
    metrics = Metrics()
    metrics.bind(lambda: now)
    assert read(metrics, "seawall_queue_depth") == 0
    now = BUSY
    for name, value in {
        "queue_depth": 3,
        "queue_depth_peak": 7.5,
        "queue_limit": 10,
        "queue_fill_ratio": 0.4,
        "queue_fill_seconds_total": 12.5,
        "queue_oldest_age_seconds": 0.25,
        "predicted_wait_seconds": 0.75,
        "wait_cap_seconds": 2.5,
        "deadline_seconds": 5.0,
        "memory_budget_tokens": 4096,
        "ready": 1,
        "draining": 1,
        "workers": 2,
    }.items():
        assert read(metrics, f"seawall_{name}") == value, name
    assert read(metrics, "seawall_queue_full_seconds_total", bound="items") == 1.5
    assert read(metrics, "seawall_queue_full_seconds_total", bound="wait") == 2.5
    assert read(metrics, "seawall_requests_in_flight", stage="queued") == 2
    assert read(metrics, "seawall_requests_in_flight", stage="running") == 4


@pytest.mark.parametrize("state", ["closed", "open", "half_open"])
def test_exactly_one_breaker_state_is_one(state: str) -> None:
    """The present state is 1 and the others are 0."""
    metrics = Metrics()
    metrics.bind(lambda: replace(BUSY, breaker_state=state))
    assert read(metrics, "seawall_breaker_state", state=state) == 1
    assert total(metrics, "seawall_breaker_state") == 1


def test_each_worker_is_in_exactly_one_state() -> None:
    """Every worker has a series for each state, one of them 1."""
    states = tuple(WorkerState)
    metrics = Metrics()
    metrics.bind(lambda: replace(BUSY, worker_states=states))
    assert read(metrics, "seawall_workers") == len(states)
    for index, present in enumerate(states):
        for state in states:
            value = read(metrics, "seawall_worker_state", worker=str(index), state=state)
            assert value == (state is present)


def test_receiving_comes_back_to_zero() -> None:
    """Bodies under way are counted up and down."""
    metrics = Metrics()
    for delta in (1, 1, 1, -1, -1):
        metrics.receiving(delta)
    assert read(metrics, "seawall_requests_in_flight", stage="receiving") == 1
    metrics.receiving(-1)
    assert total(metrics, "seawall_requests_in_flight") == 0


def test_connections_go_up_and_down() -> None:
    """The gauge is what is open now; a dropped one has its reason."""
    metrics = Metrics()
    metrics.connection_opened()
    metrics.connection_opened()
    metrics.connection_closed()
    metrics.connection_dropped("header_timeout")
    assert read(metrics, "seawall_connections") == 1
    assert read(metrics, "seawall_connections_dropped_total", reason="header_timeout") == 1


# ---------------------------------------------------------------- batches and workers


def test_a_batch_is_shared_out_between_useful_and_wasted() -> None:
    """Tokens, padding and model time of a batch add up to the whole."""
    metrics = Metrics()
    metrics.batch(items=4, seconds=2.0, units=30, padded=40, wasted_share=0.25, predicted_s=1.0)
    metrics.failed_batch(3.0)
    assert read(metrics, "seawall_tokens_total", kind="real") == 30
    assert read(metrics, "seawall_tokens_total", kind="padding") == 10
    assert read(metrics, "seawall_inference_seconds_total", use="useful") == 1.5
    assert read(metrics, "seawall_inference_seconds_total", use="wasted") == 3.5
    assert read(metrics, "seawall_batch_items_sum") == 4
    assert read(metrics, "seawall_batch_seconds_sum") == 2
    assert read(metrics, "seawall_prediction_error_ratio_sum") == 2


def test_an_unpredicted_batch_has_no_error_of_prediction() -> None:
    """Without a prediction nothing is divided."""
    metrics = Metrics()
    metrics.batch(items=1, seconds=2.0, units=9, padded=9, wasted_share=0, predicted_s=0)
    assert read(metrics, "seawall_prediction_error_ratio_count") == 0


def test_worker_cpu_never_falls() -> None:
    """A worker's clock starts again with each process; the counter goes on."""
    metrics = Metrics()
    seen = []
    for index, cpu_s in [(0, 1.0), (0, 4.0), (1, 2.0), (0, 0.5), (1, 2.5), (0, 1.5)]:
        metrics.worker_sample(index, 1, cpu_s, (0, 0, 0))
        seen.append(read(metrics, "seawall_worker_cpu_seconds_total"))
    assert seen == [1.0, 4.0, 6.0, 6.5, 7.0, 8.0]


def test_a_worker_that_ended_holds_nothing() -> None:
    """Memory is that of living processes, and the largest device's total."""
    metrics = Metrics()
    now = replace(BUSY, worker_states=("ready", "loading"))
    metrics.bind(lambda: now)
    metrics.worker_sample(0, 100, 1.0, (10, 20, 80))
    metrics.worker_sample(1, 200, 1.0, (11, 22, 80))
    assert read(metrics, "seawall_worker_rss_bytes") == 300
    assert read(metrics, "seawall_device_memory_bytes", kind="allocated") == 21
    assert read(metrics, "seawall_device_memory_bytes", kind="reserved") == 42
    assert read(metrics, "seawall_device_memory_bytes", kind="total") == 80
    now = replace(now, worker_states=("restarting", "ready"))
    assert read(metrics, "seawall_worker_rss_bytes") == 200
    metrics.worker_gone(1)
    assert read(metrics, "seawall_worker_rss_bytes") == 0
    assert read(metrics, "seawall_worker_cpu_seconds_total") == 2


def test_build_info_is_one_series() -> None:
    """What is learned later replaces what was known before."""
    metrics = Metrics()
    metrics.build_info(version="1", task="fill-mask", model="m", device="auto")
    metrics.build_info(version="1", task="fill-mask", model="m", device="cpu")
    (info,) = (one for one in samples(metrics) if one.name == "seawall_build_info")
    assert info.value == 1
    assert info.labels == {"version": "1", "task": "fill-mask", "model": "m", "device": "cpu"}


@pytest.mark.parametrize(
    "call, value",
    [
        ("batch_split", "luck"),
        ("oom", "luck"),
        ("breaker_transition", "ajar"),
        ("worker_restart", "bored"),
        ("connection_dropped", "ugly"),
    ],
)
def test_a_label_takes_listed_values_only(call: str, value: str) -> None:
    """A value outside the catalogue raises and makes no series."""
    metrics = Metrics()
    before = page(metrics).count("\n")
    with pytest.raises(KeyError):
        getattr(metrics, call)(value)
    assert page(metrics).count("\n") == before


def test_every_error_code_is_an_outcome() -> None:
    """The list of errors and the label of outcomes are one list."""
    (row,) = (row for row in CATALOGUE if row.name == "seawall_requests_total")
    assert row.labels == (("outcome", ("ok", *ERRORS)),)


# ---------------------------------------------------------------- the loop's lag


def test_lag_is_what_the_timer_was_late() -> None:
    """A loop in time shows 0; one that was blocked shows how long."""
    lags: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        blocked_s = 0.0

        def block() -> None:
            nonlocal blocked_s
            blocked_s += 0.25

        sampler = LoopLag(lags.append, lambda: loop.time() + blocked_s)
        task = asyncio.create_task(sampler.run())
        loop.call_later(1.5 * INTERVAL_S, block)
        await asyncio.sleep(3.5 * INTERVAL_S)
        task.cancel()

    run_virtual(main())
    assert lags == pytest.approx([0.0, 0.25, 0.0], abs=1e-6)
