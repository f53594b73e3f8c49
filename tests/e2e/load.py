"""Many requests at the same moment, from one event loop, each on a connection of its own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; status 0: the connection ended without one."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """``ok`` or the problem's code."""
        return "ok" if self.status == 200 else str(self.json["code"])


@dataclass(frozen=True, slots=True)
class Call:
    """One request to send."""

    body: bytes | str | dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    def wire(self, host: str) -> bytes:
        """As bytes of HTTP/1.1, the connection to be closed after it."""
        headers = {"Host": host, "Connection": "close", **self.headers}
        if isinstance(self.body, dict):
            headers.setdefault("Content-Type", "application/json")
            body = json.dumps(self.body).encode()
        else:
            body = self.body.encode() if isinstance(self.body, str) else self.body
        headers["Content-Length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST / HTTP/1.1\r\n{head}\r\n".encode() + body


async def send(port: int, call: Call) -> Answer:
    """Send one request and read its whole answer."""
    start = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(call.wire(f"127.0.0.1:{port}"))
        raw = await reader.read()
    except ConnectionError:
        raw = b""
    finally:
        writer.close()
    seconds = time.monotonic() - start
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    if not first:
        return Answer(0, seconds=seconds)
    pairs = (line.partition(":") for line in rest)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Answer(int(first.split()[1]), headers, body, seconds)


def at_once(port: int, calls: Sequence[Call]) -> list[Answer]:
    """Send every request at the same moment; the answers in the order of the calls."""

    async def everything() -> list[Answer]:
        sends = (send(port, call) for call in calls)
        return await asyncio.wait_for(asyncio.gather(*sends), LIMIT_S)

    return asyncio.run(everything())
