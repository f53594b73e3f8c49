"""Answers become JSON that every strict client can read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.worker.answers import encode_answer


def strict(data: bytes) -> Any:
    """Parse as a client that rejects NaN and Infinity does."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(data, parse_constant=refuse)


SHAPES: dict[str, Callable[[float], Any]] = {
    "list": lambda bad: [{"score": 0.5}, {"score": bad}],
    "nested": lambda bad: {"scores": [[0.1, bad]]},
    "float32": lambda bad: {"score": np.float32(bad)},
    "float64": lambda bad: {"score": np.float64(bad)},
    "array": lambda bad: np.array([[0.5, bad]], dtype=np.float32),
    "beside_null": lambda bad: ({"nothing": None, "word": "null"}, bad),
}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("shape", SHAPES)
def test_not_finite_gives_nothing(bad: float, shape: str) -> None:
    """An answer with a number that is not finite, wherever it stands, gives no bytes."""
    assert encode_answer(SHAPES[shape](bad)) == b""


def test_denormal_stays_a_number() -> None:
    """The smallest numbers there are stay themselves."""
    assert strict(encode_answer([1e-320, 5e-324, -0.0])) == [1e-320, 5e-324, 0.0]


@pytest.mark.parametrize("answer", ["null", None, [None, "a null hypothesis"], {"null": 1.5}])
def test_honest_null_passes(answer: Any) -> None:
    """None and the word itself are no broken numbers."""
    assert strict(encode_answer(answer)) == answer


@pytest.mark.parametrize(
    "value,plain",
    [
        (np.float32(0.5), 0.5),
        (np.float16(0.25), 0.25),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.array([1, 2]), [1, 2]),
        (np.zeros((2, 1), dtype=np.float32), [[0.0], [0.0]]),
    ],
)
def test_numpy_is_taken_as_numbers(value: Any, plain: Any) -> None:
    """Scalars and arrays of numpy arrive as the numbers they hold, at any depth."""
    assert strict(encode_answer([{"score": value}])) == [{"score": plain}]


def test_others_are_refused() -> None:
    """What JSON cannot carry is an error of the pipeline, not a silent string."""
    with pytest.raises(TypeError):
        encode_answer({"score": object()})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    )
)
def test_strict_json_or_nothing(answer: Any) -> None:
    """Whatever an answer holds, its bytes are strict JSON of equal value, or there are none."""
    encoded = encode_answer(answer)
    if encoded:
        assert strict(encoded) == answer
    else:
        assert "NaN" in json.dumps(answer) or "Infinity" in json.dumps(answer)
