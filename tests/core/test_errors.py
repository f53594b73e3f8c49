"""The list of errors: each once, with the status, class and texts that the contract promises."""

from __future__ import annotations

import re

import pytest

from service.core import errors
from service.core.errors import (
    ERRORS,
    OUTCOMES,
    ErrorKind,
    FieldError,
    OutcomeClass,
    Stage,
    at_stage,
    invalid,
    outcome_class,
    problem,
)

CONTRACT = {
    "malformed_request": (400, "client", False),
    "unauthorized": (401, "client", False),
    "not_found": (404, "client", False),
    "method_not_allowed": (405, "client", False),
    "request_timeout": (408, "client", False),
    "payload_too_large": (413, "client", False),
    "unsupported_media_type": (415, "client", False),
    "invalid_input": (422, "client", False),
    "poisoned_input": (422, "client", False),
    "client_gone": (499, "gone", False),
    "model_error": (500, "server", False),
    "internal_error": (500, "server", False),
    "queue_full": (503, "shed", True),
    "overloaded": (503, "shed", True),
    "draining": (503, "shed", True),
    "circuit_open": (503, "server", True),
    "model_loading": (503, "server", True),
    "out_of_memory": (503, "server", True),
    "worker_lost": (503, "server", True),
    "deadline_exceeded": (504, "late", True),
    "deadline_too_short": (504, "client", False),
}
"""Code to status, class and whether to retry: what clients and dashboards were promised."""

ROWS = pytest.mark.parametrize("row", ERRORS.values(), ids=lambda row: row.code)


def test_list_is_the_promised_one() -> None:
    """Every promised code is there with its status, class and retry advice, and no other."""
    listed = {
        code: (row.status, row.outcome_class.value, row.retryable) for code, row in ERRORS.items()
    }
    assert listed == CONTRACT


def test_codes_are_unique() -> None:
    """A code stands in the list exactly once."""
    codes = [row.code for row in errors._ROWS]
    assert len(codes) == len(set(codes))
    assert list(ERRORS) == codes


def test_list_is_in_the_order_of_statuses() -> None:
    """README and pages show the list as it stands, so it is sorted."""
    statuses = [row.status for row in ERRORS.values()]
    assert statuses == sorted(statuses)


@ROWS
def test_every_code_speaks_to_caller_and_operator(row: ErrorKind) -> None:
    """Each code has a title and full sentences for the client, the caller and the operator."""
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", row.code)
    assert row.title
    for text in (row.detail, row.caller, row.operator):
        assert len(text) > 10
        assert text.lstrip("'")[0].isalpha()
        assert text.endswith(".")
        assert "\n" not in text


@ROWS
def test_only_503_and_late_answers_invite_a_retry(row: ErrorKind) -> None:
    """A retry is offered where it can help: every 503, and a deadline that passed."""
    assert row.retryable == (row.status == 503 or row.code == "deadline_exceeded")


@ROWS
def test_server_faults_are_never_blamed_on_the_client(row: ErrorKind) -> None:
    """4xx is the client's class; 5xx is not, but for a deadline that nobody could keep."""
    if row.code not in {"deadline_too_short", "client_gone"}:
        assert (row.outcome_class is OutcomeClass.CLIENT) == (row.status < 500)


def test_outcomes_are_ok_and_every_code() -> None:
    """Every prediction ends in exactly one of these."""
    assert ("ok", *CONTRACT) == OUTCOMES
    assert outcome_class("ok") is OutcomeClass.OK
    assert [outcome_class(code).value for code in CONTRACT] == [c for _, c, _ in CONTRACT.values()]
    with pytest.raises(KeyError):
        outcome_class("nonsense")


def test_problem_takes_the_rows_sentence_unless_told() -> None:
    """A problem says what its row says, or what the refusing room wrote."""
    plain = problem("queue_full", retry_after_s=2.0)
    assert (plain.code, plain.status, plain.detail) == ("queue_full", 503, "The queue is full.")
    assert plain.retry_after_s == 2.0
    assert problem("queue_full", "Full up.").detail == "Full up."
    with pytest.raises(KeyError):
        problem("nonsense")


def test_invalid_names_the_field() -> None:
    """A 422 points at one field and says what to send."""
    wrong = invalid("/inputs/1", "send a text", limit=7)
    assert wrong.status == 422
    assert wrong.errors == (FieldError("/inputs/1", "send a text"),)
    assert wrong.limit == 7


def test_stage_is_a_mark_on_the_same_refusal() -> None:
    """Marking how far a request had come changes nothing else."""
    late = problem("deadline_exceeded", retry_after_s=1.0)
    marked = at_stage(late, Stage.RUNNING)
    assert marked.stage is Stage.RUNNING
    assert at_stage(marked, Stage.QUEUED) == at_stage(late, Stage.QUEUED)
    assert late.stage is None


def test_refused_shows_the_code_only() -> None:
    """What ends in a log by accident holds the code, not the sentence."""
    assert str(errors.Refused(problem("queue_full", "secret words"))) == "queue_full"
