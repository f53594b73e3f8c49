"""The service from start to stop, and the figures it shows of itself on the way."""

from __future__ import annotations

import msgspec
import pytest

from service.core.lifecycle import ServiceState
from service.core.split import MOST_WORKERS
from tests.front.scripted import FACTS, House, Script, batch_s, text, virtual


@virtual
async def test_from_loading_to_ready() -> None:
    """Loading, then ready in the instant of READY, with the limits made from what it measured."""
    async with House(wait=False) as house:
        dispatcher = house.dispatcher
        before = (dispatcher.state, dispatcher.ever_ready, dispatcher.limits)
        assert before == (ServiceState.LOADING, False, None)
        await house.until(1.0)
        assert house.dispatcher.ready() == (True, "ready for traffic")
        assert house.dispatcher.ever_ready
        limits = house.dispatcher.limits
        assert limits is not None
        assert (limits.deadline_s, limits.wait_cap_s, limits.batch_s) == (4.0, 2.0, 0.5)
        assert house.dispatcher.int_facts == {
            "vocab_size": 0, "max_tokens": 512, "width": 0, "rate_hz": 0,
        }  # fmt: skip
        assert house.metric("model_load_seconds") == 1.0


@virtual
async def test_the_first_of_several_workers_makes_it_ready() -> None:
    """One ready worker is enough; the others join when they are."""
    async with House(workers=2, wait=False) as house:
        await house.turn()
        house.workers[0].script = Script(load="hang")
        await house.until(1.0)
        assert house.dispatcher.ready()[0]
        assert await house.send(text("a")).end() == "ok"


@virtual
async def test_the_first_worker_says_how_many() -> None:
    """With ``workers`` auto the others start when the first is ready, as many as it found best."""
    facts = msgspec.structs.replace(FACTS, workers=3)
    async with House(Script(facts=facts), wait=False) as house:
        await house.turn()
        assert [len(house.workers), house.metric("workers")] == [1, 1]
        await house.until(1.0)
        assert [worker.state for worker in house.workers] == ["ready", "loading", "loading"]
        assert await house.send(text("a")).end() == "ok"
        await house.until(2.0)
        assert {worker.state for worker in house.workers} == {"ready"}
        assert house.metric("workers") == 3
        house.worker.die()
        await house.until(10.0)
        assert len(house.workers) == 3  # a worker that comes back brings nobody


@virtual
async def test_a_number_of_workers_that_was_given_stays() -> None:
    """What the operator set is what there is, whatever a worker thinks."""
    facts = msgspec.structs.replace(FACTS, workers=3)
    async with House(Script(facts=facts), workers=2) as house:
        await house.until(3.0)
        assert len(house.workers) == 2


@virtual
async def test_a_worker_cannot_ask_for_a_crowd() -> None:
    """However many workers the model's process asks for, there is a bound."""
    facts = msgspec.structs.replace(FACTS, workers=1_000_000)
    async with House(Script(facts=facts)) as house:
        await house.until(3.0)
        assert len(house.workers) == MOST_WORKERS


@virtual
async def test_a_drain_serves_on_until_admission_stops() -> None:
    """After ``start_drain`` it is not ready but serves; after ``stop_admitting`` it refuses."""
    async with House() as house:
        house.dispatcher.start_drain()
        assert house.dispatcher.state is ServiceState.DRAINING
        assert not house.dispatcher.ready()[0]
        inside = house.send(text("a"))
        assert await inside.end() == "ok"
        house.dispatcher.stop_admitting()
        refused = house.send(text("b"))
        assert refused.outcome == "draining"
        assert refused.problem is not None
        assert refused.problem.retry_after_s == 1.0


@virtual
async def test_a_drain_finishes_what_is_inside() -> None:
    """``drained`` returns when the last request is out, and not before."""
    async with House(Script(marks={"slow": "slow=1"})) as house:
        callers = [house.send(text(name)) for name in ("slow", "a", "b", "c", "d")]
        await house.step()
        house.dispatcher.stop_admitting()
        await house.dispatcher.drained()
        drained = house.now
        assert await house.ends() == ["ok"] * 5
        assert drained == callers[-1].ended


@virtual
async def test_a_drain_does_not_wait_for_work_that_is_for_nobody() -> None:
    """``answered`` returns when the last client has its end, whatever its batch still does."""
    async with House(Script(marks={"slow": "slow=4"})) as house:
        caller = house.send(text("slow"), timeout_s=1.0)
        await house.step()
        house.dispatcher.stop_admitting()
        await house.dispatcher.answered()
        assert house.now == 1.0
        assert house.in_flight() == (0, 1)
        assert await caller.end() == "deadline_exceeded"
        await house.dispatcher.drained()
        assert house.now > 4.0


@virtual
async def test_an_idle_service_is_drained_at_once() -> None:
    """With nobody inside there is nothing to wait for."""
    async with House() as house:
        house.dispatcher.stop_admitting()
        await house.dispatcher.answered()
        await house.dispatcher.drained()
        assert house.now == 0.0


@virtual
async def test_leftovers_of_a_drain_are_told() -> None:
    """At the end of the drain whoever is left gets 503 draining, in the queue and in the model."""
    async with House(Script(marks={"slow": "slow=4"})) as house:
        callers = [house.send(text(name)) for name in ("slow", "a", "b")]
        await house.until(2.0)
        await house.dispatcher.stop()
        assert await house.ends() == ["draining"] * 3
        assert [caller.ended for caller in callers] == [2.0] * 3
        assert house.dispatcher.state is ServiceState.STOPPED


@pytest.mark.parametrize("when", [0.0, 0.5, 1.0, 1.25])
@virtual
async def test_stop_at_any_time(when: float) -> None:
    """Stopping while it loads, idles, runs or is half-way through leaves nothing behind."""
    async with House(wait=False) as house:
        await house.until(when)
        for number in range(6):
            house.send(text(f"n{number}"))
        await house.step()
        await house.dispatcher.stop()
        await house.until(when + 60.0)
        assert set(await house.ends()) == {"model_loading" if when < 1.0 else "draining"}


@virtual
async def test_stop_while_the_breaker_probes() -> None:
    """Stopping while the breaker is open, and a canary runs, leaves no timer."""
    async with House(Script(every="error", canary="bad"), breaker_failures=1) as house:
        assert await house.send(text("a")).end() == "circuit_open"
        await house.when(lambda: house.worker.busy)


@virtual
async def test_gauges_fall_whatever_the_way_out() -> None:
    """Ten crowds that leave early: depth and requests in flight are 0 afterwards."""
    async with House(queue_limit=50) as house:
        for _ in range(10):
            crowd = [house.send(text(f"n{number}")) for number in range(40)]
            assert 0 <= house.metric("queue_depth") <= 50
            await house.until(house.now + 0.1875)
            for caller in crowd:
                if caller.ticket is not None:
                    caller.ticket.leave()
            assert house.metric("queue_depth") == 0
            await house.until(house.now + 5.0)
            assert house.in_flight() == (0, 0)


@virtual
async def test_snapshot_while_it_works() -> None:
    """A scrape shows depth, age, waits and requests as they are at that moment."""
    async with House(queue_limit=16) as house:
        house.send(text("first", 24))  # until 0.5
        await house.until(0.125)
        house.send(text("a"))
        house.send(text("b"))
        await house.until(0.25)
        seen = house.dispatcher.snapshot()
        assert (seen.queue_depth, seen.queue_limit, seen.queue_depth_peak) == (
            2,
            16,
            2.0,
        )
        assert seen.oldest_age_s == 0.125
        assert (seen.in_flight_queued, seen.in_flight_running) == (2, 1)
        # 0.25 s are left of the batch; 16 units, with 30 % padding, are one batch.
        assert seen.predicted_wait_s == pytest.approx(0.25 + 0.125 + 1.3 * 16 / 64)
        assert (seen.wait_cap_s, seen.deadline_s) == (2.0, 4.0)
        assert seen.worker_states == ("ready",)


@virtual
async def test_fill_by_hand() -> None:
    """The integrals of the fill agree with values worked out by hand."""
    async with House(Script(marks={"n": "slow=3"}), queue_limit=4) as house:
        before = house.dispatcher.snapshot()
        assert (before.fill_seconds, before.fill_ratio) == (0.0, 0.0)
        house.send(text("n"))  # runs until 3.25
        await house.until(1.0)
        callers = [house.send(text(f"w{number}")) for number in range(4)]
        assert house.dispatcher.snapshot().fill_ratio == 1.0
        await house.until(2.0)
        for caller in callers:  # full from 1.0 to 2.0
            assert caller.ticket is not None
            caller.ticket.leave()
        after = house.dispatcher.snapshot()
        assert after.full_items_seconds == 1.0
        # From 0 to 1 the predicted wait, as at 0, was 0.25 of 2 s; from 1 to 2 it was full; at 2.0
        # the batch is overdue by 1.75 s.
        assert after.fill_seconds == 0.125 * 1.0 + 1.0
        assert after.fill_ratio == 1.75 / 2.0
        await house.until(2.25 + 1 / 8)
        house.dispatcher.snapshot()  # overdue by 2.125: over the cap from now on
        await house.until(3.0)
        late = house.dispatcher.snapshot()
        assert late.full_wait_seconds == 0.625
        assert late.fill_seconds == 1.125 + 0.375 * 0.875 + 0.625 * 2.125 / 2.0


@virtual
async def test_queue_waits_are_the_integral_of_the_depth() -> None:
    """Each item is observed once, on every way out, and the waits add up to the integral."""
    async with House(Script(marks={"slow": "slow=1", "bad": "unfit"}), queue_limit=16) as house:
        for number in range(32):
            await house.until(number / 8)
            name = ("slow", "bad", "x", "y")[number % 4]
            caller = house.send(text(name), timeout_s=0.5 + number / 16)
            if number % 3 == 0 and caller.ticket is not None:
                house.loop.call_later(0.25, caller.ticket.leave)
        await house.ends()
        assert len(house.count()) >= 4
        waits = []
        for caller in house.callers:
            if caller.ticket is not None:
                (item,) = caller.ticket.items
                assert caller.ended is not None
                out = item.started or caller.ended + house.loop.time() - house.now
                waits.append(out - item.arrived)
        assert house.metric("queue_wait_seconds_count") == len(waits)
        assert house.metric("queue_wait_seconds_sum") == sum(waits)


@virtual
async def test_batches_are_counted() -> None:
    """Sizes, tokens, times and predictions of batches stand in the metrics."""
    async with House() as house:
        house.send(text("first", 16))
        await house.step()
        house.send(text("a", 8))
        house.send(text("b", 7))
        await house.ends()
        assert house.metric("batch_items_sum") == 3
        assert house.metric("batch_items_count") == 2
        assert house.metric("tokens_total", kind="real") == 31
        assert house.metric("tokens_total", kind="padding") == 1
        seconds = batch_s(16) + batch_s(8, 8)
        assert house.metric("batch_seconds_sum") == seconds
        assert house.metric("inference_seconds_total", use="useful") == seconds
        assert house.metric("inference_seconds_total", use="wasted") == 0
        assert house.metric("prediction_error_ratio_sum") == 2
        assert house.metric("batch_gap_seconds_sum") == 0
        for stage, count in (("prepare", 3), ("queue", 3), ("infer", 2)):
            assert house.metric("stage_duration_seconds_count", stage=stage) == count


@virtual
async def test_status_is_plain_values() -> None:
    """``status`` is JSON as it stands, before and after the model is ready."""
    import json

    async with House(wait=False) as house:
        assert json.loads(json.dumps(house.dispatcher.status()))["state"] == "loading"
        await house.until(1.0)
        house.send(text("a"))
        await house.step()
        status = json.loads(json.dumps(house.dispatcher.status()))
        assert status["state"] == "ready"
        assert status["workers"][0]["running_items"] == 1
        assert status["requests"] == {"queued": 0, "running": 1}
