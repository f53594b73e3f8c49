"""One service: its rooms put together, and what the outside may ask of it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from service.core.admission import RETRY_LEAST_S, Ask
from service.core.breaker import Breaker
from service.core.errors import Problem, problem
from service.core.fill import FillMeter
from service.core.item import ItemState
from service.core.lifecycle import CrashLoop, ServiceState, readiness, service_state
from service.core.limits import Limits
from service.core.queue import BoundedQueue
from service.core.suspects import Suspects
from service.dispatcher import status
from service.dispatcher.circuit import Circuit
from service.dispatcher.crew import Crew
from service.dispatcher.intake import Intake
from service.dispatcher.pool import Pool
from service.dispatcher.returns import Returns
from service.dispatcher.slots import ticket_of
from service.dispatcher.tickets import Ticket
from service.metrics import Metrics, Snapshot
from service.settings import Settings
from service.tasks import Task
from service.worker.wire import Facts
from service.workers import WorkerFactory

_INT_FACTS = ("vocab_size", "max_tokens", "width", "rate_hz")


class Dispatcher:
    """One service: its queue, its workers and the rooms between.

    Args:
        settings: the settings in force.
        task: what is served.
        metrics: where everything is counted.
        clock: the one clock, in seconds.
        on_fatal: called with an exit code when the process must give up.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        task: Task,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        on_fatal: Callable[[int], None],
    ) -> None:
        self.settings = settings
        self.task = task
        self.clock = clock
        self.draining = False
        self.stopped = False
        self.tickets: set[Ticket] = set()
        self.queue = BoundedQueue(settings.queue_limit, settings.queue_bytes)
        self.fill = FillMeter(clock())
        self._metrics = metrics
        self._waiters = 0
        self._all_answered, self._all_out = asyncio.Event(), asyncio.Event()
        self._all_answered.set()
        self._all_out.set()
        crash_loop = CrashLoop(settings.restart_limit, float(settings.restart_window_s))
        suspects = Suspects()
        breaker = Breaker(
            failures=settings.breaker_failures,
            probe_s=settings.breaker_probe_ms / 1000,
            phase=random.random(),  # noqa: S311  replicas must differ, nothing is secret
        )
        self.pool = Pool(self.queue, metrics, clock, self.observe)
        self.circuit = Circuit(breaker, metrics, self._refuse_waiting, self.pool.feed)
        self.pool.circuit = self.circuit
        self.crew = Crew(
            settings=settings,
            pool=self.pool,
            returns=Returns(self.pool, metrics, clock, crash_loop),
            metrics=metrics,
            clock=clock,
            crash_loop=crash_loop,
            suspects=suspects,
            on_fatal=on_fatal,
        )
        self.intake = Intake(
            queue=self.queue,
            pool=self.pool,
            crew=self.crew,
            suspects=suspects,
            clock=clock,
            on_end=self._ended,
            on_out=self._out,
        )
        metrics.bind(self.snapshot)

    @property
    def facts(self) -> Facts | None:
        """What is known of the model, once a worker was ready."""
        return self.crew.facts

    @property
    def int_facts(self) -> Mapping[str, int]:
        """The facts that requests are checked against."""
        facts = self.facts
        if facts is None:
            return {}
        return {name: getattr(facts, name) for name in _INT_FACTS}

    @property
    def limits(self) -> Limits | None:
        """The limits in force, once a worker was ready."""
        return self.pool.plan.limits if self.pool.plan else None

    @property
    def ever_ready(self) -> bool:
        """Whether the model has been ready once."""
        return self.facts is not None

    @property
    def state(self) -> ServiceState:
        """What the service is now."""
        return service_state(
            [slot.worker.state.value for slot in self.pool.slots],
            self.circuit.state,
            ever_ready=self.ever_ready,
            draining=self.draining,
            stopped=self.stopped,
            failed=self.crew.failed,
        )

    def ready(self) -> tuple[bool, str]:
        """Whether traffic may come, and the reason."""
        return readiness(self.state)

    def status(self) -> dict[str, Any]:
        """Everything that ``/status`` shows, as JSON values."""
        return status.describe(self, self._metrics.totals())

    def snapshot(self) -> Snapshot:
        """What the metrics read at a scrape."""
        self.observe()
        return status.snapshot(self)

    def gate(self) -> Problem | None:
        """Asked with the body unread: would any request be refused now?"""
        return self.intake.gate()

    def has_claim(self, client: str) -> bool:
        """Whether a client that load would refuse may have a share of what others hold."""
        return self.intake.has_claim(client)

    def admit(self, ask: Ask) -> Ticket:
        """Give a parsed request its places, all of them or none.

        Raises:
            Refused: with the first reason in the order of ``core/admission``.
        """
        ticket = self.intake.admit(ask)
        self.tickets.add(ticket)
        self._waiters += 1
        self._all_answered.clear()
        self._all_out.clear()
        for item in ticket.items:
            self.crew.preparing.prepare(item)
        self.observe()
        return ticket

    def start(self, factory: WorkerFactory, workers: int) -> None:
        """Start that many workers; returns at once."""
        self.crew.start(factory, workers)

    def start_drain(self) -> None:
        """Not ready any more; requests are still served."""
        self.draining = True

    def stop_admitting(self) -> None:
        """From now on every new prediction gets 503 ``draining``."""
        self.draining = self.intake.refusing = True

    async def answered(self) -> None:
        """Return when every request has its end; a batch may still run, but for nobody."""
        await self._all_answered.wait()

    async def drained(self) -> None:
        """Return when the last request is out, and its batch too."""
        await self._all_out.wait()

    def refuse_all(self, refusal: Problem) -> None:
        """End every open request with ``refusal``."""
        for ticket in list(self.tickets):
            ticket.refuse(refusal)

    async def stop(self) -> None:
        """End what is left with 503 ``draining``, and the workers."""
        self.stop_admitting()
        self.stopped = True
        self.refuse_all(problem("draining", retry_after_s=RETRY_LEAST_S))
        await self.crew.stop()
        self.circuit.close()
        self.observe()

    def observe(self) -> None:
        """Account for the time since the last event."""
        now = self.clock()
        cap_s = self.limits.wait_cap_s if self.limits else 0.0
        self.fill.update(
            now,
            depth=len(self.queue),
            limit=self.queue.limit,
            wait_s=self.intake.predicted_wait_s(now) if cap_s else 0.0,
            wait_cap_s=cap_s,
        )

    def _ended(self, ticket: Ticket) -> None:
        """A request has its end: what waits leaves now, what runs is for nobody any more."""
        now = self.clock()
        gone: list[int] = []
        for item in ticket.items:
            if item in self.queue:
                self._metrics.queue_wait(self.queue.withdraw(item, now))
                gone.append(item.id)
            elif item.state is ItemState.RUNNING:
                item.abandoned = True
        if gone:
            self.crew.preparing.forget(gone)
        self._waiters -= 1
        if not self._waiters:
            self._all_answered.set()
        self.observe()

    def _out(self, ticket: Ticket) -> None:
        self.tickets.discard(ticket)
        if not self.tickets:
            self._all_out.set()

    def _refuse_waiting(self) -> None:
        again_s = max(RETRY_LEAST_S, self.circuit.retry_after_s(self.clock()))
        refusal = problem("circuit_open", retry_after_s=again_s)
        for ticket in dict.fromkeys(ticket_of(item) for item in self.queue):
            ticket.refuse(refusal)
