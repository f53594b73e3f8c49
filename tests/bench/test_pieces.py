"""The pure pieces of the benchmarks: what they read out of answers and samples."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.bench import texts
from tests.bench.companions import Difference
from tests.bench.live_rows import Unit, table
from tests.bench.peers_install import why
from tests.bench.peers_load import candidates
from tests.bench.peers_model import SPECIAL, VOCABULARY, vocabulary
from tests.bench.soak import LEAST_MIB, Series, growth

ANSWER = [{"token": 7, "token_str": "red", "score": 0.5, "sequence": "a red one"},
          {"token": 9, "token_str": "new", "score": 0.25, "sequence": "a new one"}]  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(ANSWER, id="plain"),
        pytest.param({"output": ANSWER}, id="named"),
        pytest.param([ANSWER], id="one of a batch"),
        pytest.param({"outputs": [{"data": [json.dumps(ANSWER)]}]}, id="text in a tensor"),
    ],
)
def test_candidates(body: Any) -> None:
    """Tokens and scores are found in whatever a server wraps round them."""
    assert candidates(body) == [("red", 0.5), ("new", 0.25)]


def test_vocabulary() -> None:
    """The comparison model has the number of words it says, and knows the benchmark's own."""
    words = vocabulary()
    assert len(words) == VOCABULARY
    assert sorted(words.values()) == list(range(VOCABULARY))
    assert set(SPECIAL) | set(texts._WORDS) <= set(words)


def test_difference() -> None:
    """Scores are compared token by token, and another token counts unless it is a tie."""
    found = Difference()
    found.note(ANSWER, [{**ANSWER[0], "score": 0.5001}, ANSWER[1]])
    assert (found.answers, found.tokens) == (1, 0)
    assert found.score == pytest.approx(1e-4)
    found.note(ANSWER, [ANSWER[0], {**ANSWER[1], "token": 8, "score": 0.2}])
    assert found.tokens == 1
    found.note(ANSWER, [ANSWER[0], {**ANSWER[1], "token": 8}])
    assert found.tokens == 1


@pytest.mark.parametrize("per_minute, flat", [(0.0, True), (0.05, True), (0.5, False)])
def test_series(per_minute: float, flat: bool) -> None:
    """What rises by more than is allowed after the first quarter grows; before it, it may."""
    one = Series("front, resident", Unit.MEBIBYTES, LEAST_MIB)
    for minute in range(61):
        start = 20.0 * min(minute, 15) / 15
        one.note(60.0 * minute, 80.0 + start + per_minute * minute)
    assert one.rise == pytest.approx(45 * per_minute)
    assert (one.rise <= one.allowed) is flat
    assert ("**grows**" in growth([one])) is not flat


def test_why() -> None:
    """A reason for people holds neither address nor path."""
    output = "Collecting\nERROR: none at https://index/simple\nERROR: No match in /tmp/x for it\n"
    assert why(output) == "No match in … for it"
    assert why("") == "pip failed"


def test_table() -> None:
    """A table has a head, a rule and its lines."""
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n|---|---|\n| 1 | 2 |"
