"""Many requests at the same moment, from one event loop, each on a connection of its own."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

LIMIT_S = 240.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; status 0: the connection ended without one."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0
    at: float = 0.0
    """When it was complete, by the monotonic clock."""

    @property
    def json(self) -> Any:
        """The body as JSON of a strict parser."""
        return json.loads(self.body, parse_constant=_no_constant)

    @property
    def code(self) -> str:
        """``ok``, the problem's code, or ``nothing`` for no answer."""
        if self.status == 0:
            return "nothing"
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
    raw = b""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(call.wire(f"127.0.0.1:{port}"))
            while more := await reader.read(65536):  # in portions: a reset may follow an answer
                raw += more
        finally:
            writer.close()
    except ConnectionError:
        pass
    at = time.monotonic()
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    if not first:
        return Answer(0, seconds=at - start, at=at)
    pairs = (line.partition(":") for line in rest)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Answer(int(first.split()[1]), headers, body, at - start, at)


def at_once(port: int, calls: Sequence[Call]) -> list[Answer]:
    """Send every request at the same moment; the answers in the order of the calls."""

    async def everything() -> list[Answer]:
        sends = (send(port, call) for call in calls)
        return await asyncio.wait_for(asyncio.gather(*sends), LIMIT_S)

    return asyncio.run(everything())


def in_background(port: int, calls: Sequence[Call]) -> Future[list[Answer]]:
    """The same on a thread of its own."""
    answers: Future[list[Answer]] = Future()

    def work() -> None:
        try:
            answers.set_result(at_once(port, calls))
        except BaseException as error:  # noqa: BLE001  it belongs to whoever asks for the answers
            answers.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return answers


@contextmanager
def crowd(port: int, calls: Sequence[Call], *, clients: int, pause_s: float) -> Iterator[None]:
    """So many clients meanwhile, each asking again a while after it was answered or refused."""
    over = threading.Event()

    async def ask(call: Call) -> None:
        while not over.is_set():
            await send(port, call)
            await asyncio.sleep(pause_s)

    async def everybody() -> None:
        await asyncio.gather(*(ask(calls[number % len(calls)]) for number in range(clients)))

    thread = threading.Thread(target=asyncio.run, args=(everybody(),), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
