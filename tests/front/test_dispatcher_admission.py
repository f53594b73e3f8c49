"""Who is let in, and until when: the dispatcher's intake in virtual time.

With a deadline of 4 s the wait cap is 2 s and a batch may take 0.5 s, which is 24 units.
"""

from __future__ import annotations

from typing import Any

import pytest

from service.core.errors import Problem
from tests.front.scripted import House, Script, batch_s, text, virtual

LONG: dict[str, Any] = {"deadline_ms": 60_000, "max_wait_ms": 60_000}
"""Limits under which only the number of places refuses."""


@virtual
async def test_burst_is_cut_exactly() -> None:
    """Of N + k requests at one moment exactly the last k are refused, and at once."""
    async with House(queue_limit=10, **LONG) as house:
        callers = [house.send(text(f"n{number}")) for number in range(17)]
        assert [caller.outcome for caller in callers] == [""] * 10 + ["queue_full"] * 7
        assert len(house.dispatcher.queue) == 10
        assert await house.ends(*callers[:10]) == ["ok"] * 10


@virtual
async def test_burst_beside_a_running_batch_is_cut_exactly() -> None:
    """What runs takes no place: N wait beside it, the rest is refused."""
    async with House(queue_limit=10, **LONG) as house:
        house.send(text("first", 64))
        await house.step()
        callers = [house.send(text(f"n{number}")) for number in range(17)]
        assert sum(caller.outcome == "queue_full" for caller in callers) == 7
        assert await house.ends(*callers[:10]) == ["ok"] * 10


@virtual
async def test_bytes_bound_the_queue_too() -> None:
    """Inputs past ``queue_bytes`` are refused like inputs past ``queue_limit``."""
    async with House(queue_bytes=1024, **LONG) as house:
        assert house.send(text("a"), nbytes=600).outcome == ""
        assert house.send(text("b"), nbytes=600).outcome == "queue_full"
        assert house.send(text("c"), nbytes=400).outcome == ""


@virtual
async def test_order_of_admission_is_the_order_of_service() -> None:
    """Requests of one length are run in the order in which they came."""
    async with House(**LONG) as house:
        names = [f"n{number}" for number in range(10)]
        for name in names:
            house.send(text(name))
        await house.ends()
        assert [name for batch in house.batches for name in batch] == names


@virtual
async def test_idle_worker_always_admits() -> None:
    """With an idle worker and an empty queue no prediction refuses, and the request is run."""
    async with House() as house:
        plan = house.dispatcher.pool.plan
        assert plan is not None
        plan.cost.speed = 1000.0
        plan.cost.batches = 100
        caller = house.send(text("a"), timeout_s=1.0)
        assert await caller.end() == "ok"
        assert caller.ended == batch_s(8)
        assert plan.cost.speed < 1000.0


@virtual
async def test_an_estimator_far_off_finds_out() -> None:
    """Started a hundred times too pessimistic, the service soon takes what it can do."""
    async with House() as house:
        plan = house.dispatcher.pool.plan
        assert plan is not None
        plan.cost.speed = 100.0
        for number in range(60):
            house.send(text(f"n{number}"))
            await house.until(house.now + 0.25)
        await house.ends()
        assert [caller.outcome for caller in house.callers[-20:]] == ["ok"] * 20


@virtual
async def test_predicted_wait_over_the_cap_is_refused() -> None:
    """While the running batch will take longer than the cap, everybody is refused with a time."""
    async with House() as house:
        house.send(text("big", 256), timeout_s=60.0)  # runs for 4.125 s
        await house.turn()
        refused = house.send(text("a"))
        assert refused.outcome == "overloaded"
        assert refused.problem is not None
        assert refused.problem.retry_after_s is not None
        assert 2.125 <= refused.problem.retry_after_s <= 4.25
        await house.until(2.125 - 1 / 64)
        assert house.send(text("b")).outcome == "overloaded"
        await house.until(2.125)
        assert await house.send(text("c")).end() == "ok"


@virtual
async def test_a_burst_at_an_idle_worker_is_cut_by_its_wait() -> None:
    """A worker that is still idle passes nobody over the cap once others wait before them."""
    async with House() as house:
        for number in range(40):
            house.send(text(f"n{number}"), timeout_s=60.0)
        assert house.count()["overloaded"] > 20
        # With 30 % padding nine are 94 units, four batches, 1.96 s: the tenth may come. Ten are 104
        # units, five batches, 2.25 s: the eleventh may not.
        assert house.count()[""] == 10
        assert await house.ends(*house.callers[:10]) == ["ok"] * 10


@virtual
async def test_size_plays_no_part_in_the_wait() -> None:
    """Short and long requests are refused by the same wait."""
    async with House() as house:
        house.send(text("big", 256), timeout_s=60.0)
        await house.turn()
        assert house.send(text("a", 1)).outcome == house.send(text("b", 100)).outcome
        assert house.count()["overloaded"] == 2


@virtual
async def test_an_overdue_batch_counts_as_busy_for_as_long_again() -> None:
    """A stall is seen: once a batch is overdue by more than the cap, nobody is admitted."""
    async with House(Script(marks={"stall": "hang"})) as house:
        house.send(text("stall"), timeout_s=60.0)  # predicted to end at 0.25
        await house.until(2.25)
        assert house.dispatcher.gate() is None
        await house.until(2.25 + 1 / 64)
        problem = house.dispatcher.gate()
        assert problem is not None
        assert problem.code == "overloaded"


@virtual
async def test_a_stalled_canary_counts_as_busy_too() -> None:
    """A canary that does not come back is seen in the predicted wait like a batch."""
    script = Script(marks={"bad": "error"}, canary="hang")
    async with House(script) as house:
        house.send(text("bad"), timeout_s=60.0)
        await house.until(3.0)
        assert house.dispatcher.snapshot().predicted_wait_s > 2.0


@virtual
async def test_a_stalled_tokeniser_counts_as_busy_too() -> None:
    """A worker that stands still before its first batch is noticed like one in the middle of it."""
    async with House(Script(marks={"stuck": "prepare_hang"})) as house:
        stuck = house.send(text("stuck"), timeout_s=60.0)
        await house.until(1.5)
        assert house.dispatcher.snapshot().predicted_wait_s == pytest.approx(1.5, abs=0.5)
        assert house.dispatcher.gate() is None
        await house.until(2.25)
        for gone in (False, True):  # with an empty queue it is no idle worker either
            if gone:
                assert stuck.ticket is not None
                stuck.ticket.leave()
            refusal = house.dispatcher.gate()
            assert refusal is not None
            assert refusal.code == "overloaded"


@virtual
async def test_finish_past_the_own_deadline_is_refused_at_once() -> None:
    """A request that would come too late is told so on arrival, not at its deadline."""
    async with House() as house:
        house.send(text("first", 64), timeout_s=60.0)  # runs until 1.125
        await house.turn()
        assert house.send(text("a"), timeout_s=1.25).outcome == "overloaded"
        assert await house.send(text("b"), timeout_s=1.5).end() == "ok"


@virtual
async def test_deadline_too_short_is_said_only_of_a_measured_idle_run() -> None:
    """A deadline is called too short if a lone run, as measured, is longer; else 503 overloaded."""
    async with House() as house:
        for number in range(10):
            await house.send(text(f"n{number}")).end()
        house.send(text("first", 64), timeout_s=60.0)
        await house.turn()
        short = house.send(text("a"), timeout_s=0.24)
        assert short.outcome == "deadline_too_short"
        assert short.problem is not None
        assert short.problem.min_timeout_ms == 250
        assert house.send(text("b"), timeout_s=0.25).outcome == "overloaded"


@virtual
async def test_no_text_is_dearer_than_the_longest_that_the_model_takes() -> None:
    """A text far too long for the model is let in to be told so, not refused for its length."""
    async with House(Script(units=8)) as house:
        for number in range(10):
            await house.send(text(f"n{number}")).end()
        long = house.send(text("long", 4000), timeout_s=20.0)
        assert long.outcome == ""
        assert house.dispatcher.queue.units <= 512
        assert await long.end() == "ok"


@virtual
async def test_unmeasured_estimates_never_blame_the_client() -> None:
    """Before ten batches no deadline is called too short."""
    async with House() as house:
        house.send(text("first", 64), timeout_s=60.0)
        await house.turn()
        assert house.send(text("a"), timeout_s=0.1).outcome == "overloaded"


@virtual
async def test_lists_are_admitted_whole_or_not_at_all() -> None:
    """A list takes all its places or none."""
    async with House(queue_limit=10, **LONG) as house:
        house.send(text("first", 64))
        await house.step()
        for number in range(8):
            house.send(text(f"n{number}"))
        refused = house.send(*(text(f"l{number}") for number in range(3)))
        assert refused.outcome == "queue_full"
        assert len(house.dispatcher.queue) == 8
        taken = house.send(*(text(f"m{number}") for number in range(2)))
        assert len(house.dispatcher.queue) == 10
        assert await taken.end() == "ok"
        assert taken.names == ("m0", "m1")


@virtual
async def test_a_list_beyond_the_plan_is_told_what_fits() -> None:
    """A list that takes longer than the wait cap is 413 with the items that fit, and they do."""
    async with House() as house:
        refused = house.send(*(text(f"n{number}") for number in range(40)))
        assert refused.outcome == "payload_too_large"
        assert refused.problem is not None
        fits = refused.problem.limit
        assert fits is not None
        assert 1 < fits < 40
        assert await house.send(*(text(f"n{number}") for number in range(fits))).end() == "ok"


@virtual
async def test_a_long_list_with_a_long_deadline_is_taken() -> None:
    """A client that names a deadline may send a list that takes longer than the cap."""
    async with House() as house:
        caller = house.send(*(text(f"n{number}") for number in range(40)), timeout_s=60.0)
        assert await caller.end() == "ok"


@virtual
async def test_default_deadline_of_a_list_grows_with_its_work() -> None:
    """A list has the default deadline and twice its estimated time, at most the largest allowed."""
    # Four items of 8 units are 32 units, two batches: 0.75 s.
    for most_ms, expected in ((60_000, 5.5), (5_000, 5.0)):
        async with House(max_deadline_ms=most_ms) as house:
            plan = house.dispatcher.pool.plan
            assert plan is not None
            plan.cost.padding = 1.0
            caller = house.send(*(text(f"n{number}") for number in range(4)))
            assert caller.ticket is not None
            assert caller.ticket.items[0].deadline - house.loop.time() == expected


@virtual
async def test_a_list_of_one_is_a_list() -> None:
    """A list of one has a list's deadline."""
    async with House() as house:
        plan = house.dispatcher.pool.plan
        assert plan is not None
        caller = house.send(text("a"), is_list=True)
        assert caller.ticket is not None
        assert caller.ticket.items[0].deadline - house.loop.time() == 4.0 + 2 * batch_s(8)


@pytest.mark.parametrize(
    "given,expected",
    [
        pytest.param({"timeout_s": 1.0, "age_s": 0.5, "body_s": 0.25}, 0.5, id="named: headers"),
        pytest.param({"age_s": 0.5, "body_s": 0.25}, 3.75, id="default: body"),
        pytest.param({"timeout_s": 60.0, "age_s": 0.5}, 4.5, id="clamped"),
        pytest.param({"timeout_s": 0.25, "age_s": 0.5}, 0.0, id="past"),
        pytest.param({"proxy_s": 1.0, "age_s": 0.5, "body_s": 0.25}, 0.5, id="proxy: headers"),
        pytest.param({"proxy_s": 31.0}, 4.0, id="proxy: no longer than the default"),
        pytest.param({"age_s": 4.5}, 0.0, id="default: past"),
    ],
)
@virtual
async def test_deadlines_begin_where_they_should(given: dict[str, Any], expected: float) -> None:
    """A named deadline starts at the headers, the default at the body's end."""
    script = Script(marks={"stuck": "slow=4.5"})
    async with House(script, max_deadline_ms=5000) as house:
        caller = house.send(text("stuck"), **given)
        assert await caller.end() == "deadline_exceeded"
        assert caller.ended == expected


@virtual
async def test_before_the_model_is_ready_nobody_is_admitted() -> None:
    """While the model loads the answer is 503 model_loading with a time, body unread or read."""
    async with House(wait=False) as house:
        gate = house.dispatcher.gate()
        caller = house.send(text("a"))
        assert caller.problem is not None
        for problem in (gate, caller.problem):
            assert problem is not None
            assert problem.code == "model_loading"
            assert problem.retry_after_s == 5.0
        await house.until(0.75)
        refused = house.dispatcher.gate()
        assert refused is not None
        assert refused.retry_after_s == 4.25


def _code(problem: Problem | None) -> str:
    return problem.code if problem else "open"


@virtual
async def test_gate_and_admission_agree() -> None:
    """What the gate refuses with the body unread, admission refuses for the same reason."""
    async with House(queue_limit=2, **LONG) as house:
        seen = [_code(house.dispatcher.gate())]
        house.send(text("first", 64))
        await house.step()
        house.send(text("a"))
        seen.append(_code(house.dispatcher.gate()))
        house.send(text("b"))
        seen.append(_code(house.dispatcher.gate()))
        assert house.send(text("c")).outcome == seen[-1]
        house.dispatcher.stop_admitting()
        seen.append(_code(house.dispatcher.gate()))
        assert house.send(text("d")).outcome == seen[-1]
        assert seen == ["open", "open", "queue_full", "draining"]
