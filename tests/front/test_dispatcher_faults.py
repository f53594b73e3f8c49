"""Faults of the model over a long time: innocents, openings, and how soon all is well again."""

from __future__ import annotations

import random

import pytest

from service.core.lifecycle import REASONS, ServiceState
from service.workers import Loss, WorkerState
from tests.front.scripted import Caller, House, Script, text, virtual

ROUNDS = 200
LOAD_S = 3 / 8
"""Between two arrivals: seven tenths of what the worker can do."""


@virtual
async def test_no_innocent_fails_in_two_hundred_rounds() -> None:
    """One poison among seven neighbours, 200 times: it fails each time, they never do."""
    chance = random.Random(7)
    async with House(Script(marks={"bad": "error"})) as house:
        for number in range(ROUNDS):
            first = house.send(text("first"))
            await house.step()
            names = [f"n{number}a{n}" for n in range(7)]
            names.insert(chance.randrange(8), "bad")
            callers = {name: house.send(text(name, 8), timeout_s=60.0) for name in names}
            await house.ends(first, *callers.values())
            assert callers["bad"].outcome == "model_error"
        assert house.count() == {"ok": 8 * ROUNDS, "model_error": ROUNDS}
        assert len(house.worker.probes) == ROUNDS
        together = [batch for batch in house.batches if "bad" in batch and len(batch) > 1]
        assert len(together) >= ROUNDS
        assert house.metric("breaker_transitions_total", to="open") == 0
        assert house.dispatcher.circuit._breaker.failures_in_row == 0
        assert house.worker.losses == []


async def arrivals(house: House, until_s: float) -> None:
    """One request after the other, until then."""
    while house.now < until_s:
        house.send(text("a", 9))
        await house.until(house.now + LOAD_S)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("broken_s", [3.0, 20.0])
@virtual
async def test_a_model_broken_for_a_while(
    seed: int, broken_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most five batches are lost before it opens; it is closed two seconds after the fault."""
    monkeypatch.setattr("service.dispatcher.dispatcher.random", random.Random(seed))
    script = Script(reload_s=0.5)
    async with House(script) as house:
        await arrivals(house, 2.0)
        script.every, script.canary = "error", "bad"
        await arrivals(house, 2.0 + broken_s)
        script.every, script.canary = "", "good"
        names = [event["event"] for event in house.log]
        assert names[: names.index("breaker.opened")].count("batch.failed") <= 5
        # A worker that was restarted meanwhile fails its self-test: it stays open.
        assert house.metric("breaker_transitions_total", to="open") == 1
        assert names.count("batch.failed") == 5
        while house.dispatcher.circuit.state != "closed":
            await arrivals(house, house.now + LOAD_S)
        assert house.now <= 2.0 + broken_s + 2.0
        sent = len(house.callers)
        await arrivals(house, house.now + 10.0)
        assert set(await house.ends(*house.callers[sent:])) == {"ok"}
        assert house.fatal == []


@virtual
async def test_a_model_that_stays_broken_ends_nothing() -> None:
    """A fault outside the process may last: restarts for it are no crash loop."""
    script = Script(reload_s=1.0)
    async with House(script) as house:
        script.every, script.canary = "error", "bad"
        await arrivals(house, 600.0)
        assert len(house.worker.losses) > 10
        assert {reason for _, reason in house.worker.losses} == {Loss.PROBE_FAILED}
        assert house.fatal == []
        assert house.dispatcher.state is ServiceState.OPEN or house.worker.state != "ready"
        script.every, script.canary = "", "good"
        await house.when(lambda: house.dispatcher.circuit.state == "closed")
        assert house.now <= 604.0
        assert await house.send(text("again")).end() == "ok"


@virtual
async def test_a_crashed_worker_that_comes_back_sick_opens_the_breaker() -> None:
    """A reload whose self-test fails lets nobody in and tells who waits; it is probed."""
    script = Script(marks={"bad": "crash"}, reload_s=1.0)
    async with House(script) as house:
        bad = house.send(text("bad"))
        await house.step()
        waiting = house.send(text("waiting"))
        script.canary = "bad"
        assert await bad.end() == "worker_lost"
        assert await waiting.end() == "circuit_open"
        assert house.worker.state is WorkerState.READY
        assert house.send(text("next")).outcome == "circuit_open"
        assert house.dispatcher.ready() == (False, REASONS[ServiceState.OPEN])
        script.canary = "good"
        await house.when(lambda: house.dispatcher.circuit.state == "closed")
        assert len(house.worker.losses) == 1
        assert await house.send(text("again")).end() == "ok"


@virtual
async def test_a_worker_that_comes_back_sick_beside_a_good_one_is_replaced() -> None:
    """The good one serves on; the sick one is restarted until it is well, and gets no client."""
    async with House(workers=2) as house:
        sick, good = house.workers
        sick.script = Script(canary="bad", reload_s=1.0)
        sick.die()
        callers: list[Caller] = []
        while len(sick.losses) < 4:
            callers.append(house.send(text(f"a{len(callers)}"), timeout_s=60.0))
            await house.until(house.now + 0.5)
        assert set(await house.ends(*callers)) == {"ok"}
        assert [reason for _, reason in sick.losses[1:]] == [Loss.PROBE_FAILED] * 3
        assert sick.runs == []
        assert good.losses == []
        assert house.dispatcher.circuit.state == "closed"
        assert house.fatal == []


@virtual
async def test_a_broken_worker_beside_a_good_one_is_replaced() -> None:
    """With another worker's good batches the breaker stays closed: the broken one is restarted."""
    async with House(workers=2) as house:
        bad, good = house.workers
        bad.script = Script(every="error", canary="bad")
        for number in range(100):
            house.send(text(f"a{number}"), timeout_s=60.0)
            house.send(text(f"b{number}"), timeout_s=60.0)
            await house.ends()
            await house.turn()
            if bad.losses:
                break
        assert [reason for _, reason in bad.losses] == [Loss.PROBE_FAILED]
        assert bad.state is WorkerState.RESTARTING
        assert good.losses == []
        assert house.count()["circuit_open"] == 5
        assert house.metric("breaker_transitions_total", to="open") == 0
        assert house.dispatcher.ready()[0]
        bad.script = Script()
        await house.when(lambda: bad.state is WorkerState.READY)
        callers = [house.send(text(f"c{number}"), timeout_s=60.0) for number in range(8)]
        assert await house.ends(*callers) == ["ok"] * 8
        assert house.fatal == []


@virtual
async def test_a_worker_that_fails_now_and_then_is_kept() -> None:
    """A good batch of its own takes a worker's failures back, whatever the others do."""
    async with House(workers=2) as house:
        one = house.workers[0]
        one.script = Script()
        for number in range(40):
            failing = number % 5 < 4
            one.script.every, one.script.canary = ("error", "bad") if failing else ("", "good")
            callers = [house.send(text(f"{name}{number}"), timeout_s=60.0) for name in "ab"]
            await house.ends(*callers)
            await house.turn()
        assert house.count()["circuit_open"] == 32
        assert one.losses == []
        assert house.metric("breaker_transitions_total", to="open") == 0
