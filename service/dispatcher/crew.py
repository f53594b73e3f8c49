"""The crew: the workers' lives.

It starts them, and hears every one (``WorkerEvents``): ready, failed, lost. What a worker says of
an item goes on to ``preparing``, what it says of a batch to ``returns``.

Laws
- A lost worker loses nothing that waits: what it prepared is only a cache, and what it was
  preparing goes to another worker, or waits for the next one that is ready.
- What it *ran* gets 503 ``worker_lost`` at once; what waits stays if its deadline is later than the
  learned reload time, else it gets 503 ``model_loading`` at once.
- Whatever may have killed a worker becomes a suspect, unless the kill is no evidence: the members
  of the batch that ran, and the item in preparation. One alone is proof; so nobody's input is
  proved guilty by what another's did beside it. Their like in the queue are treated so too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from service import __version__
from service.core.admission import RETRY_LEAST_S
from service.core.cost import Cost
from service.core.errors import problem
from service.core.item import Item
from service.core.lifecycle import CrashLoop
from service.core.limits import derive
from service.core.split import MOST_WORKERS
from service.core.suspects import Suspects
from service.dispatcher.pool import Pool
from service.dispatcher.preparing import Preparing
from service.dispatcher.returns import Returns
from service.dispatcher.slots import Plan, Slot, retire, ticket_of
from service.logs import get_log
from service.metrics import Metrics
from service.settings import Settings
from service.settings.values import AUTO
from service.worker.wire import (
    Facts,
    Failed,
    Fault,
    FromWorker,
    Prepared,
    Probed,
    Ready,
    Result,
    Sample,
    Unfit,
)
from service.workers import Loss, Worker, WorkerFactory

EXIT_CONFIG = 2
EXIT_MODEL = 3
EXIT_CRASH_LOOP = 4

FIRST_RELOAD_S = 5.0
"""What a client is told before any load was measured."""


class Crew:
    """Every worker of the service.

    Args:
        settings: the settings in force.
        pool, returns: the rooms next door.
        metrics: where lives and samples are counted.
        clock: the one clock.
        crash_loop: counts deaths.
        suspects: inputs that were running when a worker was killed.
        on_fatal: called with an exit code when the process must give up.

    Attributes:
        preparing: the items that its workers prepare.
        facts: what the last worker that became ready knows of its model.
        failed: whether it gave up.
        reload_s: how long the last loss, or the start, lasted until the worker was ready.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        pool: Pool,
        returns: Returns,
        metrics: Metrics,
        clock: Callable[[], float],
        crash_loop: CrashLoop,
        suspects: Suspects,
        on_fatal: Callable[[int], None],
    ) -> None:
        self.preparing = Preparing(pool, metrics, clock)
        self.facts: Facts | None = None
        self.failed = False
        self.reload_s = FIRST_RELOAD_S
        self._settings = settings
        self._pool = pool
        self._queue = pool.queue
        self._returns = returns
        self._metrics = metrics
        self._clock = clock
        self._crash_loop = crash_loop
        self._suspects = suspects
        self._on_fatal = on_fatal
        self._factory: WorkerFactory
        self._absent_since: dict[int, float] = {}

    def start(self, factory: WorkerFactory, workers: int) -> None:
        """Start that many workers; returns at once."""
        self._factory = factory
        self._enlist(workers)

    def _enlist(self, workers: int) -> None:
        """Have that many workers in all."""
        now = self._clock()
        new = []
        for index in range(len(self._pool.slots), workers):
            new.append(Slot(self._factory(index, self)))
            self._absent_since[index] = now
        self._pool.slots += new
        for slot in new:
            slot.worker.start()

    async def stop(self) -> None:
        """End every worker for good, all at once; what still ran is over."""
        await asyncio.gather(*(slot.worker.stop() for slot in self._pool.slots))
        for slot in self._pool.slots:
            owed, _ = self._pool.vacate(slot)
            for item in owed:
                retire(item)

    def reload_left_s(self, now: float) -> float:
        """Predicted seconds until the next worker is ready."""
        if not self._absent_since:
            return 0.0
        return max(0.0, min(self._absent_since.values()) + self.reload_s - now)

    # ------------------------------------------------------------------ WorkerEvents

    def received(self, worker: Worker, frame: FromWorker) -> None:
        """A frame arrived."""
        slot = self._pool.slot_of(worker)
        suspect = slot.runs_suspect
        match frame:
            case Prepared():
                self.preparing.prepared(slot, frame)
            case Unfit():
                self.preparing.unfit(slot, frame)
            case Result():
                self._returns.result(slot, frame)
            case Fault():
                self._returns.fault(slot, frame)
            case Probed():
                self._returns.probed(slot, frame)
            case Ready():
                self._ready(slot, frame.facts, canary_ok=frame.canary_ok)
            case Failed():
                self._load_failed(worker, frame)
            case Sample():
                device = (
                    frame.device_allocated_bytes,
                    frame.device_reserved_bytes,
                    frame.device_total_bytes,
                )
                self._metrics.worker_sample(worker.index, frame.rss_bytes, frame.cpu_s, device)
        if suspect and not slot.runs_suspect:
            self.preparing.prepare_rest()

    def lost(self, worker: Worker, reason: Loss, *, evidence: bool) -> None:
        """The process is gone; ``evidence``: what it ran may have killed it."""
        now = self._clock()
        slot = self._pool.slot_of(worker)
        self._metrics.worker_restart(reason.value)
        self._metrics.worker_gone(worker.index)
        self._absent_since[worker.index] = now
        in_hand = _in_hand(slot, reason)
        generation = slot.generation
        owed, ran = self._pool.vacate(slot)
        counts = {"items": len(owed), "last": len(ran)}
        get_log().error("worker.lost", worker=worker.index, reason=reason.value, **counts)
        if evidence:
            self._suspect([*ran, *in_hand], now)
        alone = not self._pool.ready_slots()
        again_s = self.reload_s if alone else RETRY_LEAST_S
        for item in owed:
            ticket_of(item).refuse(problem("worker_lost", retry_after_s=again_s), item)
            retire(item)
        if alone:
            if reason is Loss.DEVICE_LOST:
                self._pool.circuit.device_lost(now)
            elif owed:
                self._pool.circuit.worker_lost(now, generation)
            self._send_away(now)
        if reason is not Loss.PROBE_FAILED and self._crash_loop.death(now):
            get_log().critical("worker.crash_loop", exit_code=EXIT_CRASH_LOOP)
            self._give_up(EXIT_CRASH_LOOP)
        self.preparing.prepare_rest()
        self._pool.feed()

    def _ready(self, slot: Slot, facts: Facts, *, canary_ok: bool) -> None:
        now = self._clock()
        since = self._absent_since.pop(slot.worker.index, now)
        self.reload_s = max(now - since, 0.1)
        self._metrics.model_loaded(facts.load_s)
        self._metrics.build_info(
            version=__version__, task=facts.task, model=facts.model, device=facts.device
        )
        if self._pool.plan is None:
            self._pool.plan = _plan(self._settings, facts)
        self.facts = facts
        self._pool.budget.fitted(float(facts.max_tokens))
        get_log().info(
            "worker.ready",
            worker=slot.worker.index,
            pid=slot.worker.pid,
            device=facts.device,
            torch_threads=facts.torch_threads,
            workers=facts.workers,
            path=facts.path,
            max_tokens=facts.max_tokens,
            load_s=round(facts.load_s, 3),
        )
        if canary_ok:
            self._pool.circuit.worker_ready(now)
        else:
            self._sick(slot, now)
        if self._settings.workers == AUTO:  # not before: loading beside it would make both wait
            self._enlist(min(facts.workers, MOST_WORKERS))
        self.preparing.prepare_rest()
        self._pool.feed()

    def _sick(self, slot: Slot, now: float) -> None:
        """It loaded as before, but fails its self-test: beside a good one it is replaced.

        Alone it is kept and probed, so that a fault that passes is over then, not a load later.
        """
        get_log().error("canary.failed", worker=slot.worker.index)
        if len(self._pool.ready_slots()) > 1 and not self._pool.circuit.open:
            slot.worker.kill(Loss.PROBE_FAILED)
        else:
            self._pool.circuit.sick(now)

    def _load_failed(self, worker: Worker, frame: Failed) -> None:
        trace = frame.trace
        get_log().error(
            "worker.failed",
            worker=worker.index,
            model=self._settings.model_name,
            reason=frame.reason,
            message=frame.message,
            **({"error": trace.error, "frames": trace.frames} if trace else {}),
        )
        if self.facts is None:
            self._give_up(EXIT_CONFIG if frame.reason == "no_device" else EXIT_MODEL)
        else:
            worker.kill(Loss.CRASHED)  # it could be loaded before: try again

    def _give_up(self, code: int) -> None:
        if not self.failed:
            self.failed = True
            self._on_fatal(code)

    def _suspect(self, items: Sequence[Item], now: float) -> None:
        """These may have killed a worker; whoever waits with the same input is treated alike."""
        if not items:
            return
        # The same input twice is one suspect, and alone.
        self._suspects.killed(list({item.fingerprint: None for item in items}), now)
        for item in list(self._queue):
            if self._suspects.is_poisoned(item.fingerprint, now):
                ticket_of(item).refuse(problem("poisoned_input"), item)
            elif self._suspects.is_suspect(item.fingerprint, now):
                item.alone = True

    def _send_away(self, now: float) -> None:
        """No worker is ready: whoever cannot wait for the reload is told so at once."""
        back = now + self.reload_s
        for item in list(self._queue):
            if item.deadline <= back:
                ticket_of(item).refuse(problem("model_loading", retry_after_s=self.reload_s))


def _in_hand(slot: Slot, reason: Loss) -> list[Item]:
    """The item in preparation, if it may have ended the worker: a batch hangs by itself."""
    if slot.running and reason not in (Loss.CRASHED, Loss.OOM_KILLED):
        return []
    return list(slot.preparing.values())[:1]


def _plan(settings: Settings, facts: Facts) -> Plan:
    cost = Cost(
        facts.cost_fixed_s, facts.cost_unit_s, facts.units_per_char, facts.prepare_s_per_char
    )
    limits = derive(
        settings.limit_settings,
        fixed_s=cost.fixed_s,
        unit_s=cost.unit_s,
        typical_units=float(facts.typical_units),
        max_tokens=facts.max_tokens,
    )
    return Plan(cost, limits, facts.batchable, facts.step_units, float(facts.most_units or "inf"))
