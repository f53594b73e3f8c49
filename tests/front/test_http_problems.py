"""The body of a refusal: always whole, and what is remembered of one never shows in another."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import ERRORS, FieldError, Problem, problem
from service.http.problems import Rendered, _standing, render

MEMBERS = {"type", "title", "status", "detail", "code", "retryable", "request_id"}
"""Of every body."""


def shown(rendered: Rendered) -> dict[str, Any]:
    """The body, parsed; its length is as announced."""
    _, headers, body = rendered
    named = dict(headers)
    assert len(named) == len(headers)
    assert named[b"content-type"] == b"application/problem+json"
    assert int(named[b"content-length"]) == len(body)
    found: dict[str, Any] = json.loads(body)
    return found


@pytest.mark.parametrize("code", ERRORS)
def test_body_of_every_kind(code: str) -> None:
    """Each kind has its documented members, in valid JSON, with the values of its row."""
    kind = ERRORS[code]
    for _ in range(2):  # the second is remembered
        status, headers, _ = rendered = render(problem(code), "an-id")
        found = shown(rendered)
        wait = {"retry_after_ms"} if kind.status == 503 else set()
        assert set(found) == MEMBERS | wait
        assert found == {
            "type": f"/errors/{code}",
            "title": kind.title,
            "status": kind.status,
            "detail": kind.detail,
            "code": code,
            "retryable": kind.retryable,
            "request_id": "an-id",
        } | dict.fromkeys(wait, 1000)
        assert status == kind.status
        assert (b"retry-after" in dict(headers)) == (kind.status == 503)


@pytest.mark.parametrize("code", ERRORS)
def test_members_of_one_refusal(code: str) -> None:
    """What only some refusals say is said beside the members of all."""
    refusal = Problem(
        ERRORS[code],
        'a "detail" \\ of its own, é\n',
        errors=(FieldError("/inputs/0", "not this"), FieldError("", "nor that")),
        limit=0,
        min_timeout_ms=7,
    )
    found = shown(render(refusal, "x"))
    assert found["detail"] == refusal.detail
    assert found["errors"] == [
        {"pointer": "/inputs/0", "message": "not this"},
        {"pointer": "", "message": "nor that"},
    ]
    assert (found["limit"], found["min_timeout_ms"]) == (0, 7)
    assert found["code"] == code


@given(
    told=st.lists(
        st.tuples(
            st.sampled_from(["malformed_request", "payload_too_large", "queue_full"]),
            st.sampled_from([None, "One thing.", "Another thing."]),
            st.sampled_from([None, 431, 500]),
            st.text("ab", min_size=1, max_size=3),
        ),
        max_size=30,
    )
)
def test_nothing_of_another_refusal_shows(told: list[tuple[str, str | None, int, str]]) -> None:
    """The same code with another detail, status or id is another body, in whatever order."""
    for code, detail, status, request_id in told:
        refusal = problem(code) if detail is None else problem(code, detail)
        rendered = render(refusal, request_id, status=status)
        found = shown(rendered)
        assert (found["code"], found["type"]) == (code, f"/errors/{code}")
        assert found["title"] == ERRORS[code].title
        assert found["detail"] == (detail or ERRORS[code].detail)
        assert found["status"] == rendered[0] == (status or ERRORS[code].status)
        assert found["retryable"] == ERRORS[code].retryable
        assert found["request_id"] == request_id


def test_what_is_remembered_is_bounded() -> None:
    """Details that never come again do not pile up."""
    for number in range(1_000):
        render(problem("payload_too_large", f"At most {number}."), "x")
    held = _standing.cache_info()
    assert held.maxsize is not None
    assert held.currsize <= held.maxsize <= 1_000
