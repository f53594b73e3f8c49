"""Every failure has a name: the one list of errors that Seawall answers, counts and explains.

Laws
- A code appears here exactly once, with its status, class, page and whether a client may retry.
- ``detail`` is written here or by the room that refuses; it never holds exception text, a class
  name, a path or anything that the client sent.
- The README table, the metric labels, ``/errors/{code}`` and the tests are derived from
  :data:`ERRORS` or held to it.

Source of the list: ``docs/architecture.md``, section "Errors".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class OutcomeClass(StrEnum):
    """Where a request's end counts. Service level: bad = shed + late + server."""

    OK = "ok"
    CLIENT = "client"
    SHED = "shed"
    LATE = "late"
    GONE = "gone"
    SERVER = "server"


class Stage(StrEnum):
    """How far a request had come when it was late or its client left."""

    RECEIVE = "receive"
    PREPARE = "prepare"
    QUEUED = "queued"
    RUNNING = "running"
    RESPOND = "respond"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row of the error list.

    Attributes:
        code: the stable name that clients, metrics and logs use.
        status: HTTP status (499 is for logs and metrics only).
        outcome_class: where it counts.
        title: a short heading, the same for every occurrence.
        detail: the default sentence for the client.
        caller: what the error page tells the caller to do.
        operator: what the error page tells whoever runs the server.
        retryable: whether the same request may succeed later.
    """

    code: str
    status: int
    outcome_class: OutcomeClass
    title: str
    detail: str
    caller: str
    operator: str
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class FieldError:
    """One entry of ``errors`` in a 422: a JSON pointer into the body and what to send instead."""

    pointer: str
    message: str


class Problem(NamedTuple):
    """One refusal, as plain values; ``http/problems`` turns it into RFC 9457.

    Attributes:
        kind: the row of :data:`ERRORS`.
        detail: the sentence for the client.
        retry_after_s: seconds, only where a retry makes sense; ``Retry-After`` is its ceiling.
        errors: entries for 422.
        limit: the limit that was passed (bytes, items, characters or tokens).
        min_timeout_ms: the shortest deadline that could work (``deadline_too_short``).
        stage: how far the request had come (late or gone only).
    """

    kind: ErrorKind
    detail: str
    retry_after_s: float | None = None
    errors: tuple[FieldError, ...] = ()
    limit: int | None = None
    min_timeout_ms: int | None = None
    stage: Stage | None = None

    @property
    def code(self) -> str:
        """The stable code, for example ``queue_full``."""
        return self.kind.code

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.kind.status


class Refused(Exception):
    """Carries a :class:`Problem` up to the one exit that writes it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.code)
        self.problem = problem


_C, _S = OutcomeClass.CLIENT, OutcomeClass.SHED
_L, _V, _G = OutcomeClass.LATE, OutcomeClass.SERVER, OutcomeClass.GONE

_ROWS = (
    ErrorKind(
        "malformed_request", 400, _C, "Malformed request",
        "The request could not be read.",
        "Send a body of valid JSON or UTF-8 text, and header values in the documented form.",
        "Nothing is wrong with the server. A sudden rise points at one client's new release.",
    ),
    ErrorKind(
        "unauthorized", 401, _C, "Unauthorized",
        "This server needs an API key: send 'Authorization: Bearer KEY'.",
        "Send a valid key in the Authorization header.",
        "The key file decides; it is read again when it changes.",
    ),
    ErrorKind(
        "not_found", 404, _C, "Not found",
        "There is nothing at this address. Predictions are POST /.",
        "Check the path; GET / lists what there is.",
        "Scanners cause this; they share one metric label.",
    ),
    ErrorKind(
        "method_not_allowed", 405, _C, "Method not allowed",
        "This address does not take that method; the Allow header names those it takes.",
        "Use a method from the Allow header.",
        "Nothing is wrong with the server.",
    ),
    ErrorKind(
        "request_timeout", 408, _C, "Request timeout",
        "The body did not arrive in time.",
        "Send the whole body without pauses.",
        "Slow clients or networks; the limit is receive_timeout_ms.",
    ),
    ErrorKind(
        "payload_too_large", 413, _C, "Payload too large",
        "The request is larger than this server takes.",
        "Send less at once; 'limit' says how much, 'detail' of what.",
        "The limits are max_body_bytes, max_items, max_chars and queue_limit.",
    ),
    ErrorKind(
        "unsupported_media_type", 415, _C, "Unsupported media type",
        "This content type or encoding is not taken here.",
        "Send application/json or plain text, not compressed.",
        "Nothing is wrong with the server.",
    ),
    ErrorKind(
        "invalid_input", 422, _C, "Invalid input",
        "The input does not fit the task.",
        "'errors' names each field and says what to send instead.",
        "A client fault: it does not count against the breaker or the service level.",
    ),
    ErrorKind(
        "poisoned_input", 422, _C, "Poisoned input",
        "This input has ended the model process twice and is refused for a while.",
        "Do not send this input again; report it to whoever runs the server.",
        "Look for worker.lost events; the input crashes the model even when it runs alone.",
    ),
    ErrorKind(
        "client_gone", 499, _G, "Client gone",
        "The client closed the connection before the answer.",
        "Wait for the answer, or send your deadline in X-Request-Timeout-Ms.",
        "Clients give up before the server's deadline; compare their time-outs with it.",
    ),
    ErrorKind(
        "model_error", 500, _V, "Model error",
        "The model failed on this input.",
        "Do not retry the same input; other inputs work.",
        "The log has the exception's class and frames under the same request id.",
    ),
    ErrorKind(
        "internal_error", 500, _V, "Internal error",
        "The server failed; this is our fault.",
        "Report it with the request id.",
        "A bug in Seawall: the log has class and frames under the same request id.",
    ),
    ErrorKind(
        "queue_full", 503, _S, "Queue full",
        "The queue is full.",
        "Retry after the time in Retry-After, with a back-off.",
        "More work arrives than can be done: scale out. A longer queue only makes clients wait.",
        retryable=True,
    ),
    ErrorKind(
        "overloaded", 503, _S, "Overloaded",
        "The server could not answer in time; it says so at once.",
        "Retry after the time in Retry-After, with a back-off.",
        "The predicted wait is over max_wait_ms or over what is left of the deadline: scale out.",
        retryable=True,
    ),
    ErrorKind(
        "draining", 503, _S, "Draining",
        "This server is shutting down.",
        "Retry: another replica will take it.",
        "Expected during a rollout or scale-in.",
        retryable=True,
    ),
    ErrorKind(
        "circuit_open", 503, _V, "Circuit open",
        "The model is failing at present; the server tests it and comes back by itself.",
        "Retry after the time in Retry-After.",
        "A worker is up but its model fails its self-test. See the runbook for the breaker.",
        retryable=True,
    ),
    ErrorKind(
        "model_loading", 503, _V, "Model loading",
        "The model is not ready yet.",
        "Retry after the time in Retry-After.",
        "No worker is ready: it starts or restarts. See worker.lost and worker.ready in the log.",
        retryable=True,
    ),
    ErrorKind(
        "out_of_memory", 503, _V, "Out of memory",
        "The model ran out of memory on this input.",
        "Retry later, or send less at once.",
        "Splitting did not help. Another process may hold the memory; see the runbook.",
        retryable=True,
    ),
    ErrorKind(
        "worker_lost", 503, _V, "Worker lost",
        "The model process ended while it ran this request.",
        "Retry once; if it happens again with the same input, report it.",
        "See worker.lost for the reason: crashed, hung, oom_killed or device_lost.",
        retryable=True,
    ),
    ErrorKind(
        "deadline_exceeded", 504, _L, "Deadline exceeded",
        "The deadline passed before the answer was there.",
        "Retry, or allow more time in X-Request-Timeout-Ms.",
        "By stage: queued means too much load, running means the model became slower.",
        retryable=True,
    ),
    ErrorKind(
        "deadline_too_short", 504, _C, "Deadline too short",
        "Even an idle server could not answer within this deadline.",
        "Allow at least min_timeout_ms in X-Request-Timeout-Ms.",
        "Clients ask for less time than this input takes on this machine.",
    ),
)  # fmt: skip

ERRORS: dict[str, ErrorKind] = {row.code: row for row in _ROWS}
"""Every error by code, in the order of their statuses."""

OUTCOMES: tuple[str, ...] = ("ok", *ERRORS)
"""Every value of the ``outcome`` label."""


def outcome_class(outcome: str) -> OutcomeClass:
    """The class of an outcome: ``ok`` or an error code.

    Raises:
        KeyError: the outcome is neither.
    """
    return OutcomeClass.OK if outcome == "ok" else ERRORS[outcome].outcome_class


def problem(
    code: str,
    detail: str | None = None,
    *,
    retry_after_s: float | None = None,
    errors: tuple[FieldError, ...] = (),
    limit: int | None = None,
    min_timeout_ms: int | None = None,
    stage: Stage | None = None,
) -> Problem:
    """Build a :class:`Problem` for ``code``; without ``detail`` the row's own sentence is used.

    Raises:
        KeyError: no such code.
    """
    kind = ERRORS[code]
    return Problem(kind, detail or kind.detail, retry_after_s, errors, limit, min_timeout_ms, stage)


def invalid(pointer: str, message: str, *, limit: int | None = None) -> Problem:
    """A 422 that names one field and says what to send instead."""
    return problem("invalid_input", errors=(FieldError(pointer, message),), limit=limit)


def at_stage(refusal: Problem, stage: Stage) -> Problem:
    """The same refusal, marked with how far the request had come."""
    return refusal._replace(stage=stage)
