"""One connection of a client that may do anything: send, read, stall, leave."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from tests.e2e.load import Answer

SMALL_BYTES = 4096
"""Receive buffer of a client that does not read: the kernel takes little in its place."""

_RESET = struct.pack("ii", 1, 0)


class Connection:
    """A connection; closed at the end of its block, whatever happened.

    Args:
        port: of the server on loopback.
        small: whether the kernel is to hold little that is not read.

    Attributes:
        silent_s: how long it was open, or being opened, before the first byte was sent.
    """

    def __init__(self, port: int, *, small: bool = False) -> None:
        self._port = port
        self._small = small
        self._begun: float | None = None
        self.silent_s = 0.0

    async def __aenter__(self) -> Self:
        sock = socket.socket()
        sock.setblocking(False)
        try:
            if self._small:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
            loop = asyncio.get_running_loop()
            self._begun = loop.time()
            await loop.sock_connect(sock, ("127.0.0.1", self._port))
            limit = 1024 if self._small else 2**16
            self._reader, self._writer = await asyncio.open_connection(sock=sock, limit=limit)
        except BaseException:
            sock.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def send(self, data: bytes) -> None:
        """Send, or at least try to: the other side may be gone."""
        if self._begun is not None:
            self.silent_s = asyncio.get_running_loop().time() - self._begun
            self._begun = None
        if not self._writer.is_closing():
            self._writer.write(data)

    async def send_slowly(
        self, portions: Iterable[bytes], pause_s: float, answered: asyncio.Event
    ) -> None:
        """Send one portion after another until an answer is there."""
        for portion in portions:
            if answered.is_set():
                return
            self.send(portion)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(answered.wait(), pause_s)

    async def answer(self) -> Answer | None:
        """The next answer; ``None`` if the connection ends before it is whole."""
        start = time.monotonic()
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            first, *rest = head[:-4].decode("latin-1").split("\r\n")
            pairs = (line.partition(":") for line in rest)
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            body = await self._reader.readexactly(int(headers["content-length"]))
        except (OSError, asyncio.IncompleteReadError):
            return None
        at = time.monotonic()
        return Answer(int(first.split()[1]), headers, body, at - start, at)

    async def begins(self, limit_s: float) -> bool:
        """Wait at most so long for the first byte of an answer; whether it came."""
        try:
            async with asyncio.timeout(limit_s):
                return bool(await self._reader.read(1))
        except (OSError, TimeoutError):
            return False

    async def rest(self) -> bytes:
        """What the server still says once nothing more comes from here."""
        try:
            if self._writer.can_write_eof():
                self._writer.write_eof()
            return await self._reader.read()
        except OSError:
            return b""

    def reset(self) -> None:
        """End it with RST: whatever is under way is lost."""
        sock = self._writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()
