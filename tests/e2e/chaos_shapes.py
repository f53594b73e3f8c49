"""The shapes of requests: plain ones, and everything that is wrong with bad ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Self

from tests.e2e.chaos_books import MARK
from tests.e2e.chaos_schedule import Deed, Schedule

Ending = AbstractSet[str]
"""Outcomes."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A request before it is sent.

    Attributes:
        id: its ``X-Request-Id``.
        what: the deed that it belongs to.
        token: what its inputs begin with, each with its place behind it.
        words: of each input.
        is_list: whether the inputs are a list.
        body: as sent.
        headers: beside host, id and length.
        ends: how it may end, beside what may befall anybody.
    """

    id: str
    what: str
    token: str
    words: tuple[int, ...]
    is_list: bool = False
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    ends: Ending = frozenset({"ok"})

    def head(self, length: int | None) -> bytes:
        """Its head; without a length the body comes in chunks."""
        how = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        named = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        text = f"POST / HTTP/1.1\r\nHost: chaos\r\nX-Request-Id: {self.id}\r\n{named}{how}\r\n\r\n"
        return text.encode()

    def wire(self) -> bytes:
        """All of it."""
        return self.head(len(self.body)) + self.body

    def that_ends(self, ends: Ending) -> Self:
        """The same with other ends."""
        return replace(self, ends=ends)

    def with_words(self, *words: int) -> Self:
        """The same with inputs of so many words."""
        return replace(self, words=words)

    def with_body(self, body: bytes, media_type: str) -> Self:
        """The same with this body."""
        return replace(self, body=body, headers={**self.headers, "Content-Type": media_type})

    def with_json(
        self, value: Any, *, is_list: bool = False, words: tuple[int, ...] | None = None
    ) -> Self:
        """The same with this body as JSON."""
        shape = self.with_body(json.dumps(value).encode(), "application/json")
        return replace(shape, is_list=is_list, words=words or self.words)

    def with_header(self, name: str, value: str, ends: Ending) -> Self:
        """The same with one more header, and how it ends then."""
        return replace(self, headers={**self.headers, name: value}, ends=ends)


def _malformed(body: bytes) -> Callable[[Shape], Shape]:
    return lambda shape: shape.with_body(body, "application/json").that_ends({"malformed_request"})


def _invalid(value: Any) -> Callable[[Shape], Shape]:
    return lambda shape: shape.with_json(value).that_ends({"invalid_input"})


def _header(name: str, value: str, end: str) -> Callable[[Shape], Shape]:
    return lambda shape: shape.with_header(name, value, {end})


def _unknown_parameter(shape: Shape) -> Shape:
    value = json.loads(shape.body) | {"parameters": {shape.token: 1}}
    return shape.with_json(value).that_ends({"invalid_input"})


def _torn(shape: Shape) -> Shape:
    return _malformed(shape.body[:-1])(shape)


BAD: Mapping[str, Callable[[Shape], Shape]] = {
    "empty": _invalid({"inputs": ""}),
    "torn": _torn,
    "number": _invalid({"inputs": 7}),
    "none": _invalid({"inputs": []}),
    "no_utf8": _malformed(b'{"inputs": "\xff\xfe"}'),
    "image": _header("Content-Type", "image/png", "unsupported_media_type"),
    "zipped": _header("Content-Encoding", "gzip", "unsupported_media_type"),
    "soon": _header("X-Request-Timeout-Ms", "soon", "malformed_request"),
    "unknown_fault": _header("X-Rehearse-Fault", "explode", "malformed_request"),
    "unknown_parameter": _unknown_parameter,
    "deep": _malformed(b"[" * 20_000),
}
"""Predictions that are refused for what they are."""

ODD: Mapping[str, tuple[bytes, int]] = {
    "garbage": (b"\x16\x03\x01 is no HTTP\r\n\r\n", 400),
    "length": (b"POST / HTTP/1.1\r\nHost: chaos\r\nContent-Length: x\r\n\r\n", 400),
    "endless_header": (b"POST / HTTP/1.1\r\nHost: chaos\r\nX: " + b"a" * 200_000, 431),
    "nowhere": (b"POST /nowhere HTTP/1.1\r\nHost: chaos\r\nContent-Length: 0\r\n\r\n", 404),
    "put": (b"PUT / HTTP/1.1\r\nHost: chaos\r\nContent-Length: 0\r\n\r\n", 405),
}
"""What is no prediction, and the status of its answer."""

FAULT_ENDS: Mapping[str, Ending] = {
    "slow": {"ok"}, "oom": {"ok"}, "raise": {"model_error"}, "nan": {"model_error"},
    "oom-always": {"out_of_memory"}, "hang": set(), "exit": set(), "segfault": set(),
    "device-lost": set(),
}  # fmt: skip
"""How each fault may end beside what may befall anybody."""


class Shapes:
    """Makes the requests of one round.

    Args:
        schedule: the round.
        masked: whether the model wants a mask in each input.
    """

    def __init__(self, schedule: Schedule, *, masked: bool) -> None:
        self._seed = schedule.seed
        self._name = f"{schedule.seed}-{schedule.round}"
        self._mark = f"{MARK}{schedule.seed}r{schedule.round}"
        self._masked = masked

    def text(self, token: str, words: int) -> str:
        """An input of so many words that begins with ``token``."""
        last = ["[MASK]"] if self._masked else ["wave"]
        return " ".join([token, *["wave"] * (words - 2), *last])

    def shape(self, deed: Deed, place: int = 0, items: int = 0) -> Shape:
        """A request; so many inputs as a list, or one alone (0)."""
        first = 7 * deed.number + 11 * place
        words = tuple(3 + (first + 17 * n) % 53 for n in range(items or 1))
        token = f"{self._mark}n{deed.number}n{place}n"
        shape = Shape(f"{self._name}-{deed.number}-{place}", deed.what, token, words)
        texts = [self.text(f"{token}{n}", count) for n, count in enumerate(words)]
        return shape.with_json({"inputs": texts if items else texts[0]}, is_list=bool(items))

    def single(self, deed: Deed, place: int) -> Shape:
        """The one request of a deed, with what its arguments say."""
        args, shape = deed.args, self.shape(deed, place)
        match deed.what:
            case "fault":
                fault: str = args["fault"]
                ends = FAULT_ENDS[fault.partition("=")[0]]
                return shape.with_header("X-Rehearse-Fault", fault, ends)
            case "hasty":
                ends = {"ok", "deadline_too_short"}
                return shape.with_header("X-Request-Timeout-Ms", str(args["timeout_ms"]), ends)
            case "poison":
                text = self.text(f"{MARK}{self._seed}poison{args['text']}", 3)
                shape = shape.with_json({"inputs": text}, is_list=False)
                return shape.with_header("X-Rehearse-Fault", "exit", {"poisoned_input"})
            case "bad":
                return BAD[args["which"]](shape)
        return shape
