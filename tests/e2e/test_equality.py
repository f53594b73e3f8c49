"""The server answers what the stock pipeline answers, alone and in mixed batches under load."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

import pytest

from tests.e2e.load import Call
from tests.e2e.server import LONG_S, Server, clean_environment
from tests.e2e.watch import Watch
from tests.tools import ROOT

pytestmark = pytest.mark.e2e

TOLERANCE = 1e-4
TEXT = (
    "the harbour wall was built of grey stone long before anybody now alive was born in winter "
    "waves strike it at night and the morning shows whether it still stands"
)
WORDS = TEXT.split()

Case = tuple[Any, dict[str, Any]]


def text_of(words: int) -> str:
    """A text of so many words, one of them the mask (each word is one token)."""
    body = [WORDS[n % len(WORDS)] for n in range(words - 1)]
    body.insert(len(body) // 2, "[MASK]")
    return " ".join(body)


CASES: list[Case] = [
    ("Paris is the [MASK] of France.", {}),
    *((text_of(words), {}) for words in (*range(1, 21), *range(29, 201, 9))),  # up to 200
    ("Paris [MASK] the [MASK].", {"top_k": 2}),
    ("[MASK] and [MASK] and [MASK].", {}),
    ("A week has seven [MASK].", {"top_k": 1}),
    ("A week has seven [MASK].", {"top_k": 20}),
    ("A week has seven [MASK].", {"targets": ["days", "hours", "days"]}),
    ("A week has seven [MASK].", {"targets": ["days"]}),
    ("A week has seven [MASK].", {"targets": ["months", "hours", "years"], "top_k": 2}),
    ("The [MASK] rises in the east.", {"targets": "sun"}),
    ("The [MASK] rises in the east.", {"targets": ["moon", "zyzzyva"]}),
]  # fmt: skip
"""Everything that is sent alone; lists are made of the first of them."""

LISTS: list[Case] = [
    (["Paris is the [MASK] of France."], {}),
    ([text_of(words) for words in (3, 40, 3, 120, 9)], {}),
    (["Paris [MASK] the [MASK].", "A week has seven [MASK]."], {"top_k": 3}),
]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    """The stock pipeline's answers to CASES and LISTS, each asked alone."""
    single = [*CASES, *((text, parameters) for texts, parameters in LISTS for text in texts)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.stock_answers"],
        input=json.dumps(single),
        env=clean_environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG_S,
    )
    answers: list[Any] = json.loads(done.stdout)
    rest = iter(answers[len(CASES) :])
    return [*answers[: len(CASES)], *([next(rest) for _ in texts] for texts, _ in LISTS)]


def call_of(case: Case) -> Call:
    """The case as a request."""
    inputs, parameters = case
    return Call({"inputs": inputs, "parameters": parameters}, {"X-Request-Timeout-Ms": "60000"})


def check_same(given: Any, right: Any) -> None:
    """The same shape, tokens and words; scores within the tolerance."""
    assert type(given) is type(right)
    if isinstance(right, list):
        assert len(given) == len(right)
        for one, other in zip(given, right, strict=True):
            check_same(one, other)
    else:
        assert {**given, "score": 0} == {**right, "score": 0}
        assert given["score"] == pytest.approx(right["score"], abs=TOLERANCE)


def test_each_alone(model: Server, expected: list[Any]) -> None:
    """One text, a list of one, lists, one to 200 tokens, masks, ``top_k``, ``targets``: equal."""
    for case, right in zip([*CASES, *LISTS], expected, strict=True):
        [answer] = model.send(call_of(case)).result()
        assert answer.status == 200, (case, answer.body)
        check_same(answer.json, right)


def test_in_mixed_batches_under_load(model: Server, expected: list[Any]) -> None:
    """Everything at the same moment in random order: equal, batched, and probes are answered."""
    chance = random.Random(7)
    alone = model.metric("seawall_batch_items_bucket", le="1.0")
    batches = model.metric("seawall_batch_items_count")
    for _ in range(3):
        order = list(range(len(expected)))
        chance.shuffle(order)
        cases = [[*CASES, *LISTS][index] for index in order]
        with Watch(model) as watch:
            answers = model.send(*map(call_of, cases)).result()
        assert set(watch.lives) == {200}
        assert watch.slowest_s < 5.0  # a prober's time-out, not the goal
        for index, answer in zip(order, answers, strict=True):
            assert answer.status == 200, answer.body
            check_same(answer.json, expected[index])
    shared = (model.metric("seawall_batch_items_count") - batches) - (
        model.metric("seawall_batch_items_bucket", le="1.0") - alone
    )
    assert shared >= 4, "no batch held more than one item: nothing was shown"


def test_parameters_stay_with_their_request(model: Server) -> None:
    """In one batch each answer has its own ``top_k`` and targets, as when it is asked alone."""
    chance = random.Random(11)
    text = "A week has seven [MASK]."
    parameters: list[dict[str, Any]] = [
        {}, {"top_k": 1}, {"top_k": 5}, {"top_k": 9}, {"targets": ["days"]},
        {"targets": ["hours", "months"]}, {"targets": ["hours", "months"], "top_k": 1},
    ]  # fmt: skip
    kinds = [Call({"inputs": text, "parameters": one}) for one in parameters]
    alone = [model.send(kind).result()[0].json for kind in kinds]
    assert [len(answer) for answer in alone] == [5, 1, 5, 9, 1, 2, 1]
    for _ in range(3):
        order = [*range(len(kinds))] * 3
        chance.shuffle(order)
        answers = model.in_one_batch(*[kinds[kind] for kind in order])
        for kind, answer in zip(order, answers, strict=True):
            check_same(answer.json, alone[kind])


def test_one_mask_beside_two(model: Server) -> None:
    """One mask gives a flat list, two give two lists, also in one batch and as when alone."""
    two = Call({"inputs": "Paris [MASK] the [MASK].", "parameters": {"top_k": 2}})
    one = Call({"inputs": "Paris is the [MASK].", "parameters": {"top_k": 2}})
    first, second = model.in_one_batch(two, one)
    assert [len(mask) for mask in first.json] == [2, 2]
    assert [sorted(entry) for entry in second.json] == [
        ["score", "sequence", "token", "token_str"]
    ] * 2
    check_same(first.json, model.send(two).result()[0].json)
    check_same(second.json, model.send(one).result()[0].json)


@pytest.mark.parametrize(
    "bad, code",
    [
        (Call("no mask here"), "invalid_input"),
        (Call("the " * 600 + "[MASK]"), "invalid_input"),
        (Call("a [MASK]", {"X-Rehearse-Fault": "raise"}), "model_error"),
        (Call("a [MASK]", {"X-Rehearse-Fault": "nan"}), "model_error"),
    ],
    ids=["no mask", "too long", "raises", "not finite"],
)
def test_neighbours_of_a_bad_request_get_their_right_answers(
    model: Server, expected: list[Any], bad: Call, code: str
) -> None:
    """Of eight at once one fails by its own fault; the seven are answered as the stock does."""
    for place in (0, 4):
        calls = [call_of(case) for case in CASES[:7]]
        calls.insert(place, bad)
        answers = (
            model.in_one_batch(*calls) if code == "model_error" else model.send(*calls).result()
        )
        assert answers.pop(place).code == code
        for answer, right in zip(answers, expected, strict=False):
            check_same(answer.json, right)
