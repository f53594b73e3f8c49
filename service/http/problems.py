"""A refusal as the client sees it: ``application/problem+json`` (RFC 9457).

Laws
- Every member is ours: a row of the error list, numbers, pointers. Nothing that a client sent and
  nothing that an exception said goes out.
- Every 503 says when to come back: ``Retry-After`` in whole seconds, at least 1.
- No cache keeps it (a 404 would otherwise be kept).
- A 503 of class *shed* carries ``x-envoy-ratelimited``, so that a proxy does not retry it against
  the replicas that are just as busy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import msgspec

from service import NAME
from service.core.errors import ERRORS, OutcomeClass, Problem, Refused

Headers = list[tuple[bytes, bytes]]

Rendered = tuple[int, Headers, bytes]
"""Status, headers and body of an answer."""

RETRY_LEAST_S = 1
"""The header knows whole seconds; 0 would mean "at once"."""

_NO_MORE: Mapping[str, Any] = {}

_encode = msgspec.json.Encoder().encode

# By name: an attribute of an enumeration costs a call in Python 3.11.
_SHED = OutcomeClass.SHED
_UNAUTHORIZED = HTTPStatus.UNAUTHORIZED.value
_REQUEST_TIMEOUT = HTTPStatus.REQUEST_TIMEOUT.value
_UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE.value

NO_STORE = (b"cache-control", b"no-store")
"""On everything that is about a moment or an input: no cache may keep it."""

_CONTENT_TYPE = (b"content-type", b"application/problem+json")
_CHALLENGE = (b"www-authenticate", f'Bearer realm="{NAME}"'.encode())
_RATE_LIMITED = (b"x-envoy-ratelimited", b"true")
_CLOSE = (b"connection", b"close")


class RefusedWith(Refused):
    """A refusal whose answer needs headers of its own, as ``Allow``."""

    def __init__(self, problem: Problem, headers: Headers) -> None:
        super().__init__(problem)
        self.headers = headers


def retry_after_s(problem: Problem) -> int | None:
    """What ``Retry-After`` says: whole seconds on every 503, else nothing."""
    if problem.kind.status != _UNAVAILABLE:
        return None
    return max(RETRY_LEAST_S, math.ceil(problem.retry_after_s or 0.0))


def render(
    problem: Problem,
    request_id: str,
    *,
    status: int | None = None,
    extra: Iterable[tuple[bytes, bytes]] = (),
    more: Mapping[str, Any] = _NO_MORE,
) -> Rendered:
    """The answer to a refused request.

    Args:
        problem: why.
        request_id: the member of that name; the header is added where all answers pass.
        status: where it differs from the list's (431 is a ``malformed_request`` too).
        extra: more headers.
        more: members that one kind of client reads.

    Returns:
        Status, headers and body.
    """
    kind = problem.kind
    shown = status or kind.status
    headers: Headers = [_CONTENT_TYPE, NO_STORE]
    members: dict[str, Any] = {"request_id": request_id, **more}
    again = retry_after_s(problem)
    if again is not None:
        headers.append((b"retry-after", b"%d" % again))
        members["retry_after_ms"] = max(1, math.ceil((problem.retry_after_s or again) * 1000))
    if problem.errors:
        members["errors"] = [
            {"pointer": one.pointer, "message": one.message} for one in problem.errors
        ]
    if problem.limit is not None:
        members["limit"] = problem.limit
    if problem.min_timeout_ms is not None:
        members["min_timeout_ms"] = problem.min_timeout_ms
    if kind.outcome_class is _SHED:
        headers.append(_RATE_LIMITED)
    if kind.status == _UNAUTHORIZED:
        headers.append(_CHALLENGE)
    if kind.status == _REQUEST_TIMEOUT:
        headers.append(_CLOSE)  # the rest of the body is not waited for
    headers.extend(extra)
    body = _standing(kind.code, problem.detail, shown) + _encode(members)[1:]
    headers.append((b"content-length", b"%d" % len(body)))
    return shown, headers, body


@lru_cache(maxsize=128)
def _standing(code: str, detail: str, status: int) -> bytes:
    """The members that are the same each time, as the open beginning of a JSON object."""
    kind = ERRORS[code]
    members = {
        "type": f"/errors/{code}",
        "title": kind.title,
        "status": status,
        "detail": detail,
        "code": code,
        "retryable": kind.retryable,
    }
    return _encode(members)[:-1] + b","
