"""The books of chaos: what clients sent and saw, held against what the server counted and logged.

Laws
- Whatever is compared here is a value, so that the books themselves can be tested: a lost request,
  one that is counted twice, an answer for somebody else must each show.
- Every check says in words what does not agree; no words, no fault.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.core.errors import ERRORS, OutcomeClass
from tests.e2e.load import Answer
from tests.tools import ROOT

MARK = "qzx"
"""Every text that is sent holds a word that begins so; nothing else ever does."""

ANYBODY = frozenset(
    {"queue_full", "overloaded", "model_loading", "circuit_open", "worker_lost",
     "deadline_exceeded"}
)  # fmt: skip
"""Ends that may befall anybody while workers die and the queue is full."""

TOO_LONG = frozenset({"payload_too_large"})
"""What a list may be told while a batch takes far longer than it should: fewer items at once."""

SHED = frozenset(code for code, row in ERRORS.items() if row.outcome_class is OutcomeClass.SHED)
"""What may stand in the log as a count alone."""

ERROR_EVENTS = frozenset(
    {"worker.lost", "batch.failed", "model.error", "canary.failed", "breaker.opened"}
)
"""Events of a level from error on that faults of workers and models bring about."""

LEAKS = re.compile(
    rf"{MARK}\w*|Traceback|rehearsed f|\(rehearsed\)|device-side|{re.escape(str(ROOT))}"
    r"|/usr/|/home/|site-packages|Errno"
)
"""What no answer, header or log line may hold: inputs, paths, texts of exceptions."""

INSIDE = re.compile(r"\.py\b|\b[A-Z]\w+(?:Error|Exception)\b|exception", re.ASCII)
"""What no answer may hold beside that; the log has classes and frames."""


@dataclass(slots=True, eq=False)
class Request:
    """One request as its client knows it.

    Attributes:
        id: its ``X-Request-Id``.
        what: the deed that it belongs to.
        words: how many words each of its inputs has.
        token: the word that each of its inputs begins with.
        is_list: whether it came as a list.
        ends: the outcomes that its client may see.
        stays: whether the client waits for the answer.
        sure: whether the server must have read its whole head.
        answers: every answer that came for it.
        trouble: what went wrong on the client's side.
    """

    id: str
    what: str
    words: tuple[int, ...] = (1,)
    token: str = ""
    is_list: bool = False
    ends: frozenset[str] = ANYBODY | {"ok"}
    stays: bool = True
    sure: bool = True
    answers: list[Answer] = field(default_factory=list)
    trouble: str = ""

    @property
    def code(self) -> str | None:
        """What the client was told."""
        return self.answers[0].code if self.answers else None


@dataclass(slots=True)
class Log:
    """What the log says of requests.

    Attributes:
        lines: outcomes by request id, as often as they stand there.
        shed: refusals that are told as counts.
    """

    lines: dict[str, list[str]] = field(default_factory=dict)
    shed: Counter[str] = field(default_factory=Counter)

    @classmethod
    def read(cls, lines: Iterable[Mapping[str, Any]]) -> Log:
        """Read log lines."""
        log = cls()
        for line in lines:
            if line["event"] == "request.done":
                log.lines.setdefault(line["id"], []).append(line["outcome"])
            elif line["event"] == "admission.shed":
                log.shed.update(line["codes"])
        return log

    @property
    def totals(self) -> Counter[str]:
        """How often requests ended in each way."""
        return Counter(code for codes in self.lines.values() for code in codes) + self.shed


def balance(requests: Sequence[Request], log: Log, outcomes: Mapping[str, int] | None) -> list[str]:
    """What does not agree between clients, log and metrics.

    Args:
        requests: every request whose head was sent.
        log: of the server since its start.
        outcomes: of ``/metrics``; ``None`` where the server has ended.
    """
    known = {request.id: request for request in requests}
    faults = [f"{ident} is logged, nobody sent it" for ident in log.lines if ident not in known]
    for ident, codes in log.lines.items():
        if len(codes) > 1:
            faults.append(f"{ident} is logged {len(codes)} times: {codes}")
        elif ident in known and known[ident].code not in {None, codes[0]}:
            faults.append(f"{ident} is logged as {codes[0]}, its client saw {known[ident].code}")
        elif ident in known and known[ident].code is None and known[ident].stays:
            faults.append(f"{ident} is logged as {codes[0]}, its client waits and saw nothing")
    if outcomes is not None and Counter(outcomes) != log.totals:
        differing = _differing(outcomes, log.totals)
        faults.append(f"metrics and log do not agree (code: metric, log): {differing}")
    return [*faults, *_untold(requests, log)]


def _untold(requests: Sequence[Request], log: Log) -> list[str]:
    """What has no line of its own must be among the shed ones, and nothing else may be."""
    faults = []
    untold = [request for request in requests if request.id not in log.lines]
    seen = Counter(request.code for request in untold if request.code is not None)
    rest = log.shed - Counter({code: seen[code] for code in seen})
    for code, number in seen.items():
        if number > log.shed[code]:
            faults.append(f"{number} clients saw {code}, {log.shed[code]} are counted without line")
    unseen = [request for request in untold if request.code is None]
    sure = sum(request.sure for request in unseen)
    left = sum(not request.stays for request in unseen)
    if not sure <= rest.total() <= left:
        faults.append(
            f"of {len(unseen)} requests without answer or line {sure} were surely read and "
            f"{left} had left, {rest.total()} are counted: {dict(rest)}"
        )
    return faults


def _differing(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    pairs = {code: (one.get(code, 0), other.get(code, 0)) for code in {*one, *other}}
    return {code: pair for code, pair in sorted(pairs.items()) if pair[0] != pair[1]}


def answers_right(request: Request) -> list[str]:
    """What is wrong with what the client of a request saw."""
    who = f"{request.id} ({request.what})"
    if request.trouble:
        return [f"{who}: {request.trouble}"]
    if len(request.answers) > 1:
        return [f"{who} got {len(request.answers)} answers"]
    if not request.answers:
        return [f"{who} waited and got no answer"] if request.stays and request.sure else []
    return [f"{who}: {fault}" for fault in _answer_faults(request, request.answers[0])]


def _answer_faults(request: Request, answer: Answer) -> list[str]:
    faults = _leaks(answer, own=request.token)
    if answer.headers.get("x-request-id") != request.id:
        faults.append(f"got the answer of {answer.headers.get('x-request-id')}")
    if answer.code not in request.ends:
        faults.append(f"ended as {answer.code}, may end as {sorted(request.ends)}")
    if answer.code == "ok":
        if not is_own(answer.json, request):
            faults.append(f"got an answer for another input: {answer.body[:200]!r}")
        return faults
    status = ERRORS[answer.code].status
    if not answer.status == answer.json["status"] == status:
        faults.append(f"{answer.code} came with status {answer.status}")
    if answer.json["request_id"] != request.id:
        faults.append(f"got a problem of {answer.json['request_id']}")
    if status == 503 and int(answer.headers.get("retry-after", "0")) < 1:
        faults.append(f"{answer.code} without Retry-After")
    if {answer.code} == TOO_LONG and request.is_list:
        limit = answer.json["limit"]
        if not 1 <= limit < len(request.words):
            faults.append(f"a list of {len(request.words)} is told to be at most {limit}")
    return faults


def is_own(value: Any, request: Request) -> bool:
    """Whether an answer is for the inputs of this request, in their order."""
    answers = value if request.is_list else [value]
    if not isinstance(answers, list) or len(answers) != len(request.words):
        return False
    return all(
        _is_for(answer, words, f"{request.token}{place}")
        for place, (answer, words) in enumerate(zip(answers, request.words, strict=True))
    )


def _is_for(answer: Any, words: int, token: str) -> bool:
    if isinstance(answer, dict):  # of the synthetic model: how many words it saw
        return bool(answer.get("tokens") == words)
    if not isinstance(answer, list) or not answer:
        return False
    return all(isinstance(one, dict) and token in one.get("sequence", "").split() for one in answer)


def _leaks(answer: Answer, own: str = "") -> list[str]:
    text = answer.body.decode()
    if answer.status == 200 and own:
        text = re.sub(rf"{own}\d*", "", text)  # a model's answer may hold its own input
    shown = f"{text} {answer.headers}"
    found = {match[0] for pattern in (LEAKS, INSIDE) for match in pattern.finditer(shown)}
    return [f"the answer holds {sorted(found)}"] if found else []


def log_lines(raw: str) -> list[dict[str, Any]]:
    """The whole lines of a log that are JSON."""
    lines: list[dict[str, Any]] = []
    for line in raw.split("\n")[:-1]:
        with contextlib.suppress(ValueError):
            lines.append(json.loads(line))
    return lines


def log_clean(raw: str) -> list[str]:
    """What a log must not hold."""
    lines = log_lines(raw)
    faults = [f"the log holds {leak}" for leak in sorted({m[0] for m in LEAKS.finditer(raw)})]
    errors = Counter(
        line["event"]
        for line in lines
        if line["level"] in {"error", "critical"} and line["event"] not in ERROR_EVENTS
    )
    faults += [f"{number} log lines {event}" for event, number in errors.items()]
    if len(lines) != raw.count("\n"):
        faults.append(f"{raw.count(chr(10)) - len(lines)} lines of the log are no JSON")
    if any("internal_error" in (line.get("outcome"), line.get("code")) for line in lines):
        faults.append("a request ended as internal_error")
    return faults
