"""The same load for every server: the generator of ``seawall bench``, worded as each wants it.

Clients hang up at the deadline, whether or not the server told them anything: what comes later
is of no use to them, and a server that notices may save the work.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from service.bench.client import NOT_CONNECTED, Address, Answer, Client
from service.bench.figures import make_point
from service.bench.load import Asking, Span, closed_loop, open_loop
from service.bench.record import Tally
from service.bench.report import Capacity, Point
from service.bench.retries import Retries
from service.bench.schedule import Arrivals, Deadlines, Segment, make_schedule
from service.bench.texts import Texts
from tests.bench.speed_offline import LENGTHS

CONNECTIONS = 64
PATIENCE_S = 60.0
"""In a closed loop, where nobody is in a hurry."""

FILLING_S = 6.0
"""Until all of the 64 who asked first have their answer."""

PAUSE_S = 0.1
TWICE = 2.0
LEFT = "left"
"""The end of a request whose client hung up."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a request looks like: its path, and what stands before and after the text."""

    path: str
    before: bytes = b""
    after: bytes = b""
    content_type: str = "application/json"

    def body(self, text: bytes) -> bytes:
        """Of a text of plain words."""
        return self.before + text + self.after


SEAWALL = Shape("/", content_type="text/plain; charset=utf-8")


class Caller(Client):
    """Asks any of the servers.

    Args:
        port: of the server, on loopback.
        shape: what it wants to be asked.
        leave_s: when a client hangs up.
    """

    def __init__(self, port: int, shape: Shape, leave_s: float) -> None:
        address = Address(host="127.0.0.1", port=port)
        super().__init__(address, {"User-Agent": "bench", "Accept": "application/json"})
        self._shape = shape
        self._leave_s = leave_s

    def prediction(self, text: bytes, deadline_s: float | None) -> bytes:
        """The bytes of a request; the deadline is for those who understand it."""
        body = self._shape.body(text)
        due = "" if deadline_s is None else f"X-Request-Timeout-Ms: {round(deadline_s * 1000)}\r\n"
        head = (
            f"POST {self._shape.path} HTTP/1.1\r\n{self._head}{due}"
            f"Content-Type: {self._shape.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def send(self, request: bytes) -> Answer:
        """Send a request, and hang up if there is no answer in time."""
        connection = self._take()
        loop = asyncio.get_running_loop()
        end = loop.time() + self._leave_s
        try:
            async with asyncio.timeout_at(end):
                connection = connection or await self._connect()
                answer = await connection.send(request)
        except TimeoutError:
            if connection is not None:
                connection.close()
            return Answer(0, LEFT)
        except OSError:
            return Answer(0, NOT_CONNECTED)
        if connection.usable:
            connection.idle_since = loop.time()
            self._idle.append(connection)
        return answer


async def saturate(port: int, shape: Shape, seconds: float, seed: int) -> Capacity:
    """Answers a second to 64 clients who each ask again at once.

    Raises:
        ValueError: nothing was answered.
    """
    caller = Caller(port, shape, PATIENCE_S)
    asking = Asking(
        connections=CONNECTIONS, seconds=seconds, warmup_s=max(FILLING_S, seconds / 3),
        pause_s=PAUSE_S, deadline_s=PATIENCE_S, seed=seed,
    )  # fmt: skip
    texts = Texts("[MASK]", seed)
    found = await closed_loop(caller, LENGTHS, texts, asking=asking, tally=Tally())
    caller.close()
    if not found.ok:
        raise ValueError(f"no answer in {seconds:g} s under load; in all {dict(found.codes)}")
    return Capacity(rps=found.ok / seconds, words_rps=found.words / seconds, how="closed loop")


async def overload(
    port: int, shape: Shape, seconds: float, seed: int, *, own: Capacity, deadline_s: float
) -> Point:
    """Twice what it can do, in an open loop, all with the same deadline."""
    warmup_s = max(3.0 * deadline_s, seconds / 5)
    rate, whole_s = TWICE * own.rps, warmup_s + seconds
    calls = make_schedule(
        [Segment(whole_s, rate)], Arrivals.POISSON, LENGTHS, Deadlines(deadline_s, 0.0), seed
    )
    caller = Caller(port, shape, deadline_s)
    phase = await open_loop(
        caller, calls, Texts("[MASK]", seed), span=Span(whole_s, warmup_s, deadline_s, seed),
        retries=Retries(), tally=Tally(),
    )  # fmt: skip
    caller.close()
    return make_point("2x", rate, phase, own)


async def probe(port: int, shape: Shape, text: bytes) -> list[tuple[str, float]]:
    """The tokens and scores of one answer; empty if there is none."""
    caller = Caller(port, shape, PATIENCE_S)
    answer = await caller.send(caller.prediction(text, None))
    caller.close()
    return candidates(json.loads(answer.body)) if answer.ok else []


def candidates(body: Any) -> list[tuple[str, float]]:
    """Every token with its score, wherever they stand in an answer."""
    if isinstance(body, str) and body.startswith("["):
        return candidates(json.loads(body))
    if isinstance(body, list):
        return [one for part in body for one in candidates(part)]
    if not isinstance(body, dict):
        return []
    if "token_str" in body:
        return [(body["token_str"], body["score"])]
    return [one for part in body.values() for one in candidates(part)]
