"""The load generator's loops, against a stub that answers as told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from service.bench.client import NO_ANSWER, Client
from service.bench.load import Asking, Span, closed_loop, open_loop
from service.bench.record import Phase, Tally
from service.bench.retries import Retries, RetryKind
from service.bench.schedule import Call, Lengths
from service.bench.texts import Texts
from tests.front.bench_stub import OK, REFUSED, Asked, Listening, run, stub


def always(said: bytes) -> Callable[[Asked], Awaitable[bytes]]:
    """A reply that is always the same."""

    async def reply(asked: Asked) -> bytes:
        return said

    return reply


async def offer(
    here: Listening, calls: list[Call], *, kind: RetryKind = RetryKind.NONE, patience_s: float = 30
) -> tuple[Phase, Tally]:
    """One open loop of these calls, all within its first second."""
    client, tally = Client(here.address, {}), Tally()
    try:
        phase = await open_loop(
            client,
            calls,
            Texts("", 1),
            span=Span(1.0, 0.0, patience_s, seed=1),
            retries=Retries(kind),
            tally=tally,
        )
    finally:
        client.close()
    return phase, tally


# ---------------------------------------------------------------- the open loop


def test_sends_without_waiting_for_answers() -> None:
    """Every request is sent when it is due, though none has been answered yet."""
    calls = [Call(0.01 * n, 5, 30.0) for n in range(40)]

    async def main() -> tuple[Phase, Tally]:
        all_here = asyncio.Event()

        async def reply(asked: Asked) -> bytes:
            if len(here.asked) == len(calls):
                all_here.set()
            await all_here.wait()  # a generator that waits for answers would wait for ever
            return OK

        async with stub(reply) as here:
            return await offer(here, calls)

    phase, tally = run(main)
    assert [one.code for one in phase.attempts] == ["ok"] * 40
    assert (tally.sent, tally.ok, tally.refused, tally.failed) == (40, 40, 0, 0)


def test_latency_counts_from_the_scheduled_time() -> None:
    """A generator that was held up has sent late: its lag is in the latency, and is told."""
    held_s = 0.4
    calls = [Call(0.01 * n, 5, None) for n in range(20)]

    async def main() -> Phase:
        async with stub(always(OK)) as here:
            asyncio.get_running_loop().call_later(0.1, time.sleep, held_s)
            return (await offer(here, calls))[0]

    phase = run(main)
    assert len(phase.attempts) == 20
    assert all(one.seconds >= one.lag_s >= 0 for one in phase.attempts)
    # the loop slept from 0.1 s on, at the latest when the last calls were due
    assert max(one.lag_s for one in phase.attempts) > held_s / 2


def test_requests_are_what_the_server_reads() -> None:
    """Words, deadline in whole milliseconds, media type and length stand in each request."""

    async def main() -> list[Asked]:
        async with stub(always(OK)) as here:
            await offer(here, [Call(0.0, 7, 0.323), Call(0.05, 3, None)])
            return here.asked

    first, second = run(main)
    assert (first.method, first.path) == ("POST", "/")
    assert first.headers["x-request-timeout-ms"] == "323"
    assert first.headers["content-type"] == "text/plain; charset=utf-8"
    assert len(first.body.split()) == 7
    assert "x-request-timeout-ms" not in second.headers


def test_every_attempt_is_recorded_once() -> None:
    """A user's attempts have one record each, the last of them marked, timed from its first."""

    async def main() -> tuple[Phase, int]:
        async with stub(always(REFUSED)) as here:
            phase, tally = await offer(here, [Call(0.0, 5, 1.0)], kind=RetryKind.IMMEDIATE)
            assert tally.refused == tally.sent == len(here.asked)
            return phase, len(here.asked)

    phase, asked = run(main)
    assert asked == len(phase.attempts) == 4
    assert [one.last for one in phase.attempts] == [False, False, False, True]
    assert {one.user_at_s for one in phase.attempts} == {0.0}
    assert {one.code for one in phase.attempts} == {"overloaded"}
    dues = [one.at_s for one in phase.attempts]
    assert dues == sorted(dues)


def test_unanswered_requests_end() -> None:
    """Who has no answer when patience ends has the outcome no_answer, and nothing hangs."""

    async def main() -> Phase:
        async def reply(asked: Asked) -> bytes:
            await asyncio.Event().wait()
            return b""

        async with stub(reply) as here:
            return (await offer(here, [Call(0.0, 5, 1.0)], patience_s=0.0))[0]

    [one] = run(main).attempts
    assert (one.status, one.code, one.in_time, one.late) == (0, NO_ANSWER, False, False)


# ---------------------------------------------------------------- the closed loop


def test_closed_loop() -> None:
    """So many connections ask again and again; refusals are counted and never as success."""

    async def main() -> tuple[int, dict[str, int], int]:
        busy = most = 0

        async def reply(asked: Asked) -> bytes:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0)
            busy -= 1
            return REFUSED if len(here.asked) % 3 == 0 else OK

        async with stub(reply) as here:
            client = Client(here.address, {})
            found = await closed_loop(
                client,
                Lengths(),
                Texts("", 1),
                asking=Asking(4, 0.5, 0.0, 0.001, 1.0, seed=1),
                tally=Tally(),
            )
            client.close()
            assert here.connections <= 4
            return found.ok, dict(found.codes), most

    good, codes, most = run(main)
    assert 0 < good <= codes["ok"]
    assert codes["overloaded"] > 0
    assert most <= 4
