"""A worker is lost: who is told what, who waits on, who is suspected, and when to give up."""

from __future__ import annotations

import msgspec
import pytest

from service.core.errors import Stage
from service.worker.wire import Probed
from service.workers import Loss, WorkerState
from tests.front.scripted import DEATHS, FACTS, FIXED_S, House, Script, batch_s, text, virtual

ENDS = {"crash": 0.25, "stray_kill": 0.25, "oom_kill": 0.25, "device_lost": 0.25, "hang": 5.0}
"""When a batch of eight units that began at 0 ends its worker."""

REASONS = {name: reason for name, (reason, _) in DEATHS.items()} | {
    "device_lost": Loss.DEVICE_LOST,
    "hang": Loss.HUNG,
}


@pytest.mark.parametrize("how", ENDS)
@virtual
async def test_a_lost_worker_with_work_in_every_stage(how: str) -> None:
    """What ran is told at once; what waited or was prepared is run by the next worker."""
    script = Script(marks={"bad": how, "stuck": "prepare_hang"})
    async with House(script) as house:
        bad = house.send(text("bad"), timeout_s=60.0)
        waiting = house.send(text("waits"), timeout_s=60.0)
        await house.step()
        preparing = house.send(text("stuck"), timeout_s=60.0)
        assert await bad.end() == "worker_lost"
        script.marks.clear()
        assert bad.ended == ENDS[how]
        assert [reason for _, reason in house.worker.losses] == [REASONS[how]]
        assert house.metric("worker_restarts_total", reason=REASONS[how]) == 1
        assert (waiting.outcome, preparing.outcome) == ("", "")
        assert not house.dispatcher.ready()[0]
        assert await house.ends(waiting, preparing) == ["ok", "ok"]
        assert waiting.ended is not None
        assert waiting.ended >= ENDS[how] + script.reload_s


@virtual
async def test_who_cannot_wait_for_the_reload_is_told_at_once() -> None:
    """A deadline before the reload: model_loading now; a later one waits and is run."""
    script = Script(marks={"bad": "crash"}, reload_s=2.0)
    async with House(script) as house:
        house.send(text("other"))
        await house.until(1.0)
        house.worker.die()
        await house.ready()
        assert house.dispatcher.crew.reload_s == 2.0
        at = house.now
        house.send(text("bad"), timeout_s=60.0)
        early = house.send(text("early"), timeout_s=2.25)
        late = house.send(text("late"), timeout_s=3.0)
        assert await early.end() == "model_loading"
        assert early.ended == at + 0.25
        assert early.problem is not None
        assert early.problem.retry_after_s == 2.0
        assert await late.end() == "ok"
        assert late.ended == at + 0.25 + 2.0 + 0.25


@virtual
async def test_nobody_hangs_when_the_reload_takes_too_long() -> None:
    """Whoever waits for a reload that never ends gets 504 at its own deadline."""
    script = Script(marks={"bad": "crash"})
    async with House(script) as house:
        house.send(text("bad"), timeout_s=60.0)
        caller = house.send(text("waits"), timeout_s=30.0)
        script.load = "hang"
        assert await caller.end() == "deadline_exceeded"
        assert caller.ended == 30.0
        assert caller.problem is not None
        assert caller.problem.stage is Stage.QUEUED


@virtual
async def test_a_second_loss_sends_away_who_cannot_wait_any_more() -> None:
    """At each loss, also of a worker that never got ready, the waiting are judged anew."""
    script = Script(marks={"bad": "crash"})
    async with House(script, restart_limit=100) as house:
        house.send(text("bad"), timeout_s=60.0)
        caller = house.send(text("waits"), timeout_s=5.0)
        script.load = "crash"
        assert await caller.end() == "model_loading"
        # Lost at 0.25, 2.25 and 4.25: then 5.25 is later than the deadline.
        assert caller.ended == 4.25


@virtual
async def test_retry_after_of_a_lost_worker() -> None:
    """Told to come back when a worker is there: the reload time, or at once if one is left."""
    for workers, expected in ((1, 7.0), (2, 1.0)):
        async with House(Script(marks={"bad": "crash"}), workers=workers) as house:
            house.dispatcher.crew.reload_s = 7.0
            caller = house.send(text("bad"))
            await caller.end()
            assert caller.problem is not None
            assert caller.problem.retry_after_s == expected


# ---------------------------------------------------------------------- suspects


@pytest.mark.parametrize("how", ["crash", "oom_kill", "device_lost", "hang"])
@virtual
async def test_suspects_run_alone_and_are_poisoned_by_two_lone_kills(how: str) -> None:
    """Members of a deadly batch run alone; the one that kills alone twice is refused."""
    script = Script(marks={"bad": how})
    async with House(script, restart_limit=100) as house:
        house.send(text("first"), timeout_s=60.0)
        await house.step()
        together = [house.send(text(name), timeout_s=60.0) for name in ("a", "bad", "b")]
        assert await house.ends(*together) == ["worker_lost"] * 3
        assert house.batches[-1] == ("a", "bad", "b")

        for _ in range(2):
            await house.ready()
            house.send(text("first"), timeout_s=60.0)
            await house.step()
            again = [house.send(text(name), timeout_s=60.0) for name in ("a", "bad", "b")]
            outcomes = await house.ends(*again)
            assert outcomes == ["ok", "worker_lost", "ok"]
            assert [len(batch) for batch in house.batches[-3:]] == [1, 1, 1]

        await house.ready()
        refused = house.send(text("bad"))
        assert refused.outcome == "poisoned_input"
        listed = house.send(text("a"), text("bad"))
        assert listed.outcome == "poisoned_input"
        assert listed.problem is not None
        assert [error.pointer for error in listed.problem.errors] == ["/inputs/1"]
        assert await house.send(text("a")).end() == "ok"
        await house.until(house.now + 600.0)
        script.marks.clear()
        assert await house.send(text("bad")).end() == "ok"


@virtual
async def test_a_stray_kill_is_no_evidence() -> None:
    """A SIGKILL from outside makes nobody a suspect."""
    async with House(Script(marks={"bad": "stray_kill"}), restart_limit=100) as house:
        for _ in range(4):
            assert await house.send(text("bad")).end() == "worker_lost"
            await house.ready()
        assert len(house.dispatcher.crew._suspects) == 0


@virtual
async def test_the_like_in_the_queue_are_suspects_too() -> None:
    """The same input, sent many times at once, kills three times and no more."""
    script = Script(marks={"bad": "crash"})
    async with House(script) as house:
        callers = [house.send(text("bad", 4), timeout_s=60.0) for _ in range(12)]
        good = [house.send(text(f"n{number}", 4), timeout_s=60.0) for number in range(12)]
        await house.ends()
        assert len(house.worker.losses) <= 3
        assert {caller.outcome for caller in callers} == {"worker_lost", "poisoned_input"}
        assert [caller.outcome for caller in good].count("ok") >= 12 - 5
        assert house.fatal == []


# ---------------------------------------------------------------------- preparing


@virtual
async def test_an_input_that_kills_its_preparer_is_poisoned() -> None:
    """An input that ends the worker while it is prepared is refused before the service gives up."""
    script = Script(marks={"bad": "prepare_crash"})
    async with House(script) as house:
        bad = house.send(text("bad"), timeout_s=60.0)
        other = house.send(text("other"), timeout_s=60.0)
        assert await bad.end() == "worker_lost"  # the second time it was prepared in a lone run
        assert len(house.worker.losses) == 2
        assert await other.end() == "ok"
        assert house.send(text("bad")).outcome == "poisoned_input"
        assert house.fatal == []


@virtual
async def test_nobody_is_poisoned_by_what_another_did_beside_it() -> None:
    """An input that kills while others run beside it is found out, and they are not blamed."""
    script = Script(marks={"bad": "prepare_crash", "slow": "slow=1"}, prepare_s=1 / 64)
    async with House(script, restart_limit=100) as house:
        outcomes = []
        for _ in range(6):
            slow = house.send(text("slow"), timeout_s=60.0)
            await house.when(lambda: house.worker.busy)
            bad = house.send(text("bad"), timeout_s=60.0)
            outcomes.append(await house.ends(slow, bad))
            await house.ready()
        assert ["worker_lost", "poisoned_input"] not in outcomes[:1]
        assert house.send(text("bad")).outcome == "poisoned_input"
        assert await house.send(text("slow"), timeout_s=60.0).end() == "ok"
        assert len(house.worker.losses) <= 4


@virtual
async def test_a_suspect_that_does_not_fit_is_told_so() -> None:
    """A suspect is prepared in its own run, and learns there what is wrong with it."""
    script = Script(marks={"odd": "crash"})
    async with House(script, restart_limit=100) as house:
        callers = [house.send(text(name), timeout_s=60.0) for name in ("first", "odd", "a")]
        await house.ends(*callers)
        script.marks = {"odd": "unfit"}
        await house.ready()
        odd = house.send(text("odd"), timeout_s=60.0)
        assert await odd.end() == "invalid_input"
        assert await house.send(text("a")).end() == "ok"


@virtual
async def test_an_input_in_preparation_is_not_blamed_for_the_canary() -> None:
    """Who is prepared while a canary finds the device lost is no suspect."""
    script = Script(marks={"bad": "error"}, canary="lost", prepare_s=1 / 4)
    async with House(script) as house:
        house.send(text("bad"), timeout_s=60.0)  # runs from 0.25, its canary from 0.5 to 0.625
        await house.until(1 / 2)
        innocent = house.send(text("innocent"), timeout_s=60.0)
        await house.when(lambda: bool(house.worker.losses))
        assert house.worker.prepared == ["bad"]
        assert len(house.dispatcher.crew._suspects) == 0
        script.canary = "good"
        assert await innocent.end() == "ok"


@virtual
async def test_an_input_in_preparation_is_not_blamed_for_babble() -> None:
    """Who is prepared while the worker breaks the protocol is no suspect."""
    async with House(Script(prepare_s=1 / 4)) as house:
        innocent = house.send(text("innocent"), timeout_s=60.0)
        await house.step()
        house.worker.say(Probed(999, ok=True))
        await house.turn()
        assert house.worker.losses
        assert len(house.dispatcher.crew._suspects) == 0
        assert await innocent.end() == "ok"


@virtual
async def test_an_input_that_stops_the_tokeniser_is_found() -> None:
    """A tokeniser that stands still for as long as a hung batch may is killed with its worker."""
    script = Script(marks={"bad": "prepare_hang"})
    async with House(script) as house:
        bad = house.send(text("bad"))
        other = house.send(text("other"), timeout_s=60.0)
        assert await bad.end() == "deadline_exceeded"
        assert bad.problem is not None
        assert bad.problem.stage is Stage.PREPARE
        assert await other.end() == "ok"
        assert house.worker.losses == [(house.loop.time() - 2.25, Loss.HUNG)]
        assert house.worker.losses[0][0] - house.loop.time() + house.now == 5.0


@virtual
async def test_a_busy_model_does_not_make_a_tokeniser_look_stuck() -> None:
    """While a batch runs within its time nobody is killed for what waits to be prepared."""
    script = Script(marks={"long": "slow=20"}, prepare_s=1 / 64)
    facts = msgspec.structs.replace(FACTS, cost_unit_s=1.0)
    script.facts = facts
    async with House(script, deadline_ms=60_000) as house:
        long = house.send(text("long", 8), timeout_s=60.0)  # predicted 8.125: hung after 81
        await house.until(1.0)
        script.marks["stuck"] = "prepare_hang"
        stuck = house.send(text("stuck"), timeout_s=21.0)
        assert await long.end() == "ok"
        assert house.worker.losses == []
        assert await stuck.end() == "deadline_exceeded"


@virtual
async def test_slow_preparing_is_no_stall() -> None:
    """A long line of items, each prepared in time, is no reason to kill."""
    async with House(Script(prepare_s=2.0), deadline_ms=60_000) as house:
        callers = [house.send(text(f"n{number}"), timeout_s=60.0) for number in range(8)]
        assert await house.ends(*callers) == ["ok"] * 8
        assert house.worker.losses == []


# ---------------------------------------------------------------------- watchdog


@pytest.mark.parametrize(
    "units,settings,expected",
    [
        (8, {}, 5.0),
        (64, {}, 10 * batch_s(64)),
        (8, {"watchdog_ms": 1500}, 1.5),
    ],
)
@virtual
async def test_watchdog(units: int, settings: dict[str, int], expected: float) -> None:
    """A batch that does not come back is killed after max(5 s, 10 times predicted), or as set."""
    async with House(Script(every="hang"), **settings) as house:  # type: ignore[arg-type]
        caller = house.send(text("stuck", units), timeout_s=60.0)
        assert await caller.end() == "worker_lost"
        assert caller.ended == expected


@virtual
async def test_a_hung_worker_makes_the_service_unready() -> None:
    """A hang with a queue behind it: everybody is told in time, and readiness is gone."""
    async with House(Script(marks={"bad": "hang"}), restart_limit=100) as house:
        house.send(text("bad"))
        waiting = [house.send(text(f"n{number}")) for number in range(5)]
        outcomes = await house.ends(*waiting)
        assert outcomes == ["deadline_exceeded"] * 5
        assert house.now == 4.0
        await house.until(5.0)
        assert not house.dispatcher.ready()[0]
        await house.ready()
        assert await house.send(text("a")).end() == "ok"


# ---------------------------------------------------------------------- giving up


@virtual
async def test_crash_loop_gives_up_once() -> None:
    """At ``restart_limit`` deaths without a good batch the exit code is 4, once, and not before."""
    async with House(restart_limit=3) as house:
        for _ in range(3):
            await house.ready()
            assert house.fatal == []
            house.worker.die()
        assert house.fatal == [4]
        await house.until(house.now + 3.0)
        house.worker.die()
        assert house.fatal == [4]
        assert not house.dispatcher.ready()[0]
        assert house.dispatcher.state == "failed"
        assert len(house.events("worker.crash_loop")) >= 1


@virtual
async def test_a_good_batch_between_is_no_crash_loop() -> None:
    """Deaths with good client batches between them never add up."""
    async with House(restart_limit=3) as house:
        for _ in range(10):
            house.worker.die()
            await house.ready()
            assert await house.send(text("a")).end() == "ok"
        assert house.fatal == []


@virtual
async def test_unusable_answers_do_not_hide_a_crash_loop() -> None:
    """A batch without one usable answer is no good batch."""
    async with House(Script(marks={"nan": "empty"}), restart_limit=3) as house:
        for _ in range(3):
            await house.ready()
            assert await house.send(text("nan")).end() == "model_error"
            await house.until(house.now + 0.25)
            house.worker.die()
        assert house.fatal == [4]


@virtual
async def test_deaths_far_apart_are_no_crash_loop() -> None:
    """Only deaths inside the window count together."""
    async with House(restart_limit=3, restart_window_s=100) as house:
        for _ in range(6):
            house.worker.die()
            await house.until(house.now + 51.0)
        assert house.fatal == []


@pytest.mark.parametrize("reason,code", [("model_broken", 3), ("no_device", 2)])
@virtual
async def test_a_first_load_that_fails_is_fatal(reason: str, code: int) -> None:
    """A model that cannot be loaded at the start ends the service: 3, or 2 without its device."""
    async with House(Script(load=reason), wait=False) as house:
        await house.until(1.0)
        assert house.fatal == [code]
        assert house.dispatcher.state == "failed"
        assert house.worker.state is WorkerState.FAILED


@virtual
async def test_a_later_load_that_fails_is_tried_again() -> None:
    """A model that could be loaded before is tried again."""
    script = Script()
    async with House(script) as house:
        script.load = "hub_unreachable"
        house.worker.die()
        await house.until(3.0)
        assert house.fatal == []
        script.load = "ready"
        await house.ready()
        assert await house.send(text("a")).end() == "ok"
        assert len(house.events("worker.failed")) == 1


@virtual
async def test_a_crash_during_the_first_load_is_tried_again() -> None:
    """A worker that dies while it loads for the first time is started again."""
    script = Script(load="crash")
    async with House(script, wait=False) as house:
        await house.until(1.5)
        script.load = "ready"
        await house.ready()
        assert house.fatal == []


# ---------------------------------------------------------------------- two workers


@virtual
async def test_two_workers_share_the_work() -> None:
    """Both run at the same time, and each prepares about half."""
    async with House(workers=2) as house:
        callers = [house.send(text(f"n{number}", 24)) for number in range(4)]
        await house.ends(*callers)
        assert house.starts == [0.0, 0.0, 0.5, 0.5]
        assert sorted(len(worker.runs) for worker in house.workers) == [2, 2]
        assert sorted(len(worker.prepared) for worker in house.workers) == [2, 2]


@virtual
async def test_the_other_worker_takes_over() -> None:
    """What one worker was preparing or would have run the other one does; only what ran is lost."""
    script = Script(prepare_s=1 / 16)
    async with House(script, workers=2) as house:
        callers = [house.send(text(f"n{number}"), timeout_s=60.0) for number in range(8)]
        await house.until(1 / 8)
        victim = house.workers[0]
        running = victim.runs[-1].names if victim.busy else ()
        victim.die()
        outcomes = await house.ends(*callers)
        lost = [caller for caller in callers if caller.outcome == "worker_lost"]
        assert len(lost) == len(running) == 1
        assert outcomes.count("ok") == 7
        assert house.now < 2.0
        taken = house.workers[1].prepared
        assert len(taken) == len(set(taken)), "what it had already was not sent again"


@virtual
async def test_line_of_two_workers_is_half_as_long() -> None:
    """Predicted wait counts the workers that are ready."""
    waits = []
    for workers in (1, 2):
        async with House(workers=workers) as house:
            await house.until(1.0)
            for number in range(workers):
                house.send(text(f"b{number}", 64))
            await house.turn()
            for number in range(4):
                house.send(text(f"n{number}"))
            waits.append(house.dispatcher.snapshot().predicted_wait_s - 1.125)
    assert waits[1] == pytest.approx(waits[0] / 2)
    assert waits[0] > FIXED_S
