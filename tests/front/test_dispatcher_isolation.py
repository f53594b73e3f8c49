"""A batch failed: who gets which end, how many runs it takes, and what the breaker hears."""

from __future__ import annotations

import msgspec
import pytest

from service.workers import Loss
from tests.front.scripted import FACTS, Caller, House, Script, text, virtual


async def batch_of(house: House, *names: str, units: int = 3, **given: float) -> list[Caller]:
    """Requests that run together: they come while the worker is busy."""
    house.send(text("first"))
    await house.step()
    return [house.send(text(name, units), **given) for name in names]


EIGHT = tuple(f"n{number}" for number in range(8))


@pytest.mark.parametrize("culprit", EIGHT)
@virtual
async def test_one_poison_among_eight(culprit: str) -> None:
    """The culprit gets its own error, its neighbours their answers; the breaker hears nothing."""
    async with House(Script(marks={culprit: "error"})) as house:
        callers = await batch_of(house, *EIGHT)
        outcomes = dict(zip(EIGHT, await house.ends(*callers), strict=True))
        assert house.batches[1] == EIGHT
        assert outcomes == dict.fromkeys(EIGHT, "ok") | {culprit: "model_error"}
        assert len(house.batches) - 1 <= 2 * 8 - 1
        assert len(house.worker.probes) == 1
        assert house.dispatcher.circuit.state == "closed"
        assert house.dispatcher.circuit._breaker.failures_in_row == 0
        assert house.metric("batch_splits_total", reason="isolate") == 3
        assert len(house.events("model.error")) == 1


@virtual
async def test_two_poisons_among_eight() -> None:
    """Two culprits are both found, within the bound of 2n - 1 runs."""
    async with House(Script(marks={"n1": "error", "n6": "error"})) as house:
        callers = await batch_of(house, *EIGHT)
        outcomes = await house.ends(*callers)
        assert [outcome == "model_error" for outcome in outcomes] == [
            name in {"n1", "n6"} for name in EIGHT
        ]
        assert len(house.batches) - 1 <= 15


@virtual
async def test_a_poison_alone_is_run_once() -> None:
    """A lone request that raises is judged by the canary, not run again."""
    async with House(Script(marks={"bad": "error"})) as house:
        assert await house.send(text("bad")).end() == "model_error"
        assert house.batches == [("bad",)]
        assert len(house.worker.probes) == 1


@virtual
async def test_other_work_waits_for_the_isolation() -> None:
    """While a batch is taken apart nothing else runs on that worker; then the line goes on."""
    async with House(Script(marks={"n3": "error"})) as house:
        await batch_of(house, *EIGHT, timeout_s=60.0)
        other = house.send(text("other", 24), timeout_s=60.0)
        assert await other.end() == "ok"
        assert house.batches[-1] == ("other",)


@virtual
async def test_a_broken_model_is_nobodys_fault() -> None:
    """With a bad canary the whole batch gets circuit_open at once, and it is one failure."""
    async with House(Script(marks={"n3": "error"}, canary="bad")) as house:
        callers = await batch_of(house, *EIGHT)
        assert await house.ends(*callers) == ["circuit_open"] * 8
        assert len(house.batches) == 2
        assert house.dispatcher.circuit._breaker.failures_in_row == 1
        assert house.dispatcher.circuit.state == "closed"
        assert all(caller.problem and caller.problem.retry_after_s for caller in callers)


@virtual
async def test_an_input_fault_needs_no_canary() -> None:
    """The item that the worker names gets invalid_input; the rest runs again at once."""
    async with House(Script(marks={"n3": "input"})) as house:
        callers = await batch_of(house, *EIGHT)
        outcomes = await house.ends(*callers)
        assert [outcome for outcome in outcomes if outcome != "ok"] == ["invalid_input"]
        problem = callers[3].problem
        assert problem is not None
        assert [(error.pointer, error.message) for error in problem.errors] == [
            ("/inputs", "send less")
        ]
        assert problem.limit == 7
        assert len(house.batches) == 3
        assert house.worker.probes == []


@virtual
async def test_memory_that_runs_out_is_split() -> None:
    """Everybody of a batch too large for the memory is answered, from smaller ones."""
    async with House(Script(oom_above=2)) as house:
        callers = await batch_of(house, *EIGHT)
        assert await house.ends(*callers) == ["ok"] * 8
        assert [len(batch) for batch in house.batches[1:]] == [8, 4, 2, 2, 4, 2, 2]
        assert house.metric("oom_total", recovery="split") == 3
        assert house.metric("batch_splits_total", reason="oom") == 3
        assert house.worker.probes == []
        assert house.dispatcher.pool.budget.tokens == 6.0
        assert house.dispatcher.circuit._breaker.failures_in_row == 0


@virtual
async def test_the_memory_budget_holds_for_what_comes() -> None:
    """After an overflow the next batches are small enough from the start."""
    async with House(Script(oom_above=2)) as house:
        await house.ends(*await batch_of(house, *EIGHT))
        before = len(house.batches)
        await house.ends(*await batch_of(house, *EIGHT))
        assert all(len(batch) <= 2 for batch in house.batches[before:])
        assert house.metric("oom_total", recovery="split") == 3


@virtual
async def test_good_batches_raise_the_memory_budget_again() -> None:
    """Fifty good batches give back a sixteenth of what a batch may hold."""
    script = Script(oom_above=4)
    async with House(script) as house:
        await house.ends(*await batch_of(house, *EIGHT))
        budget = house.dispatcher.pool.budget
        assert budget.tokens == 12.0
        script.oom_above = 1000
        for _ in range(50):
            assert await house.send(text("a")).end() == "ok"
        assert budget.tokens == 12.0 + 24.0 / 16


@pytest.mark.parametrize("max_tokens,outcome", [(4, "payload_too_large"), (512, "out_of_memory")])
@virtual
async def test_a_lone_input_out_of_memory(max_tokens: int, outcome: str) -> None:
    """Alone and out of memory: too large if nothing of its size ever fitted, else 503."""
    facts = msgspec.structs.replace(FACTS, max_tokens=max_tokens)
    async with House(Script(marks={"big": "oom_alone"}, facts=facts)) as house:
        assert await house.send(text("big")).end() == outcome
        assert house.batches == [("big",)]
        assert len(house.worker.probes) == 1
        assert house.metric("oom_total", recovery="failed") == 1
        assert await house.send(text("a")).end() == "ok"


@virtual
async def test_memory_that_never_fits_ends() -> None:
    """Out of memory at every size: each gets its end within 2n - 1 runs, and it is over."""
    script = Script(every="oom_alone")
    async with House(script) as house:
        script.every = ""
        callers = await batch_of(house, *EIGHT)
        script.every = "oom_alone"
        house.worker.script = script
        outcomes = await house.ends(*callers)
        assert set(outcomes) == {"out_of_memory"}
        assert len(house.batches) - 1 <= 15
        script.every = ""
        assert await house.send(text("a")).end() == "ok"
        assert house.dispatcher.circuit.state == "closed"


@virtual
async def test_whoever_is_late_or_gone_is_not_run_again() -> None:
    """Halves are run only for those who still wait; the gone are out when the isolation ends."""
    async with House(Script(marks={"n0": "error"})) as house:
        callers = await batch_of(house, *EIGHT)
        await house.until(0.5)
        assert house.in_flight() == (0, 8)
        for caller in callers[1:]:
            assert caller.ticket is not None
            caller.ticket.leave()
        assert await callers[0].end() == "model_error"
        await house.turn()
        # Its halves hold nobody else: the eight ran, then halves with one live member.
        assert all(batch == ("n0",) for batch in house.batches[2:])
        assert house.in_flight() == (0, 0)


@virtual
async def test_a_list_fails_by_its_first_item_and_takes_the_rest_along() -> None:
    """A poisoned item fails its list with its pointer; the siblings are not run again."""
    async with House(Script(marks={"l1": "error"})) as house:
        house.send(text("first"))
        await house.step()
        caller = house.send(text("l0", 4), text("l1", 4), text("l2", 4))
        other = house.send(text("other"), timeout_s=60.0)
        assert await caller.end() == "model_error"
        assert caller.problem is not None
        assert [error.pointer for error in caller.problem.errors] == ["/inputs/1"]
        assert await other.end() == "ok"


@pytest.mark.parametrize("death", ["crash", "hang", "device_lost"])
@virtual
async def test_a_worker_lost_in_the_middle_of_an_isolation(death: str) -> None:
    """Whoever still waits for its end gets worker_lost; who had an answer keeps it."""
    script = Script(marks={"n0": "error"})
    async with House(script) as house:
        callers = await batch_of(house, *EIGHT, timeout_s=60.0)
        await house.until(0.75)  # the batch of eight has failed
        script.marks["n7"] = death
        outcomes = await house.ends(*callers)
        assert set(outcomes) <= {"ok", "model_error", "worker_lost"}
        assert outcomes[0] == "model_error"
        assert outcomes[7] == "worker_lost"
        assert "ok" in outcomes
        await house.ready()
        assert await house.send(text("a")).end() == "ok"


@pytest.mark.parametrize("canary,reason", [("crash", Loss.CRASHED), ("hang", Loss.HUNG)])
@virtual
async def test_a_canary_that_ends_the_worker(canary: str, reason: Loss) -> None:
    """A worker lost in its canary gives worker_lost to the batch, and no suspects."""
    script = Script(marks={"n0": "error"}, canary=canary)
    async with House(script) as house:
        callers = await batch_of(house, *EIGHT, timeout_s=60.0)
        assert await house.ends(*callers) == ["worker_lost"] * 8
        assert [loss for _, loss in house.worker.losses] == [reason]
        assert len(house.dispatcher.crew._suspects) == 0
        script.canary = "good"
        await house.ready()
        assert await house.send(text("a")).end() == "ok"


@virtual
async def test_a_canary_that_finds_the_device_lost() -> None:
    """A canary that finds the device gone is a lost worker, not a failed model."""
    script = Script(marks={"n0": "error"}, canary="lost")
    async with House(script) as house:
        callers = await batch_of(house, *EIGHT)
        assert await house.ends(*callers) == ["worker_lost"] * 8
        assert [loss for _, loss in house.worker.losses] == [Loss.DEVICE_LOST]


@virtual
async def test_a_batch_without_one_usable_answer_asks_the_canary() -> None:
    """A model that answers only nonsense is found out although it raises nothing."""
    script = Script(every="empty", canary="bad")
    async with House(script, breaker_failures=3) as house:
        for number in range(3):
            assert await house.send(text(f"n{number}")).end() == "model_error"
            await house.until(house.now + FACTS.cost_fixed_s)
        assert house.dispatcher.circuit.open
        assert not house.dispatcher.ready()[0]


@virtual
async def test_a_lone_unusable_answer_counts_for_nothing() -> None:
    """With a good canary an unusable answer is neither a failure nor a good batch."""
    async with House(Script(marks={"nan": "empty"})) as house:
        assert await house.send(text("nan")).end() == "model_error"
        assert await house.send(text("a")).end() == "ok"
        assert len(house.worker.probes) == 1
        assert house.dispatcher.circuit._breaker.failures_in_row == 0
        assert house.metric("batch_splits_total", reason="isolate") == 0
