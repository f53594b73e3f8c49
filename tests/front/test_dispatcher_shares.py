"""Fair shares in the dispatcher, in virtual time: one client cannot keep the others out.

A worker runs 24 units in half a second, so it serves about six typical texts a second.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from tests.front.scripted import Caller, House, text, virtual

LONG: dict[str, Any] = {"deadline_ms": 60_000, "max_wait_ms": 60_000}
"""Limits under which only the number of places refuses."""

STORY_S = 60.0


async def story(house: House, rates: Mapping[str, float], seed: int = 1) -> dict[str, list[Caller]]:
    """Every client sends at its own rate, at random moments; who sent what."""
    rng = random.Random(seed)
    arrivals = []
    for client, rate in rates.items():
        at = 0.0
        while (at := at + rng.expovariate(rate)) < STORY_S:
            arrivals.append((at, client))
    sent: dict[str, list[Caller]] = {client: [] for client in rates}
    for number, (at, client) in enumerate(sorted(arrivals)):
        await house.until(at)
        told = "one" if client.startswith("same ") else client
        sent[client].append(house.send(text(f"n{number}"), client=told))
    await house.ends()
    return sent


def share_of_good(callers: list[Caller]) -> float:
    """How many of them were answered."""
    return sum(caller.outcome == "ok" for caller in callers) / len(callers)


@pytest.mark.parametrize("limits", [LONG | {"queue_limit": 12}, {}], ids=["places", "wait"])
def test_a_flood_does_not_keep_a_light_client_out(limits: dict[str, Any]) -> None:
    """Beside ten times the capacity from one client another's few requests are all answered.

    Both where places run out first and where the predicted wait does. Told apart by nothing, the
    same requests share the same refusals.
    """
    goods: dict[str, float] = {}

    @virtual
    async def play(prefix: str) -> None:
        async with House(**limits) as house:
            sent = await story(house, {f"{prefix}hog": 60.0, f"{prefix}light": 0.5})
            goods[prefix] = share_of_good(sent[f"{prefix}light"])
            goods[f"{prefix}hog"] = share_of_good(sent[f"{prefix}hog"])
            assert house.count()["ok"] > 240, "the worker was not kept busy"

    play("")
    play("same ")
    assert goods[""] == 1.0
    assert goods["same "] < 0.5
    assert goods["hog"] > 0.8 * goods["same hog"], "a share is no penalty"


def test_floods_share_alike() -> None:
    """Of three clients that all ask for more than there is each gets a third, whatever it sends."""
    served: Counter[str] = Counter()

    @virtual
    async def play() -> None:
        async with House(queue_limit=12, **LONG) as house:
            sent = await story(house, {"a": 10.0, "b": 20.0, "c": 60.0})
            for client, callers in sent.items():
                served[client] = sum(caller.outcome == "ok" for caller in callers)

    play()
    assert min(served.values()) > 0.75 * max(served.values())


@virtual
async def test_the_newest_of_whoever_holds_most_goes() -> None:
    """It is told 503 ``queue_full`` at that moment, with a time; what ran before it runs on."""
    async with House(queue_limit=4, **LONG) as house:
        house.send(text("first", 64), client="hog")
        await house.step()
        hogs = [house.send(text(f"h{number}"), client="hog") for number in range(4)]
        light = house.send(text("light"), client="light")
        await house.turn()
        assert [caller.outcome for caller in hogs] == ["", "", "", "queue_full"]
        assert hogs[3].ended == light.sent
        refusal = hogs[3].problem
        assert refusal is not None
        assert refusal.retry_after_s is not None
        assert len(house.dispatcher.queue) == 4
        assert house.send(text("h5"), client="hog").outcome == "queue_full"
        assert await house.ends(*hogs[:3], light) == ["ok"] * 4


@virtual
async def test_a_list_leaves_whole() -> None:
    """The places of a list all come back with it, and the claimant's list is admitted whole."""
    async with House(queue_limit=8, **LONG) as house:
        house.send(text("first", 64), client="hog")
        await house.step()
        lists = [
            house.send(*(text(f"l{number}{index}") for index in range(4)), client="hog")
            for number in range(2)
        ]
        light = house.send(text("a"), text("b"), client="light")
        await house.turn()
        assert [caller.outcome for caller in lists] == ["", "queue_full"]
        assert len(house.dispatcher.queue) == 6
        assert await house.ends(lists[0], light) == ["ok", "ok"]


@virtual
async def test_a_refusal_displaces_nobody() -> None:
    """Whoever would be refused for another reason all the same takes no place from others."""
    async with House(queue_limit=4, **LONG) as house:
        house.send(text("first", 64), client="hog")
        await house.step()
        hogs = [house.send(text(f"h{number}"), client="hog") for number in range(4)]
        late = house.send(text("late"), client="light", timeout_s=0.25)
        await house.turn()
        assert late.outcome in {"overloaded", "deadline_too_short"}
        assert [caller.outcome for caller in hogs] == [""] * 4


@virtual
async def test_no_share_helps_against_what_is_not_load() -> None:
    """Shutting down refuses everybody, whatever others hold."""
    async with House(queue_limit=2, **LONG) as house:
        house.send(text("first", 64), client="hog")
        await house.step()
        house.send(text("a"), client="hog")
        house.send(text("b"), client="hog")
        house.dispatcher.stop_admitting()
        assert house.send(text("c"), client="light").outcome == "draining"
        assert house.count()["queue_full"] == 0


@virtual
async def test_many_small_clients_are_not_told_apart_from_none() -> None:
    """Where everybody holds one place a burst is cut exactly, as without any shares."""
    async with House(queue_limit=10, **LONG) as house:
        house.send(text("first", 64))
        await house.step()
        callers = [house.send(text(f"n{number}"), client=f"c{number}") for number in range(17)]
        assert [caller.outcome for caller in callers] == [""] * 10 + ["queue_full"] * 7
