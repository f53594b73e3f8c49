"""The phases: an open loop that keeps to its schedule, a closed loop that keeps the server busy.

Laws
- Open loop: a request is sent when it is due, whatever has become of those before it; all times
  count from when it was due, so a generator that falls behind makes the server look worse, never
  better, and its lag is told.
- Every attempt has exactly one record.
- The clock is read for each request: the loop's own time stands still within one turn.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from service.bench.client import Client
from service.bench.record import Attempt, Phase, Tally
from service.bench.retries import Retries, RetryKind
from service.bench.schedule import Call, Lengths
from service.bench.texts import Texts

RETRIES_S = 5.0
"""How long after the end of the schedule users still retry; so whoever came last is no worse off
than the others, and nobody waits for ever."""

LEAD_S = 0.05
"""Time between the decision to start and the first moment of the schedule."""


@contextmanager
def _no_collections() -> Generator[None, None, None]:
    """Collect garbage before and not within: a pause of the generator counts as the server's."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass(frozen=True, slots=True)
class Span:
    """The length of an open loop.

    Attributes:
        seconds: length of the schedule.
        warmup_s: the start of it that figures leave out.
        patience_s: time for the last answers, from the end of the last retry.
        seed: for the jitter of retries.
    """

    seconds: float
    warmup_s: float
    patience_s: float
    seed: int


@dataclass(frozen=True, slots=True)
class Asking:
    """How a closed loop asks.

    Attributes:
        connections: how many ask at the same time.
        seconds: length of the measured part.
        warmup_s: time before it.
        pause_s: mean pause of a connection that was refused.
        deadline_s: the deadline that requests name.
        seed: for lengths and pauses.
    """

    connections: int
    seconds: float
    warmup_s: float
    pause_s: float
    deadline_s: float | None
    seed: int


class _Users:
    """Everybody who asks during an open loop."""

    def __init__(
        self, client: Client, texts: Texts, retries: Retries, chance: Random, tally: Tally
    ) -> None:
        self.attempts: list[Attempt] = []
        self.start = 0.0
        self.end_s = 0.0
        self._client = client
        self._texts = texts
        self._retries = retries
        self._chance = chance
        self._tally = tally

    async def ask(self, call: Call) -> None:
        """One user: the first attempt, and what the rule for retries adds."""
        at_s, number = call.at_s, 1
        while True:
            request = self._client.prediction(self._texts.cut(call.words), call.deadline_s)
            lag_s = time.perf_counter() - self.start - at_s
            self._tally.sent += 1
            answer = await self._client.send(request)
            now_s = time.perf_counter() - self.start
            self._tally.count(answer.status)
            pause_s = self._retries.pause_s(
                number,
                retryable=answer.retryable,
                retry_after_s=answer.retry_after_s,
                chance=self._chance,
            )
            last = answer.ok or pause_s is None or now_s + pause_s >= self.end_s
            self.attempts.append(
                Attempt(
                    user_at_s=call.at_s,
                    at_s=at_s,
                    lag_s=lag_s,
                    seconds=now_s - at_s,
                    status=answer.status,
                    code=answer.code,
                    words=call.words,
                    deadline_s=call.deadline_s,
                    last=last,
                )
            )
            if last or pause_s is None:
                return
            await asyncio.sleep(pause_s)
            at_s, number = now_s + pause_s, number + 1


async def open_loop(
    client: Client,
    calls: Sequence[Call],
    texts: Texts,
    *,
    span: Span,
    retries: Retries,
    tally: Tally,
) -> Phase:
    """Send every call when it is due and wait for the answers.

    Args:
        client: whose connections are used; what has no answer in time is cut off.
        calls: the schedule.
        texts: the inputs.
        span: its length.
        retries: what users do about failures.
        tally: counts as it goes.
    """
    chance = Random(f"{span.seed}/retries")  # noqa: S311 - load, no secret
    users = _Users(client, texts, retries, chance, tally)
    tail_s = 0.0 if retries.kind is RetryKind.NONE else RETRIES_S
    users.end_s = span.seconds + tail_s
    with _no_collections():
        cpu_s = time.process_time()
        users.start = time.perf_counter() + LEAD_S
        async with asyncio.TaskGroup() as group:
            for call in calls:
                wait_s = users.start + call.at_s - time.perf_counter()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                group.create_task(users.ask(call))
            left_s = max(0.0, users.start + users.end_s - time.perf_counter())
            cut = asyncio.get_running_loop().call_later(left_s + span.patience_s, client.close)
        cut.cancel()
        wall_s = time.perf_counter() - users.start
        cpu_s = time.process_time() - cpu_s
    return Phase(users.attempts, span.seconds, span.warmup_s, wall_s, cpu_s)


@dataclass(slots=True)
class Closed:
    """What a closed loop found, in its measured part.

    Attributes:
        ok: good answers.
        words: their words.
        seconds: length of the measured part.
        codes: how every request of the loop ended.
    """

    ok: int = 0
    words: int = 0
    seconds: float = 0.0
    codes: Counter[str] = field(default_factory=Counter)


async def closed_loop(
    client: Client, lengths: Lengths, texts: Texts, *, asking: Asking, tally: Tally
) -> Closed:
    """Keep the server as busy as it lets: each connection asks again once it has its answer.

    Args:
        client: whose connections are used.
        lengths: of the inputs.
        texts: the inputs.
        asking: how many, how long, how impatient.
        tally: counts as it goes.
    """
    found = Closed(seconds=asking.seconds)
    chance = Random(f"{asking.seed}/closed")  # noqa: S311 - load, no secret
    sizes = lengths.draws(Random(f"{asking.seed}/sizes"))  # noqa: S311 - load, no secret
    start = time.perf_counter() + asking.warmup_s
    end = start + asking.seconds

    async def ask_again() -> None:
        while time.perf_counter() < end:
            words = next(sizes)
            tally.sent += 1
            answer = await client.send(client.prediction(texts.cut(words), asking.deadline_s))
            tally.count(answer.status)
            found.codes[answer.code] += 1
            if not answer.ok:
                await asyncio.sleep(asking.pause_s * chance.uniform(0.5, 1.5))
            elif start <= time.perf_counter() < end:
                found.ok += 1
                found.words += words

    with _no_collections():
        async with asyncio.TaskGroup() as group:
            for _ in range(asking.connections):
                group.create_task(ask_again())
    return found
