"""One story in virtual time: the real dispatcher, a simulated worker, and whoever comes.

Everything between an arrival and its answer is the product's own code: gate, admission, tickets
with their timers, queue, pool, batching, cost model, metrics. The story adds users and a device.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any

import structlog

from service import METRIC_PREFIX
from service.core.admission import Ask
from service.core.errors import Problem, Refused
from service.dispatcher import Dispatcher, Ticket
from service.metrics import Metrics
from service.settings import Settings
from service.tasks import TASKS
from service.workers import Worker, WorkerEvents
from tests.bench.simulation_clients import GIVES_UP, Rate, Retry, User, users
from tests.bench.simulation_device import Device, text
from tests.bench.simulation_worker import Ran, SimulatedWorker
from tests.virtual import run_virtual

DEEP = 4000
"""Requests that wait when capacity is measured."""

ENDLESS_S = 3600.0
"""The patience of those."""

RETRIES_SAVED = 10.0
"""Most retries that a budget can save up."""


@dataclass(frozen=True)
class Story:
    """What happens.

    Attributes:
        device: where the model runs.
        rate: how many users come, in multiples of the device's capacity.
        seconds: for how long they come.
        seed: of everything that is random.
        retry: what they do with a refusal.
        fit_error: the warm-up measured so many times what is true.
        slow: from when to when the device takes how many times as long.
        stall: when a batch takes so many seconds longer, once.
    """

    device: Device
    rate: Rate
    seconds: float
    seed: int = 1
    retry: Retry = GIVES_UP
    fit_error: float = 1.0
    slow: tuple[float, float, float] = (math.inf, math.inf, 1.0)
    stall: tuple[float, float] = (math.inf, 0.0)


@dataclass
class Record:
    """What came of a story.

    Attributes:
        users: everybody who came, in order.
        batches: every batch that was run; times count from the start of the story.
        owners: the user of each item.
        wasted_s, useful_s: model time as the product's own metrics have it.
    """

    users: list[User]
    batches: list[Ran] = field(default_factory=list)
    owners: dict[int, User] = field(default_factory=dict)
    wasted_s: float = 0.0
    useful_s: float = 0.0


def play(story: Story, *, lift_wait_cap: bool = False) -> Record:
    """Let a story happen at the device's own capacity."""
    crowd = users(story.device, story.rate, capacity(story.device), story.seconds, story.seed)
    return _run(_Stage(story, crowd), lift_wait_cap=lift_wait_cap)


@cache
def capacity(device: Device) -> float:
    """Requests a second with :data:`DEEP` of them waiting and nobody in a hurry: C."""
    # Every length as often as it comes, or C would move by 2 % with the luck of the draw.
    lengths = list(device.sample[:: len(device.sample) // DEEP])
    Random("capacity").shuffle(lengths)
    crowd = [User(0.0, words, 5, ENDLESS_S) for words in lengths]
    stage = _Stage(Story(device, (), 0.0), crowd, queue_limit=DEEP, max_deadline_ms=3_600_000)
    record = _run(stage, lift_wait_cap=True)
    if not all(user.ok for user in crowd):
        raise AssertionError("somebody was not served though nobody was in a hurry")
    return len(crowd) / sum(batch.seconds for batch in record.batches)


def _run(stage: _Stage, *, lift_wait_cap: bool) -> Record:
    """Play in virtual time, the same each time, with logs held back and no line traced.

    Tracing for coverage triples the time of a story and sees no line that the tests of each room
    do not see; it goes on afterwards.
    """
    tracer, chance = sys.gettrace(), random.getstate()
    sys.settrace(None)
    random.seed(stage.story.seed)  # the dispatcher spreads Retry-After by chance
    try:
        with structlog.testing.capture_logs():
            return run_virtual(stage.play(lift_wait_cap=lift_wait_cap))
    finally:
        random.setstate(chance)
        sys.settrace(tracer)


class _Stage:
    """A running story."""

    def __init__(self, story: Story, crowd: list[User], **settings: Any) -> None:
        self.story = story
        self._crowd = crowd
        self._settings = settings
        self._record = Record(crowd)
        self._random = Random(f"clients {story.seed}")
        self._savings = RETRIES_SAVED
        self._stalled = False
        self._open = len(crowd)
        self._done = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._bugs: list[dict[str, Any]] = []

    async def play(self, *, lift_wait_cap: bool) -> Record:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, context: self._note_bug(context))
        await self._start()
        if lift_wait_cap:
            self._lift_wait_cap()
        self._zero = self._loop.time()
        self._loop.call_at(self._zero + self._crowd[0].at, self._arrive, 0)
        await self._done.wait()
        await self._dispatcher.stop()
        await self._dispatcher.drained()
        self._check()
        return self._record

    async def _start(self) -> None:
        device = self.story.device
        values: dict[str, Any] = {
            "model": device.model,
            "deadline_ms": round(1000 * device.deadline_s),
        }
        self._metrics = Metrics()
        self._dispatcher = Dispatcher(
            settings=Settings(**values | self._settings),
            task=TASKS["synthetic"],
            metrics=self._metrics,
            clock=self._loop.time,
            on_fatal=lambda code: self._note_bug({"exit": code}),
        )
        self._dispatcher.start(self._make, 1)
        await asyncio.sleep(0)  # a simulated worker needs one turn of the loop
        if not self._dispatcher.ready()[0]:
            raise AssertionError("the worker is not ready")

    def _lift_wait_cap(self) -> None:
        plan = self._dispatcher.pool.plan
        if plan is None:
            raise AssertionError("no limits though the service is ready")
        limits = replace(plan.limits, wait_cap_s=math.inf)
        self._dispatcher.pool.plan = replace(plan, limits=limits)

    def _make(self, _: int, events: WorkerEvents) -> Worker:
        self._worker = SimulatedWorker(
            events,
            self.story.device,
            seed=self.story.seed,
            fit_error=self.story.fit_error,
            slowness=self._slowness,
            stall_s=self._stall_s,
        )
        return self._worker

    # ------------------------------------------------------------------ the device

    def _slowness(self) -> float:
        start, end, factor = self.story.slow
        return factor if start <= self._loop.time() - self._zero < end else 1.0

    def _stall_s(self) -> float:
        at, seconds = self.story.stall
        if self._stalled or self._loop.time() - self._zero < at:
            return 0.0
        self._stalled = True
        return seconds

    # ------------------------------------------------------------------ the users

    def _arrive(self, number: int) -> None:
        self._savings = min(RETRIES_SAVED, self._savings + self.story.retry.budget)
        self._ask(self._crowd[number])
        if number + 1 < len(self._crowd):
            at = self._zero + self._crowd[number + 1].at
            self._loop.call_at(at, self._arrive, number + 1)

    def _ask(self, user: User) -> None:
        user.attempts += 1
        now = self._loop.time()
        refusal = self._dispatcher.gate()
        if refusal is not None:
            self._failed(user, now, refusal)
            return
        words = text(user.words, user.letters)
        ask = Ask("", (words,), b"{}", False, len(words), now, now, user.patience_s)
        try:
            ticket = self._dispatcher.admit(ask)
        except Refused as refused:
            self._failed(user, now, refused.problem)
            return
        self._record.owners[ticket.items[0].id] = user
        task = self._loop.create_task(self._wait(user, ticket, now))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wait(self, user: User, ticket: Ticket, since: float) -> None:
        try:
            await ticket.wait()
        except Refused as refused:
            self._failed(user, since, refused.problem)
        else:
            self._end(user, since, "ok")

    def _failed(self, user: User, since: float, refusal: Problem) -> None:
        retry = self.story.retry
        if user.attempts > retry.most or not refusal.kind.retryable or not self._may_retry():
            self._end(user, since, refusal.code)
            return
        self._note_overtime(user, since)
        pause_s = retry.pause_s(user.attempts, refusal.retry_after_s, self._random)
        self._loop.call_later(pause_s, self._ask, user)

    def _may_retry(self) -> bool:
        if self.story.retry.budget == math.inf:
            return True
        if self._savings < 1.0:
            return False
        self._savings -= 1.0
        return True

    def _end(self, user: User, since: float, outcome: str) -> None:
        self._note_overtime(user, since)
        user.ended = self._loop.time() - self._zero
        user.outcome = outcome
        self._open -= 1
        if not self._open:
            self._done.set()

    def _note_overtime(self, user: User, since: float) -> None:
        over = self._loop.time() - since - user.patience_s
        user.overtime_s = max(user.overtime_s, over)

    # ------------------------------------------------------------------ the end

    def _note_bug(self, context: dict[str, Any]) -> None:
        self._bugs.append(context)
        self._done.set()  # whoever waits for the end would wait in vain

    def _check(self) -> None:
        if self._bugs:
            raise AssertionError(f"an exception was swallowed: {self._bugs[0]}")
        if len(self._dispatcher.queue) or self._dispatcher.tickets:
            raise AssertionError("the house is not empty at the end")
        self._record.batches = [
            replace(batch, started=batch.started - self._zero) for batch in self._worker.batches
        ]
        self._record.wasted_s, self._record.useful_s = map(self._model_s, ("wasted", "useful"))

    def _model_s(self, use: str) -> float:
        name = METRIC_PREFIX + "inference_seconds_total"
        seconds = self._metrics.registry.get_sample_value(name, {"use": use})
        if seconds is None:
            raise AssertionError(f"no metric {name}")
        return seconds
