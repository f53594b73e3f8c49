"""Heads: how long one may be, what is left of an upgrade offer, and the answer to a bad one."""

from __future__ import annotations

from collections.abc import Iterable

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from service.core.errors import Problem
from service.http.identity import REQUEST_ID, new_request_id
from service.http.problems import Headers, render

HEAD_BYTES = 64 * 1024
"""Most bytes of a head (431). Other servers take 8 to 80 KiB."""

HEAD_LINES = 256
"""Most headers of a head (431): ten times what browsers and proxies send. Each costs far more
memory than its bytes say."""

_UPGRADE = frozenset({b"upgrade", b"http2-settings"})


class HeadTooLarge(Exception):
    """Raised through the parser to stop it."""


class HeadMeter:
    """Bounds what the parser swallows without handing it on as a body.

    Two measures, since the parser reports a header only when it is whole: what it reported of the
    present head or trailer, and the chunks of which it reported nothing at all (one endless
    header, a chunk extension, a trailer).

    Attributes:
        open: whether a head has begun and is not complete.
        heard: whether the parser reported anything of the present chunk.
        too_large: whether a bound was passed.
    """

    def __init__(self) -> None:
        self.open = False
        self.heard = False
        self.too_large = False
        self._told_bytes = 0
        self._told_lines = 0
        self._silent_bytes = 0

    def begin(self) -> None:
        """A message begins."""
        self.open = self.heard = True
        self._told_bytes = self._told_lines = 0

    def complete(self) -> None:
        """Its headers are complete; what is told from now on is a trailer."""
        self.open = False
        self.heard = True
        self._told_bytes = self._told_lines = 0

    def told(self, more: int, *, lines: int = 0) -> None:
        """The parser reported so many bytes, and so many headers, of a head or trailer.

        Raises:
            HeadTooLarge: more than :data:`HEAD_BYTES` or :data:`HEAD_LINES`.
        """
        self._told_bytes += more
        self._told_lines += lines
        if self._told_bytes > HEAD_BYTES or self._told_lines > HEAD_LINES:
            self.too_large = True
            raise HeadTooLarge

    def fed(self, chunk_bytes: int) -> bool:
        """A chunk has been parsed; whether that is still within bounds."""
        self._silent_bytes = 0 if self.heard else self._silent_bytes + chunk_bytes
        if self._silent_bytes > HEAD_BYTES:
            self.too_large = True
        return not self.too_large


def without_upgrade(
    method: bytes, url: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """The same head without its offer to speak another protocol, ready to be parsed again."""
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    for name, value in headers:
        kept = value
        if name == b"connection":
            tokens = (token.strip() for token in value.split(b","))
            kept = b", ".join(token for token in tokens if token.lower() not in _UPGRADE)
            if not kept:
                continue
        if name not in _UPGRADE:
            lines.append(name + b": " + kept)
    return b"\r\n".join([*lines, b"", b""])


def raw_answer(refusal: Problem, standing: Headers, status: int | None = None) -> bytes:
    """The whole answer to what never became a request; it closes the connection.

    Args:
        refusal: why.
        standing: headers that every answer has (the date).
        status: where it differs from the refusal's.
    """
    request_id = new_request_id()
    shown, headers, body = render(refusal, request_id, status=status)
    mine = dict(headers) | {REQUEST_ID: request_id.encode(), b"connection": b"close"}
    return answer_bytes(shown, list(mine.items()), body, standing)


def answer_bytes(status: int, headers: Headers, body: bytes, standing: Headers) -> bytes:
    """A whole answer as it goes over the wire; ``standing`` are the headers of every answer."""
    lines = [b"%b: %b\r\n" % line for line in (*standing, *headers)]
    return b"".join((STATUS_LINE[status], *lines, b"\r\n", body))
