"""Inference requests by the thousand: what is fit comes through whole, what is not is a refusal."""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import OutcomeClass, Refused
from service.http.media import Body
from service.http.oip.request import Said, take_apart
from service.http.oip.tensors import Torn, bytes_of, elements_of, floats_of
from tests.front.http_stage import Stage

CONTEXT = Stage().context
TASK = Stage(task="text-generation", model="words").context

texts = st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def taken(body: bytes, head_bytes: int | None = None) -> Body | None:
    """A body taken apart, ``None`` for a refusal: the client's fault, in words that are UTF-8."""
    try:
        return take_apart(body, head_bytes, CONTEXT)
    except Refused as refused:
        refusal = refused.problem
    assert refusal.kind.outcome_class is OutcomeClass.CLIENT
    for error in refusal.errors:
        assert error.pointer == "" or error.pointer.startswith("/")
        error.message.encode()
    return None


def tensor(**members: Any) -> dict[str, Any]:
    """The one input tensor."""
    return {"name": "inputs", "datatype": "BYTES", **members}


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_elements_come_back(elements: list[bytes]) -> None:
    """A BYTES tensor holds its elements, whatever they are."""
    assert elements_of(bytes_of(elements), len(elements)) == elements


@given(st.binary(max_size=60), st.integers(0, 6))
def test_any_bytes(data: bytes, count: int) -> None:
    """Bytes are exactly so many elements, or torn; nothing is ever lost or made up."""
    try:
        found = elements_of(data, count)
    except Torn:
        return
    assert len(found) == count
    assert bytes_of(found) == data


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=9))
def test_numbers_come_back(numbers: list[float]) -> None:
    """An FP32 tensor holds its numbers, little-endian."""
    assert list(struct.unpack(f"<{len(numbers)}f", floats_of(numbers))) == numbers


@given(texts, st.booleans(), st.booleans(), st.booleans())
def test_what_is_fit_comes_through(
    elements: list[str], binary: bool, column: bool, wanted: bool
) -> None:
    """Texts arrive as they were sent, as JSON or as bytes, in a row or a column."""
    shape = [len(elements), 1] if column else [len(elements)]
    raw = bytes_of(text.encode(errors="surrogatepass") for text in elements)
    data = {"parameters": {"binary_data_size": len(raw)}} if binary else {"data": elements}
    request = {
        "inputs": [tensor(shape=shape, **data)],
        "parameters": {"binary_data_output": wanted, "top_k": 3},
    }
    head = json.dumps(request).encode()
    body = taken(head + raw, len(head)) if binary else taken(head)
    lone = any("\ud800" <= letter <= "\udfff" for text in elements for letter in text)
    if body is None:
        assert lone
        return
    assert body.flaw is not None or body.inputs == elements
    assert (body.parameters, body.is_list) == ({"top_k": 3}, True)
    assert body.said == Said(None, tuple(shape), wanted)


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from(["id", "inputs", "outputs", "parameters", "more"]),
        json_values
        | st.lists(
            st.dictionaries(
                st.sampled_from(["name", "datatype", "shape", "data", "parameters"]),
                json_values | st.sampled_from(["inputs", "outputs", "BYTES", [1], ["a"]]),
            ),
            max_size=2,
        ),
    ),
    st.binary(max_size=9),
    st.integers(-3, 3) | st.none(),
)
def test_anything_else_is_a_refusal(request: Any, raw: bytes, off: int | None) -> None:
    """Whatever JSON comes, with whatever behind it, it is a request or a refusal with words."""
    head = json.dumps(request).encode()
    body = taken(head + raw, None if off is None else max(1, len(head) + off))
    if body is None:
        return
    assert isinstance(body.said, Said)
    assert len(body.inputs) == body.said.shape[0]
    assert all(isinstance(text, str) for text in body.inputs)


@given(st.binary(max_size=200), st.integers(1, 300) | st.none())
def test_any_body(data: bytes, head_bytes: int | None) -> None:
    """Any bytes at all are a request or a refusal."""
    taken(data, head_bytes)


@given(json_values)
def test_any_json_as_an_element(value: Any) -> None:
    """A text that holds JSON is an input of the task or itself, and never a surprise."""
    text = json.dumps([value])
    body = take_apart(json.dumps({"inputs": [tensor(shape=[1], data=[text])]}).encode(), None, TASK)
    assert body.inputs in ([text], [json.loads(text)]) or "NaN" in text
