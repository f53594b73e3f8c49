"""From bytes to requests: the parser's callbacks, bounded.

Laws
- A head, a chunk extension or a trailer is bounded; trailers are dropped, since they come too late
  to be headers.
- An offer to upgrade is declined by parsing the head again without it, so that the body arrives
  and the answer is the same as without the offer. Websockets are declined in the same way.
- Nothing is answered here: :meth:`ParsingProtocol.feed` only says whether parsing can go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.http.protocol.head import HeadMeter, without_upgrade

if TYPE_CHECKING:
    import asyncio

    import uvicorn
    from uvicorn.server import ServerState


class ParsingProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a bounded parser.

    Attributes:
        head: the bounds.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.head = HeadMeter()

    def feed(self, data: bytes) -> bool:
        """Parse a chunk; False: this connection's bytes make no sense (any more)."""
        self.head.heard = False
        rest = memoryview(data)
        try:
            while rest:
                rest = self._feed(rest)
        except httptools.HttpParserError:
            return False
        return self.head.fed(len(data))

    def _feed(self, data: memoryview) -> memoryview:
        """Parse as far as an offer to upgrade goes; what is left is for the parser after it."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            method, version = self.parser.get_method(), self.parser.get_http_version()
            head = without_upgrade(method, self.url, version, self.headers)
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self.parser.feed_data(head)
            return data[upgrade.args[0] :]
        return data[:0]

    def on_message_begin(self) -> None:
        """The first byte of a head."""
        self.head.begin()
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        self.head.told(len(url))
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or behind a body a trailer."""
        self.head.told(len(name) + len(value) + 4, lines=1)  # and b": \r\n"
        if self.head.open:
            name = name.lower()
            self.headers.append((name, value))
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True

    def on_headers_complete(self) -> None:
        """A request begins, unless the connection ends or the head is to be parsed again."""
        self.head.complete()
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise httptools.HttpParserError  # this is no proxy
        elif not (self.transport.is_closing() or self.turned_away()):
            self._let_in()

    def _let_in(self) -> None:
        """Begin the request, with what the parent makes at the first byte of every head."""
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expect
        self.headers.extend(headers)  # the parent's scope holds this list
        super().on_headers_complete()

    def turned_away(self) -> bool:
        """Whether the request was answered from its head and begins nothing."""
        return False

    def on_chunk_header(self) -> None:
        """A chunk begins; uvicorn does not ask, but its extensions are silent and so bounded."""
        self.head.heard = True

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self.head.heard = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is whole."""
        self.head.heard = True
        super().on_message_complete()
