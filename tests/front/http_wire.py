"""A client that writes bytes and reads answers, for what no well-behaved client would send."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httptools

TIMEOUT_S = 60.0
"""Far over anything that is waited for here."""


@dataclass(slots=True)
class Reply:
    """One answer as it stood on the wire."""

    status: int
    headers: dict[str, str]
    body: bytes


class Wire:
    """One connection.

    Args:
        address: of the server.
        source: the own address, where it matters.
    """

    def __init__(self, address: tuple[str, int], source: str = "") -> None:
        own = (source, 0) if source else None
        self.socket = socket.create_connection(address, TIMEOUT_S, own)
        self.ended = False
        self.reset = False
        self._replies: list[Reply] = []
        self._headers: dict[str, str] = {}
        self._body = b""
        self._parser = httptools.HttpResponseParser(self)

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def post(self, body: bytes, *headers: str, path: str = "/") -> Reply:
        """A whole POST and its answer."""
        self.write(request(body, *headers, path=path))
        return self.reply()

    def reply(self) -> Reply:
        """The next answer.

        Raises:
            EOFError: the connection ended first.
        """
        while not self._replies:
            if self.ended:
                raise EOFError
            self._read()
        return self._replies.pop(0)

    def rest(self) -> list[Reply]:
        """Every answer until the server closes."""
        while not self.ended:
            self._read()
        found, self._replies = self._replies, []
        return found

    def _read(self) -> None:
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data, self.reset = b"", True
        if data:
            self._parser.feed_data(data)
        else:
            self.ended = True

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode().lower()
        assert key not in self._headers, f"{key} twice"
        self._headers[key] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status != 100:
            self._replies.append(Reply(status, self._headers, self._body))
        self._headers, self._body = {}, b""


@contextmanager
def wire(address: tuple[str, int], source: str = "") -> Iterator[Wire]:
    """A connection that is closed at the end."""
    client = Wire(address, source)
    try:
        yield client
    finally:
        client.socket.close()


def head(*headers: str, method: str = "POST", path: str = "/") -> bytes:
    """A request's head."""
    lines = [f"{method} {path} HTTP/1.1", "Host: here", *headers, "", ""]
    return "\r\n".join(lines).encode()


def request(body: bytes, *headers: str, path: str = "/") -> bytes:
    """A whole POST of text."""
    if not any(line.lower().startswith("content-type") for line in headers):
        headers = ("Content-Type: text/plain", *headers)
    return head(*headers, f"Content-Length: {len(body)}", path=path) + body


def chunked(*parts: bytes, trailer: bytes = b"") -> bytes:
    """A body in chunks."""
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return chunks + b"0\r\n" + trailer + b"\r\n"
