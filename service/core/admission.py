"""Admit? The one decision on every arrival, in one fixed order, made at once.

======  ================================================  ==========================
 order   if                                                then
======  ================================================  ==========================
 1       shutting down                                     503 ``draining``
 2       no worker is ready                                503 ``model_loading``
 3       the breaker is open                               503 ``circuit_open``
 4       a worker is idle and the queue is empty           rows 6 and 8 are passed over
 5       the queue has no room (items or bytes)            503 ``queue_full``
 6       predicted wait > wait cap                         503 ``overloaded``
 7       a list's own estimate > wait cap, and its         413 with the items that fit
         deadline is the default
 8       predicted finish > own deadline                   504 ``deadline_too_short`` if a
                                                           measured idle run is too long,
                                                           else 503 ``overloaded``
======  ================================================  ==========================

Row 4 is how a wrong estimator finds out: an idle worker never refuses on a prediction. Row 7 holds
even then, since the number that it tells always gets in. In row 6 the request's own size plays no
part: long and short are refused alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from service.core.errors import Problem, problem

RETRY_LEAST_S = 1.0
RETRY_MOST_S = 30.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One prediction request, parsed.

    Attributes:
        request_id: for logs and answers.
        inputs: the texts, in order; empty ones for media alone.
        parameters: JSON bytes of an object, checked by the task.
        is_list: whether the client sent a list (also of one).
        nbytes: bytes of the body.
        headers_at, body_at: when headers and body were complete, seconds of the one clock; earlier
            by what the request waited before it came here, where that is known.
        timeout_s: the deadline that the client named, from the headers on, else ``None``.
        proxy_s: what the proxy in front will wait, from the headers on; it never makes a deadline
            longer, the default neither.
        rehearse: the fault to act out, only in rehearsal mode.
        client: whose share of the queue it takes, empty if nobody knows.
        times: how often each text goes through the model (once for each label, for example).
        steps: tokens that are generated for each, one after the other.
        media: the bytes of each, empty if there are none at all.
        sizes: what the cost of each is guessed from, empty for the characters of the texts.
    """

    request_id: str
    inputs: tuple[str, ...]
    parameters: bytes
    is_list: bool
    nbytes: int
    headers_at: float
    body_at: float
    timeout_s: float | None
    rehearse: str = ""
    client: str = ""
    times: int = 1
    steps: int = 0
    media: tuple[bytes, ...] = ()
    sizes: tuple[int, ...] = ()
    proxy_s: float = math.inf

    def parts(self) -> list[tuple[str, bytes, int]]:
        """Text, bytes and size of each input."""
        media = self.media or (b"",) * len(self.inputs)
        sizes = self.sizes or tuple(map(len, self.inputs))
        return list(zip(self.inputs, media, sizes, strict=True))


class Due(NamedTuple):
    """A deadline.

    Attributes:
        at: when, seconds of the one clock.
        allowed_s: what it is called before a client.
    """

    at: float
    allowed_s: float


def due(ask: Ask, default_s: float, most_s: float) -> Due:
    """When an answer must be there.

    A client's own time runs from the headers on, the server's default from the body on. Neither is
    longer than the server allows, nor than the proxy waits.
    """
    if ask.timeout_s is not None:
        allowed_s = min(ask.timeout_s, ask.proxy_s, most_s)
        return Due(ask.headers_at + allowed_s, allowed_s)
    allowed_s = min(default_s, most_s)
    return min(
        Due(ask.body_at + allowed_s, allowed_s), Due(ask.headers_at + ask.proxy_s, ask.proxy_s)
    )


class Line(NamedTuple):
    """The state of queue and workers at the moment of an arrival.

    Attributes:
        idle: a worker is idle and the queue is empty.
        has_room: the queue has room for this request.
        wait_s: predicted wait of whoever arrives now.
        wait_cap_s: the cap on it.
        spread: a random factor from 1 to 2, so that refused clients do not come back together.
    """

    idle: bool
    has_room: bool
    wait_s: float
    wait_cap_s: float
    spread: float


@dataclass(frozen=True, slots=True)
class Size:
    """What a parsed request would cost.

    Attributes:
        items: number of inputs.
        own_s: estimated model time of its own.
        remaining_s: what is left of its deadline.
        named: whether the client named the deadline.
        is_list: whether it is a list.
        measured: whether the estimate rests on enough real batches.
    """

    items: int
    own_s: float
    remaining_s: float
    named: bool
    is_list: bool
    measured: bool


def rest_of_batch(now: float, estimated_end: float) -> float:
    """Seconds until a running batch ends.

    An overdue batch counts as busy for as long again as it is overdue, or a stall is never seen.
    """
    return max(estimated_end - now, now - estimated_end)


def predicted_wait(rests: Sequence[float], line_s: float, prepare_s: float) -> float:
    """Predicted wait of whoever arrives now.

    Args:
        rests: for each ready worker, seconds until it is free.
        line_s: model time of everything in the queue.
        prepare_s: time until the newest item is prepared.
    """
    if not rests:
        return math.inf
    return min(rests) + line_s / len(rests) + prepare_s


def retry_after(wait_s: float, wait_cap_s: float, spread: float) -> float:
    """Seconds to tell a refused client: when the line should be short enough again."""
    return min(max((wait_s - wait_cap_s) * spread, RETRY_LEAST_S), RETRY_MOST_S)


def available(
    *, draining: bool, ready: bool, circuit_open: bool, reload_s: float, probe_s: float
) -> Problem | None:
    """Rows 1 to 3: may anything be served at all?

    ``ready``: whether any worker is. ``reload_s`` and ``probe_s`` are what a client is told to wait
    for.
    """
    if draining:
        return problem("draining", retry_after_s=RETRY_LEAST_S)
    if not ready:
        return problem("model_loading", retry_after_s=_bounded(reload_s))
    if circuit_open:
        return problem("circuit_open", retry_after_s=_bounded(probe_s))
    return None


def gate(line: Line) -> Problem | None:
    """Rows 4 to 6, for a request whose body is still unread."""
    if line.idle and line.has_room:
        return None
    again = retry_after(line.wait_s, line.wait_cap_s, line.spread)
    if not line.has_room:
        return problem("queue_full", retry_after_s=again)
    if line.wait_s > line.wait_cap_s:
        return problem("overloaded", retry_after_s=again)
    return None


def decide(line: Line, size: Size) -> Problem | None:
    """Rows 4 to 8, for a parsed request; ``None`` admits it."""
    refusal = gate(line)
    if refusal is not None:
        return refusal
    if size.is_list and not size.named and size.own_s > line.wait_cap_s and size.items > 1:
        fits = max(1, int(size.items * line.wait_cap_s / size.own_s))
        return problem(
            "payload_too_large",
            f"This list takes longer than the server plans ahead; send at most {fits} items at "
            "once, or name a longer deadline.",
            limit=fits,
        )
    if line.idle:
        return None
    if line.wait_s + size.own_s > size.remaining_s:
        if size.measured and size.own_s > size.remaining_s:
            return problem("deadline_too_short", min_timeout_ms=math.ceil(size.own_s * 1000))
        again = retry_after(line.wait_s + size.own_s, size.remaining_s, line.spread)
        return problem("overloaded", retry_after_s=again)
    return None


def _bounded(seconds: float) -> float:
    return min(max(seconds, RETRY_LEAST_S), RETRY_MOST_S)
