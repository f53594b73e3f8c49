"""The breaker in its place: what opens it, what waits then, and how it always comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from service.core.breaker import BreakerState
from service.workers import Loss, WorkerState
from tests.front.scripted import FIXED_S, Caller, House, Script, batch_s, text, virtual


def state(house: House) -> BreakerState:
    """Where the breaker is."""
    return house.dispatcher.circuit.state


async def fail(house: House, times: int) -> None:
    """So many confirmed failures in a row."""
    house.script.every, house.script.canary = "error", "bad"
    for _ in range(times):
        caller = house.send(text("victim"), timeout_s=60.0)
        assert await caller.end() == "circuit_open"
        await house.turn()


async def heal(house: House) -> None:
    """The model works again."""
    house.script.every, house.script.canary = "", "good"


async def half_open(house: House) -> None:
    """Open the breaker, and wait until its first good canary."""
    await fail(house, 5)
    await heal(house)
    await house.when(lambda: state(house) is BreakerState.HALF_OPEN)


@virtual
async def test_five_confirmed_failures_open_it() -> None:
    """Four failures in a row change nothing; the fifth opens the breaker and readiness is gone."""
    async with House() as house:
        await fail(house, 4)
        assert state(house) is BreakerState.CLOSED
        assert house.dispatcher.ready()[0]
        await fail(house, 1)
        assert state(house) is BreakerState.OPEN
        assert house.dispatcher.ready() == (
            False,
            "the model fails its self-test and the breaker is open",
        )
        assert house.metric("breaker_transitions_total", to="open") == 1
        assert house.metric("breaker_state", state="open") == 1
        assert len(house.events("breaker.opened")) == 1


@virtual
async def test_a_good_batch_between_breaks_the_row() -> None:
    """Failures count only in a row."""
    async with House() as house:
        for _ in range(3):
            await fail(house, 4)
            await heal(house)
            assert await house.send(text("a")).end() == "ok"
        assert state(house) is BreakerState.CLOSED


@virtual
async def test_who_waits_is_told_at_once() -> None:
    """When it opens, everybody who waits or is prepared gets circuit_open in the same instant."""
    async with House(Script(marks={"stuck": "prepare_hang"})) as house:
        await fail(house, 4)
        house.send(text("victim", 24), timeout_s=60.0)
        await house.step()
        waiting = [house.send(text(f"n{number}"), timeout_s=60.0) for number in range(3)]
        preparing = house.send(text("stuck"), timeout_s=60.0)
        listed = house.send(text("l0"), text("l1"), timeout_s=60.0)
        opened = house.now - 1 / 64 + batch_s(24) + FIXED_S
        assert await house.ends(*waiting, preparing, listed) == ["circuit_open"] * 5
        assert house.now == opened
        assert len(house.dispatcher.queue) == 0
        for caller in (*waiting, preparing, listed):
            assert caller.problem is not None
            assert caller.problem.retry_after_s is not None
            assert caller.problem.retry_after_s >= 1.0


@virtual
async def test_open_it_sends_canaries_and_no_client() -> None:
    """Open, nobody is admitted, and a canary goes out each second, give or take a tenth."""
    async with House() as house:
        await fail(house, 5)
        batches = len(house.batches)
        opened = house.loop.time()
        before = len(house.worker.probes)
        for _ in range(20):
            assert house.send(text("a")).outcome == "circuit_open"
            await house.until(house.now + 0.25)
        assert len(house.batches) == batches
        probes = [opened, *house.worker.probes[before:]]
        gaps = [after - at for at, after in pairwise(probes)]
        assert len(gaps) >= 4
        assert all(0.9 <= gap <= 1.1 for gap in gaps)


@virtual
async def test_refusals_name_the_next_canary() -> None:
    """Who is refused is told when the next canary is due, a second at the least."""
    async with House(breaker_probe_ms=5000) as house:
        await fail(house, 5)
        refusal = house.dispatcher.gate()
        assert refusal is not None
        assert refusal.retry_after_s is not None
        assert 4.5 <= refusal.retry_after_s <= 5.5


@virtual
async def test_a_good_canary_half_opens_it() -> None:
    """Half-open is ready, and no batch holds more than four items."""
    async with House() as house:
        await half_open(house)
        assert house.dispatcher.ready()[0]
        before = len(house.batches)
        callers = [house.send(text(f"n{number}", 3), timeout_s=60.0) for number in range(9)]
        assert await house.ends(*callers) == ["ok"] * 9
        sizes = [len(batch) for batch in house.batches[before:]]
        assert sizes[:2] == [1, 4]
        assert state(house) is BreakerState.CLOSED
        assert house.metric("breaker_transitions_total", to="closed") == 1


@virtual
async def test_two_good_batches_close_it() -> None:
    """Half-open, the second good batch of clients closes it."""
    async with House() as house:
        await half_open(house)
        assert await house.send(text("a")).end() == "ok"
        assert state(house) is BreakerState.HALF_OPEN
        assert await house.send(text("b")).end() == "ok"
        assert state(house) is BreakerState.CLOSED


@virtual
async def test_three_good_canaries_close_it_without_traffic() -> None:
    """Half-open and nobody comes: three more good canaries close it, and then none are sent."""
    async with House() as house:
        await half_open(house)
        at, before = house.now, len(house.worker.probes)
        await house.when(lambda: state(house) is BreakerState.CLOSED)
        assert len(house.worker.probes) - before == 3
        assert 2.7 <= house.now - at <= 3.6
        await house.until(house.now + 30.0)
        assert len(house.worker.probes) - before == 3


@virtual
async def test_a_failure_while_half_open_opens_it_again() -> None:
    """Half-open, one confirmed failure is enough."""
    async with House() as house:
        await half_open(house)
        await fail(house, 1)
        assert state(house) is BreakerState.OPEN
        assert house.metric("breaker_transitions_total", to="open") == 2


Trial = Callable[[House], Awaitable[Caller]]


async def _invalid(house: House) -> Caller:
    return house.send(text("unfit"))


async def _leaves(house: House) -> Caller:
    caller = house.send(text("leaves"))
    await house.step()
    assert caller.ticket is not None
    caller.ticket.leave()
    return caller


async def _late(house: House) -> Caller:
    return house.send(text("slow"), timeout_s=0.375)


async def _shed(house: House) -> Caller:
    house.send(text("slow"))
    await house.step()
    return house.send(text("shed"), timeout_s=1 / 64)


@pytest.mark.parametrize(
    "trial,outcome",
    [
        (_invalid, "invalid_input"),
        (_leaves, "client_gone"),
        (_late, "deadline_exceeded"),
        (_shed, "overloaded"),
    ],
)
@virtual
async def test_a_trial_without_a_verdict_does_not_wedge_it(trial: Trial, outcome: str) -> None:
    """Whatever becomes of the trial, a valid request is answered within one more interval."""
    marks = {"unfit": "unfit", "slow": "slow=0.25", "leaves": "slow=0.25"}
    async with House(Script(marks=marks)) as house:
        await half_open(house)
        caller = await trial(house)
        assert await caller.end() == outcome
        valid = house.send(text("valid"))
        sent = house.now
        assert await valid.end() == "ok"
        assert valid.ended is not None
        assert valid.ended - sent <= 1.1
        await house.when(lambda: state(house) is BreakerState.CLOSED)


@virtual
async def test_faults_of_clients_never_count() -> None:
    """Unfit inputs, late ones, leavers and refused ones leave breaker and counter at rest."""
    marks = {"unfit": "unfit", "raises": "prepare_error", "input": "input", "slow": "slow=2"}
    async with House(Script(marks=marks), queue_limit=8) as house:
        for _ in range(10):
            for name in ("unfit", "raises", "input"):
                await house.send(text(name)).end()
            plan = house.dispatcher.pool.plan
            assert plan is not None
            plan.cost.speed = 1.0  # what the slow batches taught
            slow = house.send(text("slow"), timeout_s=1.0)
            await house.step()
            late = [house.send(text(f"l{number}", 4), timeout_s=1.5) for number in range(4)]
            gone = [house.send(text(f"g{number}", 4)) for number in range(4)]
            shed = [house.send(text(f"s{number}")) for number in range(4)]
            for caller in gone:
                assert caller.ticket is not None
                caller.ticket.leave()
            await house.ends(slow, *late, *gone, *shed)
            await house.until(house.now + 3.0)
        counted = house.count()
        assert set(counted) >= {"invalid_input", "deadline_exceeded", "client_gone", "queue_full"}
        assert state(house) is BreakerState.CLOSED
        assert house.dispatcher.circuit._breaker.failures_in_row == 0
        assert house.metric("breaker_transitions_total", to="open") == 0
        assert await house.send(text("valid")).end() == "ok"


@virtual
async def test_slowness_and_solved_memory_failures_never_count() -> None:
    """Slow batches, and memory failures that splitting solves, are no failures."""
    async with House(Script(oom_above=1, speed=3.0), batch_ms=4000, deadline_ms=8000) as house:
        for _ in range(10):
            house.send(text("n", 4), timeout_s=60.0)
            await house.step()
            callers = [house.send(text(f"n{number}", 4), timeout_s=60.0) for number in range(4)]
            await house.ends(*callers)
            house.dispatcher.pool.budget._budget = float("inf")
        assert house.metric("oom_total", recovery="split") >= 10
        assert house.dispatcher.circuit._breaker.failures_in_row == 0


@virtual
async def test_ten_bad_canaries_restart_the_worker() -> None:
    """After ten bad canaries in a row a fresh worker is started, and it half-opens the breaker."""
    async with House() as house:
        await fail(house, 5)
        before = len(house.worker.probes)
        await house.when(lambda: bool(house.worker.losses))
        assert len(house.worker.probes) - before == 10
        assert [reason for _, reason in house.worker.losses] == [Loss.PROBE_FAILED]
        refusal = house.dispatcher.gate()
        assert refusal is not None
        assert refusal.code == "model_loading"
        await heal(house)
        await house.ready()
        assert state(house) is BreakerState.HALF_OPEN
        assert await house.send(text("a")).end() == "ok"
        assert house.fatal == []


@virtual
async def test_canaries_count_anew_after_a_restart() -> None:
    """While one worker restarts, the other has ten canaries of its own before it follows."""
    async with House(Script(reload_s=100.0), workers=2) as house:
        await fail(house, 5)
        before = sum(len(worker.probes) for worker in house.workers)
        await house.when(lambda: all(worker.losses for worker in house.workers))
        assert sum(len(worker.probes) for worker in house.workers) - before == 20


@virtual
async def test_the_last_workers_lost_device_opens_it() -> None:
    """The last worker's lost device opens the breaker; its restart half-opens it."""
    async with House(Script(marks={"bad": "device_lost"})) as house:
        assert await house.send(text("bad")).end() == "worker_lost"
        assert state(house) is BreakerState.OPEN
        refusal = house.dispatcher.gate()
        assert refusal is not None
        assert refusal.code == "model_loading"
        await house.ready()
        assert state(house) is BreakerState.HALF_OPEN


@virtual
async def test_deaths_in_a_row_open_it() -> None:
    """A worker lost in a batch is a failure like a confirmed one: five in a row open it."""
    async with House(Script(), restart_limit=100) as house:
        for number in range(5):
            assert state(house) is BreakerState.CLOSED
            house.script.marks[f"bad{number}"] = "crash"
            assert await house.send(text(f"bad{number}")).end() == "worker_lost"
            await house.until(house.now + 3.0)
        assert house.metric("breaker_transitions_total", to="open") == 1
        assert house.dispatcher.ready()[0]
        assert await house.send(text("a")).end() == "ok"


@virtual
async def test_with_another_worker_ready_it_stays_closed() -> None:
    """A worker that dies, or loses its device, leaves the pool; the other serves on."""
    script = Script(marks={"crash": "crash", "device": "device_lost"})
    async with House(script, workers=2) as house:
        for name in ("crash", "device"):
            assert await house.send(text(name)).end() == "worker_lost"
            assert sorted(worker.state for worker in house.workers) == sorted(
                (WorkerState.READY, WorkerState.RESTARTING)
            )
            assert await house.send(text("a")).end() == "ok"
            assert state(house) is BreakerState.CLOSED
            assert house.dispatcher.ready()[0]
            await house.until(house.now + 3.0)


@virtual
async def test_results_from_before_the_opening_do_not_count() -> None:
    """A batch that began before the breaker opened neither closes it nor opens it again."""
    script = Script(marks={"slow": "slow=4"})
    async with House(script, workers=2) as house:
        slow = house.send(text("slow"), timeout_s=60.0)
        await house.step()
        script.marks["victim"], script.canary = "error", "bad"
        for _ in range(5):
            assert await house.send(text("victim")).end() == "circuit_open"
            await house.turn()
        assert state(house) is BreakerState.OPEN
        assert await slow.end() == "ok"
        assert state(house) is BreakerState.OPEN


@virtual
async def test_a_list_that_waits_and_runs_is_told_too() -> None:
    """A list of which some items wait is told when the breaker opens, although others run."""
    script = Script(marks={"l0": "slow=4"})
    async with House(script, workers=2) as house:
        script.marks["victim"], script.canary = "error", "bad"
        for _ in range(4):
            assert await house.send(text("victim")).end() == "circuit_open"
            await house.turn()
        last = house.send(text("victim", 24))
        await house.step()
        listed = house.send(text("l0", 24), text("l1", 24), timeout_s=60.0)
        await house.ends(last, listed)
        assert state(house) is BreakerState.OPEN
        assert listed.outcome == "circuit_open"
        assert listed.ended == last.ended
