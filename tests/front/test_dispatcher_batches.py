"""Which items run together, when, and what comes back: batches in virtual time.

A batch may take 0.5 s, which is 24 units: three items of 8, six of 4.
"""

from __future__ import annotations

import msgspec
import pytest

from service.worker.wire import Prepared, Probed, Result
from service.workers import Loss
from tests.front.scripted import FACTS, House, Script, batch_s, text, virtual


@virtual
async def test_a_lone_request_starts_at_once() -> None:
    """No timer: an idle worker starts the only request in the instant in which it is prepared."""
    async with House(Script(prepare_s=1 / 64)) as house:
        caller = house.send(text("a"))
        await caller.end()
        assert house.starts == [1 / 64]
        assert caller.ended == 1 / 64 + batch_s(8)


@virtual
async def test_a_batch_fills_while_the_worker_is_busy() -> None:
    """What comes while a batch runs starts together in the instant in which it ends."""
    async with House() as house:
        for number, at in enumerate((0.0, 1 / 16, 1 / 8, 3 / 16, 7 / 32)):
            await house.until(at)
            house.send(text(f"n{number}"))
        await house.ends()
        assert house.batches == [("n0",), ("n1", "n2", "n3"), ("n4",)]
        assert house.starts == [0.0, 0.25, 0.75]
        assert [caller.ended for caller in house.callers] == [0.25, 0.75, 0.75, 0.75, 1.0]


@virtual
async def test_neighbours_in_length_run_together() -> None:
    """The head is joined by the items nearest to it in length, not by the next in line."""
    async with House() as house:
        house.send(text("first"))
        await house.step()
        for name, units in (("a", 8), ("long", 20), ("b", 8), ("c", 9), ("d", 8)):
            house.send(text(name, units))
        await house.ends()
        assert house.batches == [("first",), ("a", "b", "d"), ("long",), ("c",)]


@virtual
async def test_mixed_keys_never_mix() -> None:
    """Items whose parameters of the model differ are never in one batch."""
    keys = {f"n{number}": "xy"[number % 2] for number in range(12)}
    async with House(Script(keys=keys)) as house:
        for number in range(12):
            house.send(text(f"n{number}", 4))
        await house.ends()
        assert house.count() == {"ok": 12}
        assert all(len({keys[name] for name in batch}) == 1 for batch in house.batches)
        assert max(len(batch) for batch in house.batches) > 1


@virtual
async def test_a_model_that_cannot_batch_runs_one_at_a_time() -> None:
    """Without a pad token every item runs alone."""
    script = Script(facts=msgspec.structs.replace(FACTS, batchable=False))
    async with House(script) as house:
        for number in range(6):
            house.send(text(f"n{number}"))
        await house.ends()
        assert house.batches == [(f"n{number}",) for number in range(6)]


@virtual
async def test_lists_run_across_batches_and_keep_their_order() -> None:
    """The items of a list run in as many batches as it takes; the answers stand in its order."""
    async with House() as house:
        names = [f"n{number}" for number in range(9)]
        units = [3, 8, 5, 8, 2, 8, 7, 8, 8]
        caller = house.send(
            *(text(name, unit) for name, unit in zip(names, units, strict=True)), timeout_s=60.0
        )
        await caller.end()
        assert caller.names == tuple(names)
        assert len(house.batches) > 1
        assert sum(len(batch) for batch in house.batches) == 9


@virtual
async def test_a_doomed_head_is_dropped_if_others_wait() -> None:
    """Who cannot make it any more is told so when the next batch starts, and the others run."""
    async with House(Script(marks={"slow": "slow=3"})) as house:
        house.send(text("slow"))  # until 3.25, predicted 0.25
        doomed = house.send(text("doomed"), timeout_s=3.375)
        other = house.send(text("other"), timeout_s=10.0)
        assert await house.ends(doomed, other) == ["deadline_exceeded", "ok"]
        assert (doomed.ended, other.ended) == (3.25, 3.5)
        assert doomed.problem is not None
        assert doomed.problem.stage == "queued"
        assert house.batches == [("slow",), ("other",)]


@virtual
async def test_who_is_still_prepared_waits_too() -> None:
    """A doomed head is dropped also if the only other one is still being prepared."""
    script = Script(marks={"slow": "slow=3", "other": "prepare_hang"})
    async with House(script) as house:
        house.send(text("slow"))
        doomed = house.send(text("doomed"), timeout_s=3.375)
        await house.step()
        house.send(text("other"), timeout_s=4.5)
        assert await doomed.end() == "deadline_exceeded"
        assert doomed.ended == 3.25
        await house.ends()
        assert house.batches == [("slow",)]


@virtual
async def test_the_last_one_is_never_dropped() -> None:
    """A doomed request that waits alone is run: only so does a wrong estimator learn."""
    async with House(Script(marks={"slow": "slow=3"})) as house:
        house.send(text("slow"))
        doomed = house.send(text("doomed"), timeout_s=3.375)
        assert await doomed.end() == "deadline_exceeded"
        assert doomed.ended == 3.375
        assert house.batches == [("slow",), ("doomed",)]


@pytest.mark.parametrize("prepare_s", [0.0, 1 / 64])
@virtual
async def test_a_lone_list_is_never_dropped(prepare_s: float) -> None:
    """The items of one list do not doom each other: alone in the house, it is run."""
    async with House(Script(prepare_s=prepare_s)) as house:
        plan = house.dispatcher.pool.plan
        assert plan is not None
        plan.cost.speed = 100.0
        caller = house.send(*(text(f"n{number}") for number in range(3)), timeout_s=2.0)
        assert await caller.end() == "ok"


@virtual
async def test_of_lists_that_are_all_doomed_the_last_one_runs() -> None:
    """However many are dropped at once, somebody is run."""
    async with House(Script(marks={"slow": "slow=3"})) as house:
        house.send(text("slow"), timeout_s=60.0)
        for number in range(3):
            house.send(text(f"a{number}"), text(f"b{number}"), timeout_s=3.375)
        await house.ends()
        assert len(house.batches) == 2


@virtual
async def test_a_doomed_item_takes_its_list_along() -> None:
    """When an item of a list is dropped, its siblings are not run for nothing."""
    async with House(Script(marks={"slow": "slow=3"})) as house:
        house.send(text("slow"))
        doomed = house.send(text("long", 32), text("short", 5), timeout_s=3.5625)
        other = house.send(text("other"), timeout_s=10.0)
        await house.ends()
        assert (doomed.outcome, doomed.ended, other.outcome) == ("deadline_exceeded", 3.25, "ok")
        assert house.batches == [("slow",), ("other",)]


@virtual
async def test_who_was_picked_with_a_doomed_sibling_is_not_run() -> None:
    """A picked item whose list was dropped in the same step leaves the batch; the rest runs."""
    async with House(Script(marks={"slow": "slow=3"})) as house:
        house.send(text("slow"))
        doomed = house.send(text("long", 32), text("short", 5), timeout_s=3.5625)
        near = house.send(text("near", 5), timeout_s=4.0)
        await house.ends()
        assert (doomed.outcome, near.outcome) == ("deadline_exceeded", "ok")
        assert house.batches == [("slow",), ("near",)]


@virtual
async def test_an_unusable_answer_is_its_own_items_error() -> None:
    """An item whose scores are no numbers gets model_error; its neighbours get their answers."""
    async with House(Script(marks={"nan": "empty"})) as house:
        house.send(text("first"))
        await house.step()
        callers = [house.send(text(name)) for name in ("a", "nan", "b")]
        assert await house.ends(*callers) == ["ok", "model_error", "ok"]
        assert house.batches[1] == ("a", "nan", "b")
        assert house.worker.probes == []
        assert house.dispatcher.circuit.state == "closed"


@virtual
async def test_input_that_does_not_fit_is_named_before_any_batch() -> None:
    """An unfit input is 422 with its pointer and limit, and reaches no batch."""
    async with House(Script(marks={"bad": "unfit"})) as house:
        one, many = house.send(text("bad")), house.send(text("a"), text("bad"))
        assert await house.ends() == ["invalid_input", "invalid_input"]
        assert one.problem is not None
        assert many.problem is not None
        assert [error.pointer for error in one.problem.errors] == ["/inputs"]
        assert [error.pointer for error in many.problem.errors] == ["/inputs/1"]
        assert one.problem.errors[0].message == "send another text"
        assert one.problem.limit == 3


@virtual
async def test_a_parameter_that_does_not_fit_is_named() -> None:
    """Where the worker names the parameter at fault, so does the answer."""
    marks = {"prepare": "unfit_parameter", "run": "input_parameter"}
    async with House(Script(marks=marks)) as house:
        for name, pointer in (("prepare", "/parameters/top_k"), ("run", "/parameters/targets")):
            caller = house.send(text(name))
            assert await caller.end() == "invalid_input"
            assert caller.problem is not None
            assert [error.pointer for error in caller.problem.errors] == [pointer]


@virtual
async def test_preparing_that_raises_is_the_items_own_error() -> None:
    """A tokeniser that raises gives model_error for that input and a log line with the place."""
    async with House(Script(marks={"bad": "prepare_error"})) as house:
        assert await house.send(text("bad")).end() == "model_error"
        (event,) = house.events("model.error")
        assert event["frames"] == ["model.py:1 forward"]
        assert await house.send(text("a")).end() == "ok"


@pytest.mark.parametrize("act", ["few", "many", "wrong_batch", "minus"])
@virtual
async def test_answers_that_do_not_add_up_end_the_worker(act: str) -> None:
    """A batch whose answers are doubtful is nobody's answer: the worker is killed."""
    async with House(Script(marks={"bad": act})) as house:
        house.send(text("first"))
        await house.step()
        callers = [house.send(text(name)) for name in ("a", "bad", "b")]
        waits = house.send(text("waits"), timeout_s=30.0)
        assert await house.ends(*callers) == ["worker_lost"] * 3
        assert [caller.ended for caller in callers] == [0.75] * 3
        assert [reason for _, reason in house.worker.losses] == [Loss.CRASHED]
        assert len(house.events("worker.broken")) == 1
        assert await waits.end() == "ok"


@pytest.mark.parametrize(
    "frame",
    [
        Result(1, [b"not asked for"], 0.1, 1, 1),
        Probed(7, ok=True),
        Prepared(999, -1, ""),
    ],
    ids=["result", "probed", "negative"],
)
@virtual
async def test_frames_that_nobody_asked_for_end_the_worker(
    frame: Result | Probed | Prepared,
) -> None:
    """A worker that answers what it was not asked is killed and comes back."""
    async with House() as house:
        house.worker.say(frame)
        await house.turn()
        assert [reason for _, reason in house.worker.losses] == [Loss.CRASHED]
        await house.until(3.0)
        assert await house.send(text("a")).end() == "ok"


@virtual
async def test_an_answer_for_an_item_that_left_is_no_offence() -> None:
    """PREPARED for an item that left meanwhile is dropped in the worker, nothing else."""
    async with House(Script(prepare_s=0.5)) as house:
        caller = house.send(text("a"), timeout_s=0.25)
        await caller.end()
        await house.until(1.0)
        assert caller.ticket is not None
        assert house.worker.prepared == ["a"]
        assert house.worker.dropped.count(caller.ticket.items[0].id) == 2
        assert house.worker.losses == []


@virtual
async def test_a_batch_never_outgrows_its_frame() -> None:
    """However large texts of few units are, a batch goes to the worker in one legal frame."""
    async with House(Script(units=4), queue_bytes=2**30, max_deadline_ms=60_000) as house:
        plan = house.dispatcher.pool.plan
        assert plan is not None
        house.send(text("first"), timeout_s=60.0)
        await house.step()
        plan.cost.units_per_char = 0.0
        for number in range(4):  # together more than the largest frame
            house.send(text(f"n{number}", 20 * 2**20), timeout_s=60.0)
        assert await house.ends() == ["ok"] * 5
        assert house.batches == [("first",), ("n0", "n1"), ("n2", "n3")]


@virtual
async def test_gaps_are_counted_only_while_work_waits() -> None:
    """A gap is a worker idle although work waits; an open breaker or an empty queue is none."""
    script = Script(marks={"bad": "error"}, canary="bad")
    async with House(script, breaker_failures=1) as house:
        house.send(text("bad", 24))
        await house.step()
        house.send(text("waits"))
        await house.ends()
        assert house.dispatcher.circuit.open
        script.canary = "good"
        await house.until(10.0)
        assert await house.send(text("a")).end() == "ok"
        assert house.metric("batch_gap_seconds_sum") < 1.0
