"""Whether the books of chaos notice what is wrong: without that a balance proves nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.chaos_books import MARK, Log, Request, answers_right, balance, is_own, log_clean
from tests.e2e.chaos_house import MORE_RSS_BYTES, growth_faults
from tests.e2e.load import Answer


def answer(ident: str, status: int, value: Any) -> Answer:
    """An answer as a client reads it."""
    headers = {"x-request-id": ident} | ({"retry-after": "1"} if status == 503 else {})
    return Answer(status, headers, json.dumps(value).encode())


def refusal(ident: str, code: str, status: int) -> Answer:
    """A problem."""
    return answer(ident, status, {"code": code, "status": status, "request_id": ident})


def line(event: str = "request.done", level: str = "info", **fields: Any) -> dict[str, Any]:
    """A log line."""
    return {"event": event, "level": level, **fields}


@dataclass
class Day:
    """A little of everything, as it should be."""

    requests: dict[str, Request] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    @classmethod
    def right(cls) -> Day:
        """Two served, one of a list; one late; two shed, one without a line; one that left."""
        ok = {"tokens": 5, "batch": 2}
        requests = [
            Request("a", "plain", (5,), f"{MARK}a", answers=[answer("a", 200, ok)]),
            Request("b", "plain", (5, 6), f"{MARK}b", is_list=True,
                    answers=[answer("b", 200, [ok, {"tokens": 6, "batch": 2}])]),
            Request("c", "hasty", answers=[refusal("c", "deadline_exceeded", 504)]),
            Request("d", "burst", answers=[refusal("d", "queue_full", 503)]),
            Request("e", "burst", answers=[refusal("e", "queue_full", 503)]),
            Request("f", "leave", stays=False),
            Request("g", "leave", stays=False, sure=False),
        ]  # fmt: skip
        ends = {"a": "ok", "b": "ok", "c": "deadline_exceeded", "d": "queue_full"}
        ends["f"] = "client_gone"
        lines = [line(id=ident, outcome=code) for ident, code in ends.items()]
        lines.append(line("admission.shed", codes={"queue_full": 1}))
        outcomes = Counter([*ends.values(), "queue_full"])
        return cls({request.id: request for request in requests}, lines, outcomes)

    def faults(self) -> list[str]:
        """What the books say."""
        raw = "".join(f"{json.dumps(one)}\n" for one in self.lines)
        requests = list(self.requests.values())
        return [
            *(fault for request in requests for fault in answers_right(request)),
            *balance(requests, Log.read(self.lines), self.outcomes),
            *balance(requests, Log.read(self.lines), None),
            *log_clean(raw),
        ]

    def see(self, ident: str, seen: Answer) -> None:
        """Another answer for that client."""
        self.requests[ident].answers = [seen]

    def twice(self, number: int) -> None:
        """A line is logged and counted twice."""
        self.lines.append(self.lines[number])
        self.outcomes.update([self.lines[number]["outcome"]])

    def blame(self, ident: str) -> None:
        """The model failed on an input that is as good as any."""
        self.see(ident, refusal(ident, "model_error", 500))
        for one in self.lines:
            if one.get("id") == ident:
                self.outcomes.update({one["outcome"]: -1, "model_error": 1})
                one["outcome"] = "model_error"


def test_a_right_day_balances() -> None:
    """The books say nothing where nothing is wrong."""
    assert Day.right().faults() == []


OTHERS = {"tokens": 9, "batch": 1}
WRONG: dict[str, Callable[[Day], object]] = {
    "not counted": lambda day: day.outcomes.subtract({"ok": 1}),
    "counted twice": lambda day: day.outcomes.update({"ok": 1}),
    "counted as another": lambda day: day.outcomes.update({"ok": -1, "queue_full": 1}),
    "not logged": lambda day: day.lines.pop(0),
    "neither counted nor logged": lambda day: (day.lines.pop(0), day.outcomes.subtract(["ok"])),
    "logged twice": lambda day: day.lines.append(day.lines[0]),
    "counted and logged twice": lambda day: day.twice(0),
    "logged as another": lambda day: day.lines[0].update(outcome="worker_lost"),
    "nobody sent it": lambda day: day.lines.append(line(id="z", outcome="client_gone")),
    "shed and not told": lambda day: day.lines.pop(5),
    "shed and told twice": lambda day: day.lines.append(day.lines[5]),
    "left and not counted": lambda day: (day.lines.pop(4), day.outcomes.subtract(["client_gone"])),
    "no answer": lambda day: day.requests["a"].answers.clear(),
    "no answer for one that was shed": lambda day: day.requests["e"].answers.clear(),
    "two answers": lambda day: day.requests["a"].answers.append(day.requests["a"].answers[0]),
    "more than an answer": lambda day: setattr(day.requests["a"], "trouble", "more came"),
    "another's answer": lambda day: day.see("a", answer("a", 200, OTHERS)),
    "answers in the wrong order": lambda day: day.see(
        "b", answer("b", 200, [{"tokens": 6, "batch": 2}, {"tokens": 5, "batch": 2}])),
    "one answer too few": lambda day: day.see("b", answer("b", 200, [{"tokens": 5}])),
    "another's id": lambda day: day.see("a", answer("b", 200, {"tokens": 5, "batch": 2})),
    "another's problem": lambda day: day.see("c", refusal("d", "deadline_exceeded", 504)),
    "another status": lambda day: day.see("c", refusal("c", "deadline_exceeded", 503)),
    "no Retry-After": lambda day: day.requests["d"].answers[0].headers.pop("retry-after"),
    "blamed": lambda day: day.blame("c"),
    "an input in an answer": lambda day: day.see("a", answer("a", 200, {"tokens": 5, MARK: 1})),
    "a path in an answer": lambda day: day.see("a", answer("a", 200, {"tokens": 5, "/usr/x": 1})),
    "an exception in an answer": lambda day: day.see(
        "a", answer("a", 200, {"tokens": 5, "ValueError": 1})),
    "an input in the log": lambda day: day.lines.append(line("worker.output", line=f"{MARK}1")),
    "a traceback in the log": lambda day: day.lines.append(line("x", text="Traceback (most")),
    "our own bug": lambda day: day.lines.append(line("internal.error", "error")),
    "a broken worker": lambda day: day.lines.append(line("worker.broken", "error")),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_the_books_notice(what: str) -> None:
    """One thing that is wrong, and they do not balance."""
    day = Day.right()
    WRONG[what](day)
    assert day.faults()


def test_an_answer_of_the_packaged_model_is_known_by_its_words() -> None:
    """Every alternative repeats the input, its own word included."""
    request = Request("a", "plain", (3,), f"{MARK}1n")
    right = [{"sequence": f"{MARK}1n0 the wall"}, {"sequence": f"{MARK}1n0 a wall"}]
    assert is_own(right, request)
    assert not is_own([*right, {"sequence": f"{MARK}2n0 the wall"}], request)
    assert not is_own([], request)


def test_growth_is_noticed() -> None:
    """A front that grows by more than the allowance has a leak."""
    assert growth_faults([100, 100 + MORE_RSS_BYTES]) == []
    assert growth_faults([100, 50, 101 + MORE_RSS_BYTES])
