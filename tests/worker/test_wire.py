"""The wire: whole frames however they are torn, and nothing but frames."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.worker import framing
from service.worker.framing import Splitter, WireError
from service.worker.wire import (
    Drop,
    Facts,
    Failed,
    Fault,
    FromWorker,
    Load,
    Prepare,
    Prepared,
    Probe,
    Probed,
    Ready,
    Result,
    Run,
    Sample,
    ToWorker,
    Trace,
    Unfit,
    WireItem,
    decode_from_worker,
    decode_to_worker,
    encode,
)
from tests.worker.stub_worker import FACTS

ITEM = WireItem(7, "a text, ünicode 🙂", b'{"top_k":3}', "slow=5", b"\x00\xff")
TRACE = Trace("RuntimeError", ["a.py:1 f"])

TO_WORKER: list[ToWorker] = [
    Load("m", "fill-mask", rehearsal=True),
    Prepare(ITEM),
    Run(3, [ITEM, WireItem(8, "")]),
    Run(4, []),
    Probe(5),
    Drop([1, 2**40]),
]
FROM_WORKER: list[FromWorker] = [
    Ready(Facts(**FACTS)),
    Failed("model_broken", "It is broken.", TRACE),
    Prepared(1, 9, "k", 0.5),
    Unfit(1, "invalid_input", "send less", 512, None, "/parameters/top_k"),
    Result(3, [b"[]", b""], 0.25, 18, 20),
    Fault(3, "oom", 0.5, trace=TRACE),
    Probed(5, ok=False, device_lost=True, trace=TRACE),
    Sample(1, 0.5, 2, 3, 4),
]


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    """The frame bodies found when the stream arrives in pieces."""
    splitter = Splitter()
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [body for start, end in pairwise(bounds) for body in splitter.feed(data[start:end])]


@given(
    st.lists(st.sampled_from(TO_WORKER), max_size=6),
    st.lists(st.integers(0, 10_000), max_size=20),
)
def test_frames_survive_tearing(frames: list[ToWorker], cuts: list[int]) -> None:
    """However a stream is torn, the same frames come out, in order, once each."""
    bodies = split(b"".join(map(encode, frames)), cuts)
    assert [decode_to_worker(body) for body in bodies] == frames


@given(
    st.lists(st.sampled_from(FROM_WORKER), max_size=6),
    st.lists(st.integers(0, 10_000), max_size=20),
)
def test_answers_survive_tearing(frames: list[FromWorker], cuts: list[int]) -> None:
    """The same holds on the way back."""
    bodies = split(b"".join(map(encode, frames)), cuts)
    assert [decode_from_worker(body) for body in bodies] == frames


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_garbage_is_a_wire_error_or_nothing(data: bytes, cuts: list[int]) -> None:
    """Bytes that are no frames raise a WireError or wait for more; nothing else is ever raised."""
    try:
        for body in split(data, cuts):
            decode_from_worker(body)
    except WireError:
        return


@given(st.binary(max_size=100))
def test_garbage_body_is_a_wire_error(body: bytes) -> None:
    """A body that is not a frame raises a WireError whose text holds nothing of it."""
    for decode in (decode_to_worker, decode_from_worker):
        with pytest.raises(WireError, match=r"^not a frame of (the front|a worker)$"):
            decode(b"\xc1" + body)  # 0xc1 is never used in msgpack


def test_announced_size_is_bounded() -> None:
    """A frame that announces more than the limit is refused before a byte of it has arrived."""
    splitter = Splitter()
    assert list(splitter.feed((framing.MAX_FRAME).to_bytes(4, "big"))) == []
    with pytest.raises(WireError, match="too large"):
        list(Splitter().feed((framing.MAX_FRAME + 1).to_bytes(4, "big")))


def test_encoded_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame larger than the limit is not encoded, exactly at the limit it is."""
    size = len(encode(Prepare(ITEM))) - 4
    monkeypatch.setattr(framing, "MAX_FRAME", size)
    assert encode(Prepare(ITEM))
    monkeypatch.setattr(framing, "MAX_FRAME", size - 1)
    with pytest.raises(WireError, match="too large"):
        encode(Prepare(ITEM))


@pytest.mark.parametrize(
    "frame",
    [
        {"op": "result", "batch": "3", "outputs": [], "seconds": 1.0, "units": 1, "padded": 1},
        {"op": "result", "batch": 3, "outputs": ["text"], "seconds": 1.0, "units": 1, "padded": 1},
        {"op": "result", "batch": 3},
        {"op": "fault", "batch": 3, "kind": "other", "seconds": 1.0},
        {"op": "ready", "facts": {}},
        {"op": "run", "batch": 1, "items": []},
        {"op": "unheard"},
        {"batch": 3},
        ["result", 3],
        "result",
        None,
    ],
)
def test_wrong_types_are_refused(frame: Any) -> None:
    """Right msgpack of a wrong type, with a member missing or of the other side, is no frame."""
    with pytest.raises(WireError):
        decode_from_worker(msgspec.msgpack.encode(frame))


def test_deep_nesting_is_refused() -> None:
    """A frame nested deeper than the interpreter's stack is refused like any other garbage."""
    deep = b"\x82\xa2op\xa6result\xa1x" + b"\x91" * 100_000 + b"\x90"
    with pytest.raises(WireError):
        decode_from_worker(deep)
