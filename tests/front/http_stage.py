"""The HTTP room on a stage: everything real but the dispatcher, which obeys a script.

``Stage`` builds the context and the app; ``ask`` speaks ASGI with it; ``serving`` puts it behind a
real uvicorn with our protocol on a loopback socket.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.testing import LogCapture

from service.core.admission import Ask, due
from service.core.errors import Problem, Refused
from service.core.errors import Stage as Step
from service.core.item import Item, ItemState
from service.core.lifecycle import ServiceState
from service.core.limits import Limits, derive
from service.dispatcher import Dispatcher, Ticket
from service.http import Door, HttpContext, build_front, build_metrics_app
from service.http.protocol import GuardedProtocol, make_protocol
from service.metrics import Metrics
from service.settings import Settings
from service.tasks import TASKS
from service.worker.wire import Facts

VOCABULARY = 100
MAX_TOKENS = 16
WIDTH = 3

Mode = Literal["answer", "hold", "refuse", "raise"]
"""What becomes of an admitted request: answered at once, kept, refused, or a bug shows."""


class SecretError(Exception):
    """What a bug may raise: its text must never get out."""


class ScriptedDispatcher:
    """The dispatcher's outside, without anything behind it.

    ``gate_says`` refuses at the gate, ``admit_says`` at admission; ``mode`` says what becomes of
    what is admitted. ``entitled`` are clients with a claim to a share. ``asks``, ``tickets`` and
    ``claims`` are what came.
    """

    def __init__(self, limits: Limits | None) -> None:
        self.limits = limits
        self.int_facts = {"vocab_size": VOCABULARY, "max_tokens": MAX_TOKENS, "width": WIDTH}
        self.draining = False
        self.ever_ready = True
        self.facts: Facts | None = None
        self.state = ServiceState.READY
        self.readiness = (True, "ready for traffic")
        self.gate_says: Problem | None = None
        self.admit_says: Problem | None = None
        self.mode: Mode = "answer"
        self.end_with: Problem | None = None
        self.asks: list[Ask] = []
        self.tickets: list[Ticket] = []
        self.left: list[Step] = []
        self.gates = 0
        self.claims: list[str] = []
        self.entitled: set[str] = set()

    def gate(self) -> Problem | None:
        self.gates += 1
        return self.gate_says

    def has_claim(self, client: str) -> bool:
        self.claims.append(client)
        return client in self.entitled

    def ready(self) -> tuple[bool, str]:
        return self.readiness

    def status(self) -> dict[str, Any]:
        return {"state": "ready"}

    def admit(self, ask: Ask) -> Ticket:
        if self.admit_says is not None:
            raise Refused(self.admit_says)
        if self.mode == "raise":
            raise SecretError("boom /srv/app/secret.py token=abc123") from ValueError("deeper boom")
        loop = asyncio.get_running_loop()
        _, allowed_s = due(ask, 60.0, 60.0)
        ticket = Ticket(ask, allowed_s, allowed_s, loop, self._ended, lambda _: None)
        ticket.items = [
            Item(i, ticket, i, text, ask.parameters, len(text), 1.0, 0.0, 0.0)
            for i, text in enumerate(ask.inputs)
        ]
        self.asks.append(ask)
        self.tickets.append(ticket)
        if self.mode == "answer":
            self.answer(ticket)
        elif self.end_with is not None:
            ticket.refuse(self.end_with)
        return ticket

    def run(self, ticket: Ticket) -> None:
        """Its items are in a batch."""
        for item in ticket.items:
            item.move(ItemState.WAITING)
            item.started = 0.002
            item.move(ItemState.RUNNING)

    def answer(self, ticket: Ticket) -> None:
        """Every item gets an answer that says how many bytes it had, and its parameters.

        Where one vector is asked for, it is one, which begins with the number of characters.
        """
        self.run(ticket)
        for item in ticket.items:
            parameters = json.loads(item.parameters)
            given = {"bytes": len(item.inputs.encode()), **parameters}
            vector = [len(item.inputs), 0.5, -0.25]
            answer = vector if parameters.get("pooling", "none") != "none" else given
            item.move(ItemState.DONE)
            ticket.answer(item, json.dumps(answer).encode(), 0.004, len(ticket.items))

    def _ended(self, ticket: Ticket) -> None:
        end = ticket._end.result()
        if isinstance(end, Step):
            self.left.append(end)


class Stage:
    """Context, app and what they left behind.

    Args:
        settings: of the server, by name.
        clock: seconds; the real one if left out.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, **settings: Any) -> None:
        self.settings = Settings(**settings)
        limits = derive(
            self.settings.limit_settings,
            fixed_s=0.005,
            unit_s=0.0005,
            typical_units=8,
            max_tokens=MAX_TOKENS,
        )
        self.dispatcher = ScriptedDispatcher(limits)
        self.metrics = Metrics()
        self._capture = LogCapture()
        self.context = HttpContext(
            settings=self.settings,
            metrics=self.metrics,
            dispatcher=cast("Dispatcher", self.dispatcher),
            task=TASKS[self.settings.task],
            log=structlog.wrap_logger(
                None,
                processors=[self._capture],
                wrapper_class=structlog.make_filtering_bound_logger("debug"),
            ),
            clock=clock,
            version="1.2.3",
        )
        self.door: Door | None
        self.app, self.door = build_front(self.context)

    @property
    def metrics_app(self) -> ASGIApp:
        """The second listener's app."""
        return build_metrics_app(self.context)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        return [dict(entry) for entry in self._capture.entries if entry["event"] == event]

    @property
    def log_text(self) -> str:
        """All of the log."""
        return json.dumps([dict(entry) for entry in self._capture.entries], default=repr)

    def value(self, name: str, **labels: str) -> float:
        """A sample on the metrics page, 0 if there is none."""
        return self.metrics.registry.get_sample_value(f"seawall_{name}", labels) or 0.0

    def outcomes(self) -> dict[str, int]:
        """How many predictions ended how."""
        return {
            sample.labels["outcome"]: int(sample.value)
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "seawall_requests_total" and sample.value
        }

    @property
    def samples(self) -> int:
        """How many predictions were timed, in all classes together."""
        return int(
            sum(
                sample.value
                for family in self.metrics.registry.collect()
                for sample in family.samples
                if sample.name == "seawall_request_duration_seconds_count"
            )
        )


@dataclass(slots=True)
class Answer:
    """An answer, or none: ``status`` 0."""

    status: int = 0
    raw_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    @property
    def headers(self) -> dict[str, str]:
        """Each header once; a repeated one would be a bug."""
        names = [name for name, _ in self.raw_headers]
        assert len(set(names)) == len(names), names
        return {name.decode(): value.decode() for name, value in self.raw_headers}

    @property
    def json(self) -> Any:
        """The body, parsed strictly."""
        return json.loads(self.body, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


class Client:
    """One ASGI request under a test's control."""

    def __init__(
        self,
        app: ASGIApp,
        method: str = "POST",
        path: str = "/",
        headers: Sequence[tuple[str, str | bytes]] = (),
    ) -> None:
        self.answer = Answer()
        self.reads = 0
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._app = app
        self._scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                (name.lower().encode(), value if isinstance(value, bytes) else value.encode())
                for name, value in headers
            ],
        }

    def send(self, body: bytes, *, more: bool = False) -> None:
        """A part of the body arrives."""
        self._inbox.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self, **extra: Any) -> None:
        """The connection ends."""
        self._inbox.put_nowait({"type": "http.disconnect", **extra})

    async def run(self) -> Answer:
        """Have it served."""
        await self._app(self._scope, self._receive, self._send)
        return self.answer

    async def _receive(self) -> Message:
        self.reads += 1
        return await self._inbox.get()

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            assert not self.answer.status, "a second answer"
            self.answer.status = message["status"]
            self.answer.raw_headers = list(message["headers"])
        else:
            self.answer.body += message.get("body", b"")


def ask(
    app: ASGIApp,
    body: bytes | str | None = None,
    *,
    method: str = "POST",
    path: str = "/",
    headers: Sequence[tuple[str, str | bytes]] = (),
) -> Answer:
    """One whole request through the ASGI interface; text goes as JSON unless headers say so."""
    if body is not None and not any(name.lower() == "content-type" for name, _ in headers):
        headers = [*headers, ("Content-Type", "application/json")]
    client = Client(app, method, path, headers)
    client.send(body.encode() if isinstance(body, str) else body or b"")
    return asyncio.run(client.run())


@dataclass(frozen=True, slots=True)
class Served:
    """A running server; ``inside`` is what the protocol let in, by method and path."""

    address: tuple[str, int]
    loop: asyncio.AbstractEventLoop
    connections: Callable[[], list[GuardedProtocol]]
    inside: list[tuple[str, str]]

    def do(self, action: Callable[..., object], *args: object) -> None:
        """Do something on the server's loop, and wait until it is done."""
        done = threading.Event()

        def act() -> None:
            try:
                action(*args)
            finally:
                done.set()

        self.loop.call_soon_threadsafe(act)
        assert done.wait(60), "the server's loop is stuck"


@contextmanager
def serving(stage: Stage, loop: str = "uvloop") -> Iterator[Served]:
    """The app behind a real server on loopback."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    inside: list[tuple[str, str]] = []

    async def noted(scope: Scope, receive: Receive, send: Send) -> None:
        inside.append((scope["method"], scope["path"]))
        await stage.app(scope, receive, send)

    config = uvicorn.Config(
        noted,
        http=make_protocol(stage.settings, stage.metrics, stage.door),
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=stage.settings.keep_alive_s,
        reset_contextvars=True,
    )
    server = uvicorn.Server(config)
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop

    running: list[asyncio.AbstractEventLoop] = []

    def run() -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            running.append(runner.get_loop())
            runner.run(server.serve([listener]))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started, "the server did not start")
        yield Served(
            listener.getsockname(),
            running[0],
            lambda: cast("list[GuardedProtocol]", list(server.server_state.connections)),
            inside,
        )
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server did not stop"


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until a condition holds."""
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came so far")


def eventually(condition: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    """Wait until a condition holds; fail if it does not."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.005)
