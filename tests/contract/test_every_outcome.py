"""After every way in which a request can end, the metrics are what they were promised to be."""

from __future__ import annotations

import asyncio
import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.core.errors import ERRORS, outcome_class, problem
from service.core.errors import Stage as Step
from service.metrics import CATALOGUE, Kind
from tests.front.http_stage import Client, Stage, ask, until

GOOD = '{"inputs": "a M"}'

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def page(stage: Stage) -> tuple[dict[str, str], Series]:
    """Types by name, and every series of the page with its value."""
    text = stage.metrics.render(None)[0].decode()
    families = list(text_string_to_metric_families(text))
    types = {one.name + ("_total" if one.type == "counter" else ""): one.type for one in families}
    samples = [sample for one in families for sample in one.samples]
    return types, {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples}


async def leave(stage: Stage) -> None:
    """Ask, and be gone before there is an answer."""
    client = Client(stage.app, headers=[("Content-Type", "application/json")])
    client.send(GOOD.encode())
    before = len(stage.dispatcher.tickets)
    served = asyncio.create_task(client.run())
    await until(lambda: len(stage.dispatcher.tickets) > before)
    client.leave()
    await served


@pytest.fixture(scope="module")
def driven() -> tuple[Stage, Series]:
    """The app after one request of each end, and its series before the first."""
    stage = Stage()
    _, before = page(stage)
    ask(stage.app, GOOD)
    for code in ERRORS:
        if code == "client_gone":
            stage.dispatcher.mode = "hold"
            asyncio.run(leave(stage))
            stage.dispatcher.mode = "answer"
        else:
            late = Step.QUEUED if code == "deadline_exceeded" else None
            stage.dispatcher.gate_says = problem(code)._replace(stage=late)
            ask(stage.app, GOOD)
            stage.dispatcher.gate_says = None
    return stage, before


def test_every_outcome_is_counted_once(driven: tuple[Stage, Series]) -> None:
    """One request, one count, under its own code and in its own class."""
    stage, _ = driven
    assert stage.outcomes() == dict.fromkeys(("ok", *ERRORS), 1)
    classes = [outcome_class(one).value for one in ("ok", *ERRORS)]
    name = "request_duration_seconds_count"
    timed = {one: stage.value(name, outcome_class=one) for one in classes}
    assert timed == {one: classes.count(one) for one in classes}
    for name, code in (("deadline_exceeded", "late"), ("client_gone", "gone")):
        by_stage = [stage.value(f"{name}_total", stage=one.value) for one in Step]
        assert sum(by_stage) == timed[code] == 1


def test_use_makes_no_series_and_loses_none(driven: tuple[Stage, Series]) -> None:
    """Whatever ends how, the page has the series that it had at the start, and all are numbers."""
    stage, before = driven
    _, after = page(stage)
    assert set(after) == set(before)
    assert all(math.isfinite(value) for value in after.values())


def test_every_metric_is_exposed_with_all_its_series(driven: tuple[Stage, Series]) -> None:
    """Each row of the catalogue stands there with its type and every combination of labels."""
    stage, _ = driven
    types, series = page(stage)
    for row in CATALOGUE:
        assert types[row.name] == row.kind.value
        end = "_count" if row.kind is Kind.HISTOGRAM else ""
        known = [dict(zip(row.label_names, values, strict=True)) for values in row.children()]
        for labels in known:
            assert (row.name + end, tuple(sorted(labels.items()))) in series, (row.name, labels)
