"""What is fuzzed: each target takes any bytes and fails only where a law is broken.

``test_fuzz`` runs them in every test run, ``python -m tests.fuzz NAME`` guided by coverage.
"""

from __future__ import annotations

import json
import math
import re
import struct
import zlib
from collections.abc import Callable, Iterable
from functools import cache

from service.core.errors import OutcomeClass, Refused
from service.http import asking, identity, media
from service.http.asking import Patience
from service.http.body import check_headers
from service.http.context import Call, HttpContext
from service.http.oip import Oip
from service.http.oip.request import take_apart
from service.http.peers import peer_of
from service.http.problems import render
from service.worker.framing import Splitter, WireError
from service.worker.wire import decode_from_worker, decode_to_worker, encode
from tests.front.http_stage import Stage
from tests.fuzz.memory import House

NAMES = sorted(identity.READ)
"""The headers that the room reads."""

KNOWN = {200, 400, 404, 405, 408, 413, 415, 422, 431}
"""What a client may be told by a server that is well and idle."""

UNHURRIED = Patience(None, math.inf)
"""Nobody said how long they wait."""


@cache
def _stage() -> Stage:
    return Stage(max_body_bytes=4096, rehearsal=True)


@cache
def _contexts() -> tuple[HttpContext, ...]:
    """Of a task of each kind of input; the sounds' model hears 16 kHz."""
    tasks = (
        "text-generation", "audio-classification", "image-classification",
        "document-question-answering",
    )  # fmt: skip
    stages = [Stage(task=task, model="some", max_body_bytes=4096) for task in tasks]
    for stage in stages:
        stage.dispatcher.int_facts["rate_hz"] = 16_000
    return tuple(stage.context for stage in stages)


@cache
def _house() -> House:
    return House()


def _is_the_clients_fault(refused: Refused) -> None:
    refusal = refused.problem
    assert refusal.kind.outcome_class is OutcomeClass.CLIENT, refusal.code
    status, headers, body = render(refusal, "an-id")
    assert json.loads(body)["status"] == status
    assert all(b"\r" not in value and b"\n" not in value for _, value in headers)


def body(data: bytes) -> None:
    """A body is inputs that can be tokenised, within the limits, or a fault of the client."""
    context = _stage().context
    for how in media.Reading:
        call = Call("an-id", 0.0, prediction=True, headers={}, repeated=frozenset())
        try:
            ask = asking.ask_of(
                call, context, media.take_apart(data, how),
                nbytes=len(data), body_at=0.0, patience=UNHURRIED, rehearse="",
            )  # fmt: skip
        except Refused as refused:
            _is_the_clients_fault(refused)
            continue
        assert 1 <= len(ask.inputs) <= context.settings.max_items
        assert all(text.strip() and text.encode() for text in ask.inputs)
        assert sum(map(len, ask.inputs)) <= len(data)
        assert isinstance(json.loads(ask.parameters), dict)
        if how is media.Reading.JSON:  # nothing lenient is served: a strict parser agrees
            given = json.loads(data.removeprefix(b"\xef\xbb\xbf"))["inputs"]
            assert list(ask.inputs) == (given if ask.is_list else [given])


def inference(data: bytes) -> None:
    """An inference request is inputs that hold what was sent, or a fault of the client.

    Whatever the task takes. Behind the first line end are the bytes of the tensor.
    """
    head, cut, raw = data.partition(b"\n")
    for context in _contexts():
        call = Call("an-id", 0.0, prediction=True, headers={}, repeated=frozenset())
        try:
            taken = take_apart(head + raw, len(head) if cut else None, context)
        except Refused as refused:
            _is_the_clients_fault(refused)
            continue
        try:
            ask = asking.ask_of(
                call, context, taken, nbytes=len(data), body_at=0.0, patience=UNHURRIED, rehearse=""
            )
        except Refused as refused:
            placed = Oip().placed(refused.problem, taken)
            assert all(fault.pointer.startswith(("/inputs/0", "/param")) for fault in placed.errors)
            _is_the_clients_fault(Refused(placed))
            continue
        assert len(ask.inputs) == taken.said.shape[0] <= context.settings.max_items
        assert sum(map(len, ask.media)) <= ask.nbytes
        [tensor] = json.loads(head)["inputs"]
        if tensor["datatype"] != "BYTES":
            numbers = b"".join(map(_numbers, ask.media))
            assert numbers == raw if cut else len(numbers) % math.prod(tensor["shape"]) == 0


def _numbers(file: bytes) -> bytes:
    """Samples or pixels of a file that the front has written."""
    if file.startswith(b"RIFF"):
        return file[44:]
    (width,) = struct.unpack_from(">I", file, 16)
    (length,) = struct.unpack_from(">I", file, 33)
    rows = zlib.decompress(file[41 : 41 + length])
    step = 3 * width + 1
    return b"".join(rows[at + 1 : at + step] for at in range(0, len(rows), step))


def headers(data: bytes) -> None:
    """However headers look, each rule gives what is fit or a fault of the client.

    A line is one header: its first byte says which.
    """
    lines = [line for line in data.split(b"\n") if line]
    sent = [(NAMES[line[0] % len(NAMES)], line[1:]) for line in lines]
    context = _stage().context
    found, repeated = identity.read(sent)
    request_id = identity.request_id(found, repeated)
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,128}", request_id)
    assert re.fullmatch(r"([0-9a-f]{32})?", identity.trace_id(found, repeated))
    call = Call(request_id, 0.0, prediction=True, headers=found, repeated=repeated)
    rules: Iterable[Callable[[], object]] = (
        lambda: media.reading(call),
        lambda: Oip().reading(call, context),
        lambda: check_headers(call, context),
        lambda: asking.rehearsed_fault(call, rehearsal=True),
    )
    for rule in rules:
        try:
            rule()
        except Refused as refused:
            _is_the_clients_fault(refused)
    try:
        patience = asking.patience_of(call, 60_000)
    except Refused as refused:
        _is_the_clients_fault(refused)
    else:
        assert patience.client_s is None or 0 < patience.client_s <= 60
        assert 0 < patience.least_s <= 60 or patience == UNHURRIED
    assert peer_of(data.decode("latin-1")) is not None


def wire(data: bytes) -> None:
    """A stream of frames is frames, or a WireError; what is decoded can be sent again."""
    for decode in (decode_from_worker, decode_to_worker):
        try:
            frames = [decode(one) for one in Splitter().feed(data)]
        except WireError:
            continue
        for frame in frames:
            [again] = Splitter().feed(encode(frame))
            assert decode(again) == frame or "nan" in repr(frame)


def heads(data: bytes) -> None:
    """Any bytes on a connection: known answers, in valid HTTP, however they are cut.

    The first byte says where.
    """
    if not data:
        return
    size, stream = data[0] + 1, data[1:]
    whole, asked = _house().converse([stream])
    cut = [stream[start : start + size] for start in range(0, len(stream), size)]
    in_pieces, asked_in_pieces = _house().converse(cut)
    assert set(whole + in_pieces) <= KNOWN, (whole, in_pieces)
    assert asked == asked_in_pieces, "a cut changes what is asked"


TARGETS: dict[str, Callable[[bytes], None]] = {
    "body": body,
    "headers": headers,
    "heads": heads,
    "inference": inference,
    "wire": wire,
}
