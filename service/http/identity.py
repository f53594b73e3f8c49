"""Who asks: the request's id, its trace, and the headers that the room reads.

Laws
- A client's request id is taken only if it is 1 to 128 characters of ``[A-Za-z0-9._-]`` and came
  once; anything else is replaced. So neither a log line nor a header can be forged with it.
- ``traceparent`` is read as W3C Trace Context says; a malformed or repeated one is ignored.
- The headers are walked once; which are kept is decided here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

REQUEST_ID = b"x-request-id"
TRACEPARENT = b"traceparent"

READ = frozenset(
    {
        REQUEST_ID,
        TRACEPARENT,
        b"accept",
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"inference-header-content-length",
        b"user-agent",
        b"x-envoy-expected-rq-timeout-ms",
        b"x-rehearse-fault",
        b"x-request-timeout-ms",
    }
)
"""The headers that this room reads of a request, lower-case."""

_NONE: frozenset[bytes] = frozenset()

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_TRACEPARENT = re.compile(
    rb"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}"
    rb"-[0-9a-f]{2}(?P<more>-.*)?"
)


def read(headers: Iterable[tuple[bytes, bytes]]) -> tuple[dict[bytes, bytes], frozenset[bytes]]:
    """The headers of :data:`READ` (the first of each), and which of them came more than once."""
    found: dict[bytes, bytes] = {}
    repeated: list[bytes] = []
    for name, value in headers:
        if name in READ:
            if name in found:
                repeated.append(name)
            else:
                found[name] = value
    return found, frozenset(repeated) if repeated else _NONE


def new_request_id() -> str:
    """An id that nobody can guess or meet twice: 128 bits, hexadecimal."""
    return os.urandom(16).hex()


def request_id(headers: dict[bytes, bytes], repeated: frozenset[bytes]) -> str:
    """The client's id if it is fit, else a new one."""
    given = headers.get(REQUEST_ID)
    if given is None or REQUEST_ID in repeated or not _REQUEST_ID.fullmatch(given):
        return new_request_id()
    return given.decode("ascii")


def trace_id(headers: dict[bytes, bytes], repeated: frozenset[bytes]) -> str:
    """The trace that the request belongs to, empty for none."""
    given = headers.get(TRACEPARENT)
    if given is None or TRACEPARENT in repeated:
        return ""
    match = _TRACEPARENT.fullmatch(given)
    if match is None or (match["more"] and match["version"] == b"00"):
        return ""
    return match["trace"].decode("ascii")
