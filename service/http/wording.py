"""What a refusal says beside RFC 9457, to clients that read something else.

=========  ==================================================================================
address    member ``error``
=========  ==================================================================================
``/v2…``   a sentence, as the Open Inference Protocol has it
``/v1…``   an object with message, type, param and code, as the ``openai`` client reads it
=========  ==================================================================================

The sentence names the fields at fault too: such clients show nothing else.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from service.core.errors import Problem
from service.http.problems import Headers
from service.tasks.parameter import Json

_NO_RETRY = (b"x-should-retry", b"false")
"""The ``openai`` client tries every 5xx again, unless it is told that this is in vain."""

_SERVER = HTTPStatus.INTERNAL_SERVER_ERROR.value


class More(NamedTuple):
    """What one kind of client reads beside the problem's own members and headers."""

    members: dict[str, Json]
    headers: Headers


_NOTHING = More({}, [])


def more_of(path: str, refusal: Problem) -> More:
    """What a refusal at this address has beside its problem."""
    if path.startswith("/v2"):
        return More({"error": _sentence(refusal)}, [])
    if path.startswith("/v1"):
        return _openai(refusal)
    return _NOTHING


def _sentence(refusal: Problem) -> str:
    fields = (
        f"{field.pointer.lstrip('/') or 'body'}: {field.message}." for field in refusal.errors
    )
    return " ".join([refusal.detail, *fields])


def _openai(refusal: Problem) -> More:
    ours = refusal.status >= _SERVER
    error = {
        "message": _sentence(refusal),
        "type": "server_error" if ours else "invalid_request_error",
        "param": refusal.errors[0].pointer.lstrip("/") or None if refusal.errors else None,
        "code": refusal.code,
    }
    return More({"error": error}, [_NO_RETRY] if ours and not refusal.kind.retryable else [])
