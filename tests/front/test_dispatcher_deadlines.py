"""When a request ends without an answer: deadlines, clients that leave, and races."""

from __future__ import annotations

import pytest

from service.core.errors import Stage
from tests.front.scripted import Caller, House, Script, batch_s, text, virtual


def stage_of(caller: Caller) -> Stage | None:
    """How far the request had come, as its problem says."""
    assert caller.problem is not None
    return caller.problem.stage


@virtual
async def test_deadline_in_preparation() -> None:
    """At its deadline a request that is still being prepared gets 504 with that stage."""
    async with House(Script(marks={"stuck": "prepare_hang"})) as house:
        caller = house.send(text("stuck"), timeout_s=1.0)
        assert await caller.end() == "deadline_exceeded"
        assert (caller.ended, stage_of(caller)) == (1.0, Stage.PREPARE)
        assert house.batches == []


@virtual
async def test_deadline_in_the_queue() -> None:
    """At its deadline a request that waits gets 504 then, not when the batch before it ends."""
    async with House(Script(marks={"slow": "slow=3"})) as house:
        house.send(text("slow"))
        caller = house.send(text("late"), timeout_s=1.0)
        assert await caller.end() == "deadline_exceeded"
        assert (caller.ended, stage_of(caller)) == (1.0, Stage.QUEUED)
        await house.ends()
        assert house.batches == [("slow",)]


@virtual
async def test_deadline_in_the_model() -> None:
    """At its deadline a request that runs gets 504; it is in flight until its batch ends."""
    async with House(Script(marks={"slow": "slow=3"})) as house:
        caller = house.send(text("slow"), timeout_s=1.0)
        assert await caller.end() == "deadline_exceeded"
        assert (caller.ended, stage_of(caller)) == (1.0, Stage.RUNNING)
        assert house.in_flight() == (0, 1)
        await house.until(3.25 - 1 / 64)
        assert house.in_flight() == (0, 1)
        await house.until(3.25)
        assert house.in_flight() == (0, 0)
        assert house.metric("inference_seconds_total", use="wasted") == 3.25


@virtual
async def test_answer_within_the_deadline_is_given_when_it_is_there() -> None:
    """A deadline that was met leaves no trace: the answer comes when its batch ends."""
    async with House() as house:
        caller = house.send(text("a"), timeout_s=1.0)
        assert await caller.end() == "ok"
        assert caller.ended == batch_s(8)
        await house.until(2.0)
        assert caller.outcome == "ok"


@virtual
async def test_place_is_free_at_once() -> None:
    """A place comes back at the moment in which a waiting request leaves or is late."""
    async with House(Script(marks={"slow": "slow=3"}), queue_limit=2) as house:
        house.send(text("slow"))
        await house.step()
        leaver, late = house.send(text("leaver")), house.send(text("late"), timeout_s=1.0)
        assert house.send(text("x")).outcome == "queue_full"
        assert leaver.ticket is not None
        leaver.ticket.leave()
        first = house.send(text("first"))
        assert first.outcome == ""
        assert house.send(text("y")).outcome == "queue_full"
        await late.end()
        second = house.send(text("second"))
        assert await house.ends(first, second) == ["ok", "ok"]


@pytest.mark.parametrize(
    "mark,stage,in_flight",
    [
        ("prepare_hang", Stage.PREPARE, (0, 1)),
        ("", Stage.QUEUED, (0, 1)),
    ],
)
@virtual
async def test_client_leaves_before_it_runs(
    mark: str, stage: Stage, in_flight: tuple[int, int]
) -> None:
    """A client that leaves before its input runs costs the model nothing."""
    script = Script(marks={"slow": "slow=1", "leaver": mark})
    async with House(script) as house:
        house.send(text("slow"))
        await house.step()
        caller = house.send(text("leaver"))
        await house.step()
        assert caller.ticket is not None
        assert caller.ticket.leave() is stage
        assert house.in_flight() == in_flight
        assert await caller.end() == "client_gone"
        assert stage_of(caller) is stage
        assert caller.ended == house.now
        await house.until(2.0)
        assert house.batches == [("slow",)]
        assert caller.ticket.items[0].id in house.worker.dropped


@virtual
async def test_client_leaves_while_it_runs() -> None:
    """A client that leaves while it runs is out at once; its batch keeps the worker busy."""
    async with House(Script(marks={"slow": "slow=2"})) as house:
        caller = house.send(text("slow"))
        await house.step()
        assert caller.ticket is not None
        assert caller.ticket.leave() is Stage.RUNNING
        assert await caller.end() == "client_gone"
        assert stage_of(caller) is Stage.RUNNING
        other = house.send(text("other"))
        assert house.in_flight() == (1, 1)
        assert await other.end() == "ok"
        assert house.starts == [0.0, 2.25]


@virtual
async def test_leaving_again_changes_nothing() -> None:
    """A client leaves once; leaving after the end, or twice, is no second outcome."""
    async with House() as house:
        answered, gone = house.send(text("a")), house.send(text("b"))
        assert gone.ticket is not None
        gone.ticket.leave()
        gone.ticket.leave()
        await answered.end()
        assert answered.ticket is not None
        assert answered.ticket.leave() is Stage.RESPOND
        assert (answered.outcome, await gone.end()) == ("ok", "client_gone")


@virtual
async def test_abandoned_crowd_costs_at_most_the_running_batch() -> None:
    """Of twenty clients that leave at once, only what ran already is run to its end."""
    async with House(Script(marks={f"n{number}": "slow=1" for number in range(20)})) as house:
        callers = [house.send(text(f"n{number}", 24)) for number in range(20)]
        await house.until(0.1875)
        for caller in callers:
            if caller.ticket is not None:
                caller.ticket.leave()
        await house.until(5.0)
        assert len(house.batches) <= 2
        gone = [caller for caller in callers if caller.outcome == "client_gone"]
        assert len(gone) >= len([caller for caller in callers if caller.ticket]) - 1
        assert house.in_flight() == (0, 0)
        assert len(house.dispatcher.queue) == 0


@virtual
async def test_answer_and_deadline_at_one_instant() -> None:
    """An answer and a deadline at the same instant give one outcome, whichever it is."""
    async with House() as house:
        for _ in range(8):
            caller = house.send(text("a"), timeout_s=batch_s(8))
            sent = house.now
            assert await caller.end() in {"ok", "deadline_exceeded"}
            assert caller.ended == sent + batch_s(8)
            await house.step()


@virtual
async def test_preparation_and_deadline_at_one_instant() -> None:
    """An item that is prepared at its deadline is either run for nobody or not at all."""
    async with House(Script(prepare_s=0.5)) as house:
        caller = house.send(text("a"), timeout_s=0.5)
        assert await caller.end() == "deadline_exceeded"
        assert caller.ended == 0.5
        assert await house.send(text("b")).end() == "ok"


@virtual
async def test_leaving_and_answer_at_one_instant() -> None:
    """A client that leaves at the instant of its answer has one outcome, whichever comes first."""
    async with House() as house:
        first, second = house.send(text("a", 12)), house.send(text("b", 12))
        assert first.ticket is not None
        assert second.ticket is not None
        house.loop.call_later(batch_s(12), first.ticket.leave)
        await house.ends()
        second.ticket.leave()
        assert first.outcome in {"ok", "client_gone"}
        assert second.outcome == "ok"


@virtual
async def test_late_list_takes_all_its_items_along() -> None:
    """At a list's deadline its waiting items leave at once, whatever its others do."""
    script = Script(marks={"l0": "slow=3"})
    async with House(script, queue_limit=4) as house:
        caller = house.send(*(text(f"l{number}", 24) for number in range(4)), timeout_s=2.0)
        await house.until(1.0)
        assert house.in_flight() == (0, 1)
        assert len(house.dispatcher.queue) == 3
        assert await caller.end() == "deadline_exceeded"
        assert (caller.ended, stage_of(caller)) == (2.0, Stage.RUNNING)
        assert len(house.dispatcher.queue) == 0
        await house.until(5.0)
        assert len(house.batches) == 1


@virtual
async def test_waits_and_times_of_a_reply() -> None:
    """A reply says the longest wait of its items, its model time and its batch."""
    async with House() as house:
        house.send(text("first", 24))  # until 0.5
        await house.turn()
        caller = house.send(text("a"), text("b"))
        await caller.end()
        assert caller.reply is not None
        assert caller.reply.queue_s == 0.5
        assert caller.reply.infer_s == batch_s(8, 8)
        assert caller.reply.batch_items == 2
