"""The laws of everything that reads foreign bytes, against bytes that nobody thought of."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.tasks import files
from tests.fuzz import targets
from tests.fuzz.found import FOUND
from tests.fuzz.targets import NAMES, TARGETS

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
PARAMETERS = st.dictionaries(st.sampled_from(["top_k", "targets", "other"]), JSON)
BODIES = st.fixed_dictionaries(
    {}, optional={"inputs": JSON | st.lists(st.text()), "parameters": PARAMETERS, "more": JSON}
)

RAW = st.binary(max_size=40)
NUMBERS = st.integers(-2, 300) | st.floats() | st.booleans()
TENSORS = st.fixed_dictionaries(
    {
        "name": st.just("inputs"),
        "datatype": st.sampled_from(["BYTES", "FP32", "INT16", "UINT8", "INT64"]),
        "shape": st.lists(st.integers(-1, 4) | st.just(3), max_size=4),
    },
    optional={
        "data": st.lists(NUMBERS | st.text() | st.lists(NUMBERS), max_size=12) | JSON,
        "parameters": st.dictionaries(
            st.sampled_from(["binary_data_size", "sampling_rate", "content_type"]),
            st.integers(0, 20_000) | JSON,
        ),
    },
)

LINES = st.sampled_from(
    [
        b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: 99999999999",
        b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Expect: 100-continue",
        b"Connection: close", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c",
        b"Content-Type: application/json", b"Content-Type: text/plain", b"a:b", b"Host: here",
        b"X-Request-Timeout-Ms: 100", b"Content-Encoding: gzip", b": ", b"", b"X : y", b" folded",
    ]
)  # fmt: skip
STARTS = st.sampled_from(
    [b"POST / HTTP/1.1", b"POST / HTTP/1.0", b"GET / HTTP/1.1", b"HEAD /livez HTTP/1.1",
     b"PUT / HTTP/1.1", b"POST /none HTTP/1.1", b"CONNECT a:1 HTTP/1.1", b"", b"x", b"GET /"]
)  # fmt: skip
TAILS = st.sampled_from(
    [b"", b"hello", b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n",
     b"5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n", b'{"inputs": "a"}', b"g\r\n", b"5\r\nhell",
     b"\x00\xff"]
)  # fmt: skip
REQUESTS = st.builds(
    lambda start, lines, tail: b"\r\n".join([start, *lines, b"", tail]),
    STARTS, st.lists(LINES, max_size=4), TAILS,
)  # fmt: skip


def inference(tensor: object, raw: bytes | None, **members: object) -> bytes:
    """A request for ``inference``, with the tensor's bytes behind it."""
    head = json.dumps({"inputs": [tensor], **members}).encode()
    return head if raw is None else head + b"\n" + raw


def tensor_of(datatype: str, shape: list[int], size: int) -> dict[str, object]:
    """A tensor whose numbers follow as so many bytes."""
    parameters = {"binary_data_size": size}
    return {"name": "inputs", "datatype": datatype, "shape": shape, "parameters": parameters}


def cut_by(cut: int, parts: list[bytes]) -> bytes:
    """A stream for ``heads``, with the size of its pieces in front."""
    return bytes([cut]) + b"".join(parts)


@FEW
@given(
    st.binary(max_size=300)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_bodies_of_any_bytes(data: bytes) -> None:
    """Whatever a body holds, it is fit inputs or a fault of the client."""
    targets.body(data)


@FEW
@given(BODIES | JSON)
def test_bodies_of_any_json(value: object) -> None:
    """The same for JSON of every shape, with numbers and text of every kind."""
    targets.body(json.dumps(value).encode("utf-8", "surrogatepass"))


@FEW
@given(TENSORS | JSON, PARAMETERS, st.none() | RAW)
def test_inference_requests_of_any_tensor(tensor: object, asked: object, raw: bytes | None) -> None:
    """Whatever a tensor says of itself, its numbers arrive whole or the request is refused."""
    targets.inference(inference(tensor, raw, parameters=asked))


@FEW
@given(
    st.sampled_from([("FP32", 4, []), ("INT16", 2, []), ("UINT8", 1, [3])]),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.data(),
)
def test_inference_requests_of_any_numbers(
    kind: tuple[str, int, list[int]], axes: list[int], data: st.DataObject
) -> None:
    """Whatever numbers fill a tensor, they arrive as they were sent."""
    datatype, width, last = kind
    size = math.prod([*axes, *last]) * width
    raw = data.draw(st.binary(min_size=size, max_size=size))
    targets.inference(inference(tensor_of(datatype, [*axes, *last], size), raw))


@FEW
@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.binary(max_size=40)
            | st.text(st.sampled_from('0123456789- aA;="/,\t')).map(str.encode),
        )
    )
)
def test_headers_of_any_bytes(lines: list[tuple[bytes, bytes]]) -> None:
    """Whatever the headers hold that we read, a rule takes it or calls it the client's fault."""
    targets.headers(b"\n".join(bytes([NAMES.index(name)]) + value for name, value in lines))


@FEW
@given(st.integers(0, 255), st.lists(REQUESTS | st.binary(max_size=30), max_size=3))
def test_streams_of_any_requests(cut: int, parts: list[bytes]) -> None:
    """Good, odd and broken requests in any order, cut anywhere: known answers in valid HTTP."""
    targets.heads(cut_by(cut, parts))


@FEW
@given(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.integers(-(2**63), 2**63) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    ),
)
def test_streams_of_any_frames(data: bytes, value: object) -> None:
    """Whatever comes over the wire, it is frames or a WireError."""
    targets.wire(data)
    frame = msgspec.msgpack.encode(value)
    targets.wire(len(frame).to_bytes(4, "big") + frame + data)


@pytest.mark.parametrize("name,what", [(name, what) for name in FOUND for what in FOUND[name]])
def test_what_was_found_stays_mended(name: str, what: str) -> None:
    """Inputs that broke a law once, and those from which every search begins."""
    TARGETS[name](FOUND[name][what])


@pytest.mark.parametrize("datatype,shape,width", [("INT16", [2, 2], 2), ("UINT8", [1, 1, 3], 1)])
def test_lost_numbers_are_noticed(
    monkeypatch: pytest.MonkeyPatch, datatype: str, shape: list[int], width: int
) -> None:
    """A file that lacks some of the numbers fails its target."""
    raw = bytes(range(math.prod(shape) * width))
    sent = inference(tensor_of(datatype, shape, len(raw)), raw)
    targets.inference(sent)
    for name, writer in (("wav", files.wav), ("png", files.png)):
        broken = partial(_shorter, writer)
        monkeypatch.setattr(f"service.tasks.numbers.{name}", broken)
    with pytest.raises(AssertionError):
        targets.inference(sent)


def _shorter(writer: Callable[..., bytes], data: bytes, *how: Any, **more: Any) -> bytes:
    return writer(data[:-1] + b"\0", *how, **more)


def test_a_broken_law_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser that lets an empty text through fails its target."""
    monkeypatch.setattr("service.tasks.base.Task.parse_input", lambda _self, value, _pointer: value)
    with pytest.raises(AssertionError):
        targets.body(json.dumps({"inputs": "  "}).encode())
