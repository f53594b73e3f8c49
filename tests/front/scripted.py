"""A service in virtual time: the real dispatcher over workers that obey a script.

A scripted worker stands behind the ``Worker`` protocol and keeps its laws: it loads, prepares one
item after another, runs one batch at a time, reports its loss and comes back by itself. What it
does with a batch is written in its script, by the texts of the batch. Its times are exact in binary
(an eighth of a second and a sixty-fourth for each unit), so that tests compare times with ``==``.

Every frame goes through the wire's own encoder and decoder. What the dispatcher does against the
protocol (a second RUN, a RUN to a worker that is not ready) is noted in ``violations``, and
:class:`House` fails for it, as for every law that holds at the end of any story.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ParamSpec, Self

import structlog

from service import METRIC_PREFIX
from service.core.errors import Problem, Refused
from service.dispatcher import Ask, Dispatcher, Reply, Ticket
from service.metrics import Metrics
from service.settings import Settings
from service.tasks import TASKS
from service.worker import wire
from service.worker.wire import (
    Facts,
    Failed,
    Fault,
    FromWorker,
    Prepared,
    Probed,
    Ready,
    Result,
    ToWorker,
    Trace,
    Unfit,
    WireItem,
)
from service.workers import Loss, Worker, WorkerEvents, WorkerState
from tests.virtual import run_virtual

P = ParamSpec("P")

FIXED_S = 0.125
UNIT_S = 1 / 64

FACTS = Facts(
    task="synthetic",
    model="scripted",
    device="virtual",
    dtype="none",
    mask_token="",
    max_tokens=512,
    vocab_size=0,
    batchable=True,
    cost_fixed_s=FIXED_S,
    cost_unit_s=UNIT_S,
    typical_units=8,
    units_per_char=1.0,
    prepare_s_per_char=0.0,
    load_s=1.0,
    torch_threads=1,
)

TRACE = Trace("RuntimeError", ["model.py:1 forward"])

LONG_S = 300.0
"""Longer than anything takes in these stories."""

DEATHS: dict[str, tuple[Loss, bool]] = {
    "crash": (Loss.CRASHED, True),
    "stray_kill": (Loss.CRASHED, False),
    "oom_kill": (Loss.OOM_KILLED, True),
}
"""How a script may end a worker: the reason that is reported, and whether it is evidence."""

IN_A_RUN = {"prepare_crash": "crash", "prepare_hang": "hang", "unfit": "input"}
"""What becomes of a fault in preparing when a lone run does the preparing."""


def virtual(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an ``async def`` test in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        run_virtual(main(), limit_s=7200.0)

    return run


def text(name: str, units: int = 8) -> str:
    """A text of so many units (one for each character), beginning with its name."""
    assert len(name) <= units
    return name.ljust(units, ".")


def batch_s(*units: int) -> float:
    """Seconds of a batch of items of these sizes."""
    return FIXED_S + UNIT_S * len(units) * max(units)


@dataclass
class Script:
    """What a worker does.

    Attributes:
        load_s: seconds from the start to READY.
        reload_s: seconds from a loss to READY again.
        load: ``ready``, ``crash``, ``hang``, or the reason of a FAILED.
        prepare_s: seconds to prepare one item.
        marks: what happens to a batch that holds a text with this name, see :meth:`mark`.
        every: what happens to every batch.
        oom_above: a batch of more items runs out of memory.
        canary: ``good``, ``bad``, ``lost``, ``hang`` or ``crash``.
        speed: factor on every time of a run.
        keys: batch key by name.
        units: size of every text, 0: its length.
    """

    load_s: float = 1.0
    reload_s: float = 2.0
    load: str = "ready"
    prepare_s: float = 0.0
    marks: dict[str, str] = field(default_factory=dict)
    every: str = ""
    oom_above: int = 1_000_000
    canary: str = "good"
    canary_s: float = FIXED_S
    speed: float = 1.0
    keys: dict[str, str] = field(default_factory=dict)
    units: int = 0
    facts: Facts = FACTS

    def size(self, item: WireItem) -> int:
        """Its size in units."""
        return self.units or len(item.inputs)

    def mark(self, item: WireItem) -> str:
        """What the item's text brings about: its name is what stands before the first dot."""
        return self.marks.get(item.inputs.partition(".")[0], "")


@dataclass(frozen=True)
class Run:
    """One batch as the worker got it."""

    at: float
    worker: int
    batch: int
    names: tuple[str, ...]


class ScriptedWorker:
    """A worker in virtual time."""

    def __init__(self, index: int, events: WorkerEvents, script: Script) -> None:
        self.index = index
        self.state = WorkerState.STARTING
        self.facts: Facts | None = None
        self.pid: int | None = None
        self.script = script
        self.runs: list[Run] = []
        self.probes: list[float] = []
        self.prepared: list[str] = []
        self.dropped: list[int] = []
        self.losses: list[tuple[float, Loss]] = []
        self.violations: list[str] = []
        self.busy = False
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._timers: set[asyncio.Handle] = set()
        self._line: list[WireItem] = []
        self._preparing = False

    # ------------------------------------------------------------------ Worker

    def start(self) -> None:
        self.pid = 1000 + self.index
        self.state = WorkerState.LOADING
        self._later(self.script.load_s, self._load)

    def prepare(self, item: WireItem) -> None:
        self._heard(wire.Prepare(item))
        self._line.append(item)
        if not self._preparing:
            self._prepare_next()

    def run(self, batch: int, items: Sequence[WireItem]) -> None:
        self._heard(wire.Run(batch, list(items)))
        if self.busy or not items:
            self.violations.append(f"run {batch} while busy, or of nothing")
        self.busy = True
        names = tuple(item.inputs.partition(".")[0] for item in items)
        self.runs.append(Run(self._loop.time(), self.index, batch, names))
        units = max(self.script.size(item) for item in items)
        seconds = self.script.speed * (FIXED_S + UNIT_S * len(items) * units)
        for act in self._acts(items):
            if act.startswith("slow="):
                seconds += float(act.removeprefix("slow="))
        self._later(seconds, self._end, batch, list(items))

    def probe(self, probe: int) -> None:
        self._heard(wire.Probe(probe))
        if self.busy:
            self.violations.append(f"probe {probe} while busy")
        self.busy = True
        self.probes.append(self._loop.time())
        self._later(self.script.canary_s, self._answer_probe, probe)

    def drop(self, ids: Sequence[int]) -> None:
        self._heard(wire.Drop(list(ids)))
        self.dropped += ids

    def kill(self, reason: Loss) -> None:
        if self.state in (WorkerState.RESTARTING, WorkerState.STOPPED):
            return
        self._leave()
        evidence = reason is not Loss.PROBE_FAILED
        self._later(0.0, self._report, reason, evidence)

    async def stop(self) -> None:
        self._cancel()
        self.state = WorkerState.STOPPED
        self.facts = None

    # ------------------------------------------------------------------ what the tests do

    def die(self, how: str = "crash") -> None:
        """End now, as ``DEATHS`` says."""
        reason, evidence = DEATHS[how]
        self._leave()
        self._report(reason, evidence)

    def say(self, frame: FromWorker) -> None:
        """Send a frame, whatever it is."""
        self._events.received(self, wire.decode_from_worker(wire.encode(frame)[4:]))

    # ------------------------------------------------------------------ inside

    def _load(self) -> None:
        load = self.script.load
        if load == "hang":
            return
        if load == "crash":
            self.die()
        elif load == "ready":
            self.state = WorkerState.READY
            self.facts = self.script.facts
            well = not self.losses or self.script.canary == "good"  # the first is always well
            self.say(Ready(self.script.facts, canary_ok=well))
        else:
            self.state = WorkerState.FAILED
            self.say(Failed(load, "The model cannot be loaded."))

    def _prepare_next(self) -> None:
        self._preparing = bool(self._line)
        if self._line and self.script.mark(self._line[0]) != "prepare_hang":
            self._later(self.script.prepare_s, self._answer_prepare)

    def _answer_prepare(self) -> None:
        item = self._line.pop(0)
        act = self.script.mark(item)
        name = item.inputs.partition(".")[0]
        self.prepared.append(name)
        if act == "prepare_crash":
            self.die()
            return
        if act == "unfit":
            self.say(Unfit(item.id, "invalid_input", message="send another text", limit=3))
        elif act == "unfit_parameter":
            self.say(Unfit(item.id, "invalid_input", message="less", pointer="/parameters/top_k"))
        elif act == "prepare_error":
            self.say(Unfit(item.id, "model_error", trace=TRACE))
        else:
            key = self.script.keys.get(name, "")
            self.say(Prepared(item.id, self.script.size(item), key, self.script.prepare_s))
        self._prepare_next()

    def _acts(self, items: Sequence[WireItem]) -> list[str]:
        acts = [self.script.every, *(self.script.mark(item) for item in items)]
        return [act for act in acts if act]

    def _end(self, batch: int, items: list[WireItem]) -> None:
        acts = self._acts(items)
        seconds = FIXED_S
        # What was not prepared before is prepared within the run.
        acts = [IN_A_RUN.get(act, act) for act in acts]
        if "hang" in acts:
            return
        self.busy = False
        for act in acts:
            if act in DEATHS:
                self.die(act)
                return
        if "device_lost" in acts:
            self.say(Fault(batch, "device_lost", seconds, trace=TRACE))
        elif len(items) > self._fits(acts):
            self.say(Fault(batch, "oom", seconds))
        elif "error" in acts:
            self.say(Fault(batch, "error", seconds, trace=TRACE))
        elif "input" in acts:
            marks = [self.script.mark(item) for item in items]
            index = next((i for i, mark in enumerate(marks) if mark in {"input", "unfit"}), 0)
            self.say(Fault(batch, "input", seconds, index=index, message="send less", limit=7))
        elif "input_parameter" in acts:
            pointer = "/parameters/targets"
            self.say(Fault(batch, "input", seconds, index=0, message="other", pointer=pointer))
        else:
            self._answer(batch, items, acts)

    def _fits(self, acts: list[str]) -> int:
        """Most items that the memory holds."""
        if "oom_alone" in acts:
            return 0
        return 1 if "oom" in acts else self.script.oom_above

    def _answer(self, batch: int, items: list[WireItem], acts: list[str]) -> None:
        outputs = [
            b"" if self.script.mark(item) == "empty" or self.script.every == "empty"
            else item.inputs.encode()
            for item in items
        ]  # fmt: skip
        if "few" in acts:
            outputs.pop()
        if "many" in acts:
            outputs.append(b"one more")
        lengths = [self.script.size(item) for item in items]
        units, padded = sum(lengths), len(items) * max(lengths)
        if "minus" in acts:
            units = -units
        if "wrong_batch" in acts:
            batch += 1
        self.say(Result(batch, outputs, FIXED_S, units, padded))

    def _answer_probe(self, probe: int) -> None:
        canary = self.script.canary
        if canary == "hang":
            return
        self.busy = False
        if canary == "crash":
            self.die()
            return
        lost = canary == "lost"
        trace = None if canary == "good" else TRACE
        self.say(Probed(probe, ok=canary == "good", device_lost=lost, trace=trace))

    def _leave(self) -> None:
        self._cancel()
        self.state = WorkerState.RESTARTING
        self.facts = self.pid = None

    def _report(self, reason: Loss, evidence: bool) -> None:
        self.losses.append((self._loop.time(), reason))
        self._later(self.script.reload_s, self._load)
        self._events.lost(self, reason, evidence=evidence)

    def _heard(self, frame: ToWorker) -> None:
        if self.state is not WorkerState.READY:
            self.violations.append(f"{type(frame).__name__} while {self.state}")
        wire.decode_to_worker(wire.encode(frame)[4:])

    def _later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        # In the next turn of the loop at the least: a worker never answers from inside a call.
        handle: asyncio.Handle

        def fire() -> None:
            self._timers.discard(handle)
            do(*args)

        handle = self._loop.call_later(seconds, fire) if seconds else self._loop.call_soon(fire)
        self._timers.add(handle)

    def _cancel(self) -> None:
        for handle in self._timers:
            handle.cancel()
        self._timers.clear()
        self._line.clear()
        self._preparing = self.busy = False


class Caller:
    """Whoever sent a request: what it was told, and when.

    Attributes:
        sent, ended: when, in seconds of the house's own time.
        outcome: ``ok`` or the code; empty while it waits.
    """

    def __init__(self, house: House, ask: Ask) -> None:
        self.ask = ask
        self.sent = house.now
        self.ended: float | None = None
        self.outcome = ""
        self.reply: Reply | None = None
        self.problem: Problem | None = None
        self.ticket: Ticket | None = None
        self._house = house
        self._task: asyncio.Task[None] | None = None
        try:
            self.ticket = house.dispatcher.admit(ask)
        except Refused as refusal:
            self._refused(refusal.problem)
        else:
            self._task = asyncio.get_running_loop().create_task(self._wait(self.ticket))

    @property
    def names(self) -> tuple[str, ...]:
        """The answers' names, in order: each must be the one that was asked."""
        assert self.reply is not None, self.outcome
        return tuple(output.decode().partition(".")[0] for output in self.reply.outputs)

    async def end(self) -> str:
        """Wait for the outcome."""
        if self._task is not None:
            await self._task
        return self.outcome

    async def _wait(self, ticket: Ticket) -> None:
        try:
            self.reply = await ticket.wait()
        except Refused as refusal:
            self._refused(refusal.problem)
        else:
            outputs = tuple(output.decode() for output in self.reply.outputs)
            assert outputs == self.ask.inputs, "an answer to somebody else's question"
            self._done("ok")

    def _refused(self, problem: Problem) -> None:
        self.problem = problem
        self._done(problem.code)

    def _done(self, outcome: str) -> None:
        assert not self.outcome, "told twice"
        self.outcome = outcome
        self.ended = self._house.now


class House:
    """One service with its scripted workers; time 0 is when the first worker is ready.

    At the end it is checked that the books balance, in every test.
    """

    def __init__(
        self, script: Script | None = None, *, workers: int = 1, wait: bool = True, **settings: Any
    ) -> None:
        self.script = script or Script()
        self.workers: list[ScriptedWorker] = []
        self.callers: list[Caller] = []
        self.fatal: list[int] = []
        self.bugs: list[dict[str, Any]] = []
        self.metrics = Metrics()
        self.loop = asyncio.get_running_loop()
        self._zero = self.loop.time()
        self._count = workers
        self._wait = wait
        values: dict[str, Any] = {"model": "synthetic:cpu", "deadline_ms": 4000}
        if workers > 1:
            values["workers"] = workers
        self.settings = Settings(**values | settings)
        self.dispatcher = Dispatcher(
            settings=self.settings,
            task=TASKS["synthetic"],
            metrics=self.metrics,
            clock=self.loop.time,
            on_fatal=self.fatal.append,
        )
        self._capture = structlog.testing.capture_logs()
        self.log: list[Any] = []

    async def __aenter__(self) -> Self:
        self.log = self._capture.__enter__()
        self.loop.set_exception_handler(lambda _, context: self.bugs.append(context))
        self.dispatcher.start(self._make, self._count)
        if self._wait:
            await self.ready()
            self._zero = self.loop.time()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self.close()
        finally:
            self._capture.__exit__(kind, error, at)

    def _make(self, index: int, events: WorkerEvents) -> Worker:
        worker = ScriptedWorker(index, events, self.script)
        self.workers.append(worker)
        return worker

    @property
    def now(self) -> float:
        """Seconds since the first worker was ready."""
        return self.loop.time() - self._zero

    @property
    def worker(self) -> ScriptedWorker:
        """The only worker."""
        return self.workers[0]

    @property
    def batches(self) -> list[tuple[str, ...]]:
        """The names of every batch that was run, in order."""
        runs = [run for worker in self.workers for run in worker.runs]
        return [run.names for run in sorted(runs, key=lambda run: run.batch)]

    @property
    def starts(self) -> list[float]:
        """When each of them began."""
        runs = [run for worker in self.workers for run in worker.runs]
        return [run.at - self._zero for run in sorted(runs, key=lambda run: run.batch)]

    def ask(
        self,
        *inputs: str,
        timeout_s: float | None = None,
        is_list: bool | None = None,
        age_s: float = 0.0,
        body_s: float = 0.0,
        nbytes: int | None = None,
        client: str = "",
        proxy_s: float = math.inf,
    ) -> Ask:
        """A request whose headers came ``age_s`` ago and whose body took ``body_s`` of it."""
        headers_at = self.loop.time() - age_s
        return Ask(
            request_id=f"r{len(self.callers)}",
            inputs=inputs,
            parameters=b"{}",
            is_list=len(inputs) > 1 if is_list is None else is_list,
            nbytes=sum(map(len, inputs)) if nbytes is None else nbytes,
            headers_at=headers_at,
            body_at=headers_at + body_s,
            timeout_s=timeout_s,
            client=client,
            proxy_s=proxy_s,
        )

    def send(self, *inputs: str, **given: Any) -> Caller:
        """Ask now, and wait for the outcome in the background."""
        caller = Caller(self, self.ask(*inputs, **given))
        self.callers.append(caller)
        return caller

    async def ends(self, *callers: Caller) -> list[str]:
        """The outcomes of ``callers``, of all if none is named."""
        return [await caller.end() for caller in callers or self.callers]

    async def until(self, at: float) -> None:
        """Let time pass until ``at`` and everything that happens then."""
        await asyncio.sleep(at - self.now)
        await self.turn()

    async def turn(self) -> None:
        """Let everything happen that can happen now."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def step(self) -> None:
        """Let a little time pass."""
        await asyncio.sleep(1 / 64)

    async def ready(self) -> None:
        """Wait until the service is ready."""
        await self.when(lambda: self.dispatcher.ready()[0])

    async def when(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(LONG_S):
            while not condition():
                await self.step()

    def metric(self, name: str, **labels: str) -> float:
        """A value of the metrics page."""
        value = self.metrics.registry.get_sample_value(METRIC_PREFIX + name, labels)
        assert value is not None, name
        return value

    def in_flight(self) -> tuple[int, int]:
        """Requests queued and running, as a scrape shows them."""
        snapshot = self.dispatcher.snapshot()
        return snapshot.in_flight_queued, snapshot.in_flight_running

    def events(self, name: str) -> list[Any]:
        """The log events of that name."""
        return [event for event in self.log if event["event"] == name]

    async def close(self) -> None:
        """End the service and check what holds at the end of every story."""
        await self.dispatcher.stop()
        outcomes = await self.ends()
        assert all(outcomes), "somebody was told nothing"
        await asyncio.wait_for(self.dispatcher.drained(), 60.0)
        self._check_times()
        assert not self.dispatcher.tickets
        assert len(self.dispatcher.queue) == 0
        assert (self.dispatcher.queue.nbytes, self.dispatcher.queue.units) == (0, 0)
        assert len(self.dispatcher.queue.shares) == self.dispatcher.queue.shares.top == 0
        assert self.in_flight() == (0, 0)
        assert self.metric("queue_depth") == 0
        items = sum(len(one.ask.inputs) for one in self.callers if one.ticket is not None)
        assert self.metric("queue_wait_seconds_count") == items
        assert not self.bugs
        assert not [fault for worker in self.workers for fault in worker.violations]
        assert not self.timers(), "a timer was left behind"

    def _check_times(self) -> None:
        for caller in self.callers:
            if caller.ticket is None:
                assert caller.ended == caller.sent, "a refusal took time"
                continue
            assert caller.ended is not None
            deadline = caller.ticket.items[0].deadline - self._zero
            assert caller.ended <= max(deadline, caller.sent), "told after its deadline"

    def timers(self) -> list[asyncio.TimerHandle]:
        """Timers of the loop that would still fire."""
        scheduled: list[asyncio.TimerHandle] = self.loop._scheduled  # type: ignore[attr-defined]
        return [handle for handle in scheduled if not handle.cancelled()]

    def count(self) -> Counter[str]:
        """How often each outcome came."""
        return Counter(caller.outcome for caller in self.callers)
