"""What comes back from a worker: answers, faults, verdicts of the canary.

One place counts batches. What a fault leads to is decided by ``core/isolation``; this room carries
the decision out.

Laws
- An item that ran gets exactly one end: its answer, its own error, or the loss of its worker.
- Frames that do not belong to what the slot runs now mean a broken worker, which is killed.
- Only batches of clients teach the cost model and the breaker; canaries teach neither.
- A worker that fails as often in a row as opens the breaker, and does not open it, is replaced.
"""

from __future__ import annotations

from collections.abc import Callable

from service.core.admission import RETRY_LEAST_S
from service.core.errors import problem
from service.core.isolation import FaultSort, Recovery, Verdict
from service.core.item import ItemState
from service.core.lifecycle import CrashLoop
from service.dispatcher.pool import Pool
from service.dispatcher.slots import MOST_UNITS, Batch, Slot, refusal_of, retire, ticket_of
from service.logs import get_log
from service.metrics import Metrics
from service.worker.wire import Fault, Probed, Result, Trace
from service.workers import Loss

LOGGED_IDS = 8
"""Most request ids in one log line of a failed batch."""


class Returns:
    """Reads the frames that end a step of a slot.

    Args:
        pool: the slots.
        metrics: where batches are counted.
        clock: the one clock.
        crash_loop: told of good batches.
    """

    def __init__(
        self, pool: Pool, metrics: Metrics, clock: Callable[[], float], crash_loop: CrashLoop
    ) -> None:
        self._pool = pool
        self._metrics = metrics
        self._clock = clock
        self._crash_loop = crash_loop

    def result(self, slot: Slot, frame: Result) -> None:
        """A batch was answered."""
        batch, plan = slot.batch, self._pool.plan
        if batch is None or plan is None or not _fits(frame, batch):
            slot.broken()
            return
        now = self._pool.end_batch(slot)
        seconds = now - batch.started
        self._metrics.batch(
            items=len(batch.items),
            seconds=seconds,
            units=frame.units,
            padded=frame.padded,
            wasted_share=sum(item.abandoned for item in batch.items) / len(batch.items),
            predicted_s=batch.predicted_s,
        )
        self._metrics.stage_seconds("infer", seconds)
        plan.cost.learn_batch(frame.padded, frame.units, seconds)
        if slot.recovery is None:
            self._pool.budget.good(frame.padded)
        else:
            slot.recovery.good(batch.items)
        for item, output in zip(batch.items, frame.outputs, strict=True):
            retire(item)
            ticket = ticket_of(item)
            if output:
                ticket.answer(item, output, seconds, len(batch.items))
            else:
                get_log().error("model.error", id=ticket.ask.request_id, reason="not_finite")
                ticket.refuse(problem("model_error"), item)
        if any(frame.outputs):
            slot.failures = 0
            self._crash_loop.good_batch()
            self._pool.circuit.good_batch(now, slot.generation)
        elif slot.recovery is None:
            # Not one usable answer: the canary tells whether the model is still in its senses.
            budget = self._pool.budget
            slot.recovery = Recovery(batch.items[:1], FaultSort.ERROR, budget=budget)
        self._pool.feed()

    def fault(self, slot: Slot, frame: Fault) -> None:
        """A batch failed as a whole."""
        batch = slot.batch
        if batch is None or frame.batch != batch.id:
            slot.broken()
            return
        slot.trace = frame.trace
        ids = [ticket_of(item).ask.request_id for item in batch.items[:LOGGED_IDS]]
        note = {"note": frame.message} if frame.kind == "error" and frame.message else {}
        get_log().error(
            "batch.failed",
            worker=slot.worker.index,
            kind=frame.kind,
            items=len(batch.items),
            ids=ids,
            **note,
            **_where(frame.trace),
        )
        if frame.kind == "device_lost":  # the batch stays: its members ended the worker
            slot.worker.kill(Loss.DEVICE_LOST)
            return
        now = self._pool.end_batch(slot)
        self._metrics.failed_batch(now - batch.started)
        sort = FaultSort(frame.kind)
        if sort is FaultSort.OOM:
            self._metrics.oom("failed" if len(batch.items) == 1 else "split")
        if slot.recovery is None:
            slot.recovery = Recovery(
                batch.items,
                sort,
                index=frame.index,
                message=frame.message,
                limit=frame.limit,
                budget=self._pool.budget,
            )
            verdicts = slot.recovery.verdicts
        else:
            verdicts = slot.recovery.failed(
                batch.items, sort, frame.index, frame.message, frame.limit
            )
        reason = "oom" if sort is FaultSort.OOM else "isolate"
        self._carry_out(slot, verdicts, reason, frame.pointer)
        self._pool.feed()

    def probed(self, slot: Slot, frame: Probed) -> None:
        """A canary came back: of a recovery, or one that was due."""
        if slot.probe is None or frame.probe != slot.probe:
            slot.broken()
            return
        now = self._pool.end_batch(slot)
        if not frame.ok:
            get_log().error("canary.failed", worker=slot.worker.index, **_where(frame.trace))
        if frame.device_lost:
            slot.leave_preparing()  # what it had in hand is not to blame
            slot.worker.kill(Loss.DEVICE_LOST)
        elif slot.recovery is not None:
            verdicts = slot.recovery.canary(ok=frame.ok)
            if not frame.ok:
                self._pool.circuit.confirmed_failure(now, slot.generation)
            self._carry_out(slot, verdicts, "isolate")
            if not frame.ok:
                self._confirmed(slot)
            self._pool.feed()
        elif self._pool.circuit.probed(now, ok=frame.ok):
            slot.worker.kill(Loss.PROBE_FAILED)
        else:
            self._pool.feed()

    def _confirmed(self, slot: Slot) -> None:
        """A batch of this worker failed and its canary too: when to put another in its place.

        Where the good batches of other workers keep the breaker closed it would go on failing its
        share of the clients for ever.
        """
        slot.failures += 1
        if slot.failures >= self._pool.circuit.patience and not self._pool.circuit.open:
            slot.worker.kill(Loss.PROBE_FAILED)

    def _carry_out(
        self, slot: Slot, verdicts: list[Verdict], reason: str, pointer: str = ""
    ) -> None:
        splits = slot.recovery.splits if slot.recovery else 0
        if splits > slot.splits:
            slot.splits = splits
            self._metrics.batch_split(reason)
            get_log().info("batch.split", worker=slot.worker.index, reason=reason)
        for verdict in verdicts:
            item = verdict.item
            if item.state is not ItemState.RUNNING:
                continue
            retire(item)
            ticket = ticket_of(item)
            if verdict.code == "model_error":
                get_log().error(
                    "model.error", id=ticket.ask.request_id, reason="raised", **_where(slot.trace)
                )
            at = pointer or ticket.pointer(item)
            again_s = None
            if verdict.code == "circuit_open":
                again_s = max(RETRY_LEAST_S, self._pool.circuit.retry_after_s(self._clock()))
            refusal = refusal_of(verdict.code, at, verdict.message, verdict.limit, again_s)
            ticket.refuse(refusal, item)


def _fits(frame: Result, batch: Batch) -> bool:
    """Whether it is the batch's answer, and its counts are possible."""
    return (
        frame.batch == batch.id
        and len(frame.outputs) == len(batch.items)
        and 0 <= frame.units <= MOST_UNITS
        and 0 <= frame.padded <= MOST_UNITS
    )


def _where(trace: Trace | None) -> dict[str, object]:
    return {"error": trace.error, "frames": trace.frames} if trace else {}
