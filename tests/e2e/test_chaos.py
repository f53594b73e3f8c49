"""Chaos, a short run of it."""

from __future__ import annotations

import json
import os
import signal
import socket
from itertools import pairwise

import psutil
import pytest

from tests.e2e.chaos import Chaos, Unbalanced, rounds, run
from tests.e2e.chaos_books import SHED, Log, balance, is_own, log_lines
from tests.e2e.chaos_house import (
    SYNTHETIC,
    left_behind,
    state_faults,
    until_right,
)
from tests.e2e.chaos_schedule import CLIENTS, DEADLY, DEEDS, Kind, Schedule, make_schedule
from tests.e2e.load import Call
from tests.e2e.server import Server, wait_for

pytestmark = pytest.mark.e2e

RATE = 40.0


# ---------------------------------------------------------------- schedules


def test_a_seed_is_a_schedule() -> None:
    """The same seed gives the same rounds, another seed others, and JSON keeps them whole."""
    one = rounds(7, [3.0, 3.0, 1.0], rate=RATE, shares=2)
    assert one == rounds(7, [3.0, 3.0, 1.0], rate=RATE, shares=2)
    assert one != rounds(8, [3.0, 3.0, 1.0], rate=RATE, shares=2)
    assert one[0].deeds != one[1].deeds
    assert [Schedule.loads(schedule.dumps()) for schedule in one] == one
    assert [schedule.kind for schedule in one] == [Kind.FULL, Kind.FULL, Kind.DRAIN]


@pytest.mark.parametrize("shares", [1, 2, 3])
def test_nothing_is_left_out(shares: int) -> None:
    """Every client's deed is in each round, every one that costs a worker in each run of them."""
    plan = rounds(3, [3.0] * shares + [1.0], rate=RATE, shares=shares)
    every = {json.dumps(deed) for deed in DEEDS}
    seen = [{json.dumps([deed.what, deed.args]) for deed in one.deeds} for one in plan]
    clients = {json.dumps(deed) for deed in CLIENTS}
    assert all(clients <= deeds for deeds in seen)
    assert every <= set().union(*seen[:-1])
    assert {"terminate"} <= {deed.what for deed in plan[-1].deeds}
    assert len(every) == len(DEEDS) == len(CLIENTS) + len(DEADLY)


def test_a_gentle_round_costs_one_worker() -> None:
    """A model that takes long to load is taken down once."""
    names = {name for name, _ in DEADLY} - {"fault"}
    faults = {args["fault"] for name, args in DEADLY if name == "fault"}
    for seed in range(20):
        schedule = make_schedule(seed, 0, Kind.GENTLE, seconds=3.0, rate=RATE)
        deadly = [d for d in schedule.deeds if d.what in names or d.args.get("fault") in faults]
        assert len(deadly) == 1


# ---------------------------------------------------------------- chaos itself


@pytest.mark.slow
@pytest.mark.parametrize("seed, workers, shares", [(3, 2, 2), (2, 1, 4)])
def test_the_books_balance(seed: int, workers: int, shares: int) -> None:
    """After every fault at once each request has its one end, and the server is as before.

    A lone worker is spared half of what costs one: most of the time nobody would be served.
    """
    plan = rounds(seed, [2.5, 3.5, 1.0], rate=RATE, workers=workers, shares=shares)
    chaos = run(plan)
    assert len(chaos.told.rss_bytes) == 2
    assert {"ok", "client_gone", "queue_full", "worker_lost"} <= set(chaos.told.outcomes)
    assert "crashed" in chaos.told.losses
    check_the_books_notice(chaos)


@pytest.mark.slow
def test_the_books_balance_with_the_packaged_model() -> None:
    """The same with a real model, whose answers repeat the words they are for."""
    chaos = run(rounds(1, [4.0, 1.5], rate=25.0, kind=Kind.GENTLE), packaged=True)
    assert {"ok", "client_gone", "worker_lost"} <= set(chaos.told.outcomes)
    check_the_books_notice(chaos)


def check_the_books_notice(chaos: Chaos) -> None:
    """One end less, one more, or two answers in each other's place, and they do not balance.

    A refusal that has no line may be that of a client which had left: there only the metrics know.
    """
    lines = log_lines(chaos.log)
    log = Log.read(lines)
    assert balance(chaos.requests, log, log.totals) == []
    told = {request.id for request in chaos.requests if request.answers}
    ends = [line for line in lines if line["event"] == "request.done" and line["id"] in told]
    for end in ends[:: max(1, len(ends) // 20)]:
        without = Log.read(line for line in lines if line is not end)
        assert balance(chaos.requests, without, log.totals)
        assert end["outcome"] in SHED or balance(chaos.requests, without, without.totals)
        twice = Log.read([*lines, end])
        assert balance(chaos.requests, twice, log.totals)
        assert balance(chaos.requests, twice, twice.totals)
    answered = [request for request in chaos.requests if request.code == "ok"]
    for one, other in pairwise(answered):
        if one.words != other.words:
            assert not is_own(other.answers[0].json, one)


# ---------------------------------------------------------------- the state


def test_the_state_is_noticed() -> None:
    """What is open, inside, stopped or left behind shows in the state, and passes with it."""
    slow = ("--receive-timeout-ms", "60000", "--deadline-ms", "60000", "--watchdog-ms", "60000")
    with Server(*SYNTHETIC, *slow) as server:
        server.wait_event("worker.started")
        fds = psutil.Process(server.pid).num_fds()

        def faults() -> list[str]:
            return state_faults(server, 1, fds)

        def told() -> str:
            """All of it, once the worker stands still."""
            found = " ".join(faults())
            return found if "'stopped': 1" in found else ""

        assert until_right(faults) == []
        assert left_behind(server) == [f"worker {server.worker_pid} outlives the server"]
        strangers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(9)]
        os.kill(server.worker_pid, signal.SIGSTOP)
        held = server.send(Call("a b"))
        wait_for(lambda: server.status()["queue"]["depth"], "it to have come")
        found = wait_for(told, "the worker to stand still")
        assert "seawall_queue_depth is 1" in found
        assert 'stage="queued"} is 1' in found
        assert "11 connections, one is asking" in found
        assert "descriptors, there were" in found
        for stranger in strangers:
            stranger.close()
        os.kill(server.worker_pid, signal.SIGCONT)
        assert held.result()[0].status == 200
        assert until_right(faults) == []
        assert state_faults(server, 2, fds)
        server.kill()
        assert state_faults(server, 1, fds) == [f"the server has ended with {-signal.SIGKILL}"]


def test_what_does_not_balance_can_be_played_again() -> None:
    """The message of a failure holds seed, faults and every schedule, ready to be read."""
    plan = rounds(5, [1.0, 0.5], rate=RATE)
    message = str(Unbalanced(["something is wrong"], plan))
    assert "seed 5, round 1: 1 faults" in message
    assert "something is wrong" in message
    played = [one for one in message.splitlines() if one.startswith("{")]
    assert [Schedule.loads(one) for one in played] == plan
