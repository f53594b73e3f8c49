"""What the HTTP room is given, and what it notes of each request.

:class:`HttpContext` is built by the composition root; everything in this room gets what it needs
from it and from nowhere else. :class:`Call` is one request's note: written by whoever learns
something, read once, by ``access``, at the request's one exit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from service import NAME, __version__
from service.core.errors import Stage
from service.http.openapi import Reference
from service.http.shed_log import ShedLog
from service.metrics import OTHER, Metrics
from service.settings import Settings
from service.tasks import Task
from service.tasks.parameter import Json

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from service.dispatcher import Dispatcher

Scope = MutableMapping[str, Any]
"""An ASGI scope."""

_CALL = f"{NAME}.call"

WAITED_S = f"{NAME}.waited_s"
"""Where a scope says how long its request had waited before: set by who carries it here."""


@dataclass(slots=True, kw_only=True)
class HttpContext:
    """Everything that the HTTP room works with.

    Attributes:
        settings, metrics, task, version: of this server.
        dispatcher: where predictions go; never asked for anything that waits, but for a ticket.
        log: the event log.
        clock: seconds of the one monotonic clock, the same as the dispatcher's.
        closing: set at the signal to stop: from then on every answer closes its connection and
            ``/readyz`` says no, while predictions are served until the dispatcher drains.
        receiving_bytes: bytes of bodies held at present, over all connections.
        shed: which refusals by load have a line of their own in the log.
        reference: the description of the API.
    """

    settings: Settings
    metrics: Metrics
    dispatcher: Dispatcher
    task: Task
    log: FilteringBoundLogger
    clock: Callable[[], float] = time.monotonic
    version: str = __version__
    closing: bool = False
    receiving_bytes: int = 0
    shed: ShedLog = field(init=False)
    reference: Reference = field(init=False)

    def __post_init__(self) -> None:
        self.shed = ShedLog(self.log, self.clock)
        self.reference = Reference(self)

    @property
    def going_away(self) -> bool:
        """Whether clients should open their next connection to somebody else."""
        return self.closing or self.dispatcher.draining

    @property
    def example(self) -> Json:
        """An input that works on this model; ``None`` until its mask token is known."""
        facts, example = self.dispatcher.facts, self.task.example
        if facts is None:
            return None
        return example.replace("{mask}", facts.mask_token) if isinstance(example, str) else example

    @property
    def serves_embeddings(self) -> bool:
        """Whether the task can make one vector of a text."""
        return "pooling" in self.task.parameters


@dataclass(slots=True)
class Call:
    """What is known of one request.

    Attributes:
        request_id: the client's if it was fit, else ours.
        started: clock when its headers were complete.
        waited_s: what it had waited by then, at whoever gave it to us and told.
        prediction: whether it is one, and so ends in exactly one outcome.
        headers: the headers that this room reads, by lower-case name.
        repeated: those of them that came more than once.
        trace_id: of ``traceparent``, empty without.
        client: whose share it takes: a key, or a peer; empty if nobody knows.
        route: template of the page, for everything but predictions.
        outcome: ``ok`` or an error code; until something else is known, our own bug.
        stage: how far it had come, for late and gone.
        status: of the answer that was begun, 0 for none.
        items, queue_s, infer_s, batch_items: of a prediction, as far as known.
    """

    request_id: str
    started: float
    prediction: bool
    headers: dict[bytes, bytes]
    repeated: frozenset[bytes]
    trace_id: str = ""
    client: str = ""
    waited_s: float = 0.0
    route: str = OTHER
    outcome: str = "internal_error"
    stage: Stage | None = None
    status: int = 0
    items: int = 0
    queue_s: float = 0.0
    infer_s: float = 0.0
    batch_items: int = 0


def note(scope: Scope, call: Call) -> None:
    """Hang the request's note on its scope."""
    scope[_CALL] = call


def call_of(scope: Scope) -> Call:
    """The request's note."""
    call: Call = scope[_CALL]
    return call
