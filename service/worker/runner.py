"""The worker's inside: frames in, frames out, the model's calls in one thread.

=======  =========================================  ============================================
thread   does                                       ends
=======  =========================================  ============================================
main     LOAD, RUN, PROBE: every call of the model  when a LOAD fails, with the process
reader   reads the socket, hands frames on          at EOF, with the process, model hung or not
prepare  PREPARE, DROP and what RUN misses          never
sample   SAMPLE, once a second                      never
=======  =========================================  ============================================

Laws
- A RUN has exactly one answer, RESULT or FAULT; a PROBE exactly one PROBED. Nothing that a model
  raises, SystemExit and KeyboardInterrupt included, ends the loop.
- A FAULT leaves after the handler is left, its references are dropped and caches are emptied: an
  exception that is still alive holds its frames, and they hold the tensors.
- The number of answers is checked against the number of items; a mismatch makes all doubtful.
- What comes after a failure (canary, halves, restart) is the front's decision.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from socket import socket
from threading import Event, Thread
from time import perf_counter
from typing import Any

import msgspec

from service.tasks import task_named
from service.worker.answers import encode_answer
from service.worker.cache import PreparedCache
from service.worker.faults import kind_of, trace_of
from service.worker.framing import WireError
from service.worker.interface import (
    CannotLoad,
    DeviceBytes,
    Mismatch,
    Pipeline,
    PreparedInput,
    Unsuitable,
)
from service.worker.link import EXIT_BROKEN_WIRE, EXIT_ENDED, Link
from service.worker.pipelines import load_pipeline
from service.worker.preparer import Preparer
from service.worker.rehearsal import FaultName, Rehearsal, parse_fault, spoil
from service.worker.sampling import SAMPLE_S, sample_until
from service.worker.wire import (
    Drop,
    Failed,
    Fault,
    Load,
    Prepare,
    Probe,
    Probed,
    Ready,
    Result,
    Run,
    ToWorker,
    WireItem,
)

EXIT_CANNOT_LOAD = 3
"""FAILED was sent. The front decides by the frame, not by this."""


class Misfit(Exception):
    """An item of a RUN does not fit after all: it was not in the cache and never prepared."""

    def __init__(self, index: int, reason: Unsuitable) -> None:
        super().__init__("misfit")
        self.index = index
        self.reason = reason


class Runner:
    """One worker on one socket.

    Args:
        sock: connected, blocking; owned from now on.
        load: makes the pipeline that LOAD asks for.
        ended: called in the reader's thread when the socket ends; must not return to a hung model.
    """

    def __init__(
        self,
        sock: socket,
        *,
        load: Callable[[Load], Pipeline] = load_pipeline,
        ended: Callable[[int], None] = os._exit,
        sample_s: float = SAMPLE_S,
    ) -> None:
        self._link = Link(sock, ended)
        self._load = load
        self._sample_s = sample_s
        self._stopped = Event()
        self._jobs: SimpleQueue[Load | Run | Probe | None] = SimpleQueue()
        self._cache = PreparedCache()
        self._preparer = Preparer(self._cache, self._link.send)
        self._rehearsal: Rehearsal | None = None
        self._pipeline: Pipeline | None = None

    def serve(self) -> int:
        """Take frames until the socket ends; returns the exit code of a LOAD that failed."""
        sampling = (self._stopped, self._link.send, self._device_bytes, self._sample_s)
        Thread(target=self._link.read, args=(self._take,), name="reader", daemon=True).start()
        Thread(target=sample_until, args=sampling, name="sample", daemon=True).start()
        pipeline: Pipeline | None = None
        while (job := self._jobs.get()) is not None:
            if isinstance(job, Load):
                pipeline = self._begin(job)
                if pipeline is None:
                    return EXIT_CANNOT_LOAD
            elif pipeline is None:
                return EXIT_BROKEN_WIRE
            elif isinstance(job, Run):
                self._finish(pipeline, self._run(pipeline, job))
            else:
                self._finish(pipeline, self._probe(pipeline, job))
        return EXIT_ENDED

    def stop(self) -> None:
        """Let :meth:`serve` return, for whoever runs it inside a larger process."""
        self._stopped.set()
        self._preparer.stop()
        self._jobs.put(None)

    def _take(self, frame: ToWorker) -> None:
        """Hand one frame to its thread; called by the reader."""
        if isinstance(frame, Prepare | Drop):
            self._preparer.submit(frame)
        else:
            self._jobs.put(frame)

    def _device_bytes(self) -> DeviceBytes:
        """Called by the sampler, from before the model is there."""
        return DeviceBytes() if self._pipeline is None else self._pipeline.device_bytes()

    # -- the model's thread ----------------------------------------------------------------------

    def _begin(self, frame: Load) -> Pipeline | None:
        started = perf_counter()
        gc.disable()  # imports and weights make a million objects, none of them garbage
        pipeline = self._loaded(frame)
        canary_ok = not isinstance(pipeline, Failed) and self._self_test(pipeline)
        gc.enable()
        if not (canary_ok or frame.reload or isinstance(pipeline, Failed)):
            pipeline = Failed("canary_failed", "The model loads but fails its self-test.")
        if isinstance(pipeline, Failed):
            self._link.send(pipeline)
            return None
        self._rehearsal = Rehearsal() if frame.rehearsal else None
        self._pipeline = pipeline
        self._preparer.start(pipeline, task_named(frame.task))
        # What loading made stays for good: freezing it keeps later collections short.
        gc.collect()
        gc.freeze()
        facts = msgspec.structs.replace(pipeline.facts, load_s=perf_counter() - started)
        self._link.send(Ready(facts, canary_ok))
        return pipeline

    def _loaded(self, frame: Load) -> Pipeline | Failed:
        try:
            return self._load(frame)
        except CannotLoad as refusal:
            cause = refusal.__cause__
            trace = None if cause is None else trace_of(cause)
            return Failed(refusal.reason, refusal.message, trace)
        except BaseException as error:  # noqa: BLE001
            # Foreign code, remote code perhaps: whatever it raises becomes the one FAILED frame.
            if kind_of(error, lambda: True) == "oom":
                message = "There is not enough memory to load the model; use a smaller one."
                return Failed("out_of_memory", message, trace_of(error))
            message = "The model could not be loaded; the log has the failure's class and frames."
            return Failed("error", message, trace_of(error))

    def _self_test(self, pipeline: Pipeline) -> bool:
        try:
            return bool(encode_answer(pipeline.canary()))
        except BaseException:  # noqa: BLE001
            # As in _run: what the canary raises is the model's own affair, and a bad self-test.
            return False

    def _run(self, pipeline: Pipeline, frame: Run) -> Result | Fault:
        started = perf_counter()
        try:
            items = self._gather(frame.items)
            answers = self._answers(pipeline, frame.items, items)
            outputs = [encode_answer(answer) for answer in answers]
        except Misfit as misfit:
            reason = misfit.reason
            return Fault(
                frame.batch,
                "input",
                perf_counter() - started,
                index=misfit.index,
                message=reason.message,
                limit=reason.limit,
                pointer=reason.pointer,
            )
        except BaseException as error:  # noqa: BLE001
            # The one place where a model's failure is caught: SystemExit, KeyboardInterrupt and
            # CancelledError raised by its code end its batch and nothing else.
            kind = kind_of(error, pipeline.device_works)
            message = error.message if isinstance(error, Mismatch) else ""
            seconds = perf_counter() - started
            return Fault(frame.batch, kind, seconds, message=message, trace=trace_of(error))
        self._cache.drop(item.id for item in frame.items)
        return Result(
            frame.batch,
            outputs,
            perf_counter() - started,
            units=sum(item.units for item in items),
            padded=len(items) * max(item.units for item in items),
        )

    def _gather(self, items: Sequence[WireItem]) -> list[PreparedInput]:
        gathered: list[PreparedInput] = []
        for index, item in enumerate(items):
            try:
                gathered.append(self._preparer.prepared(item))
            except Unsuitable as reason:
                raise Misfit(index, reason) from None
        return gathered

    def _answers(
        self, pipeline: Pipeline, items: Sequence[WireItem], prepared: Sequence[PreparedInput]
    ) -> list[Any]:
        faults = [parse_fault(item.rehearse) if self._rehearsal else None for item in items]
        if self._rehearsal:
            self._rehearsal.act([(f, item.inputs) for f, item in zip(faults, items, strict=True)])
        answers = pipeline.run(prepared)
        if not isinstance(answers, list | tuple) or len(answers) != len(items):
            count = len(answers) if isinstance(answers, list | tuple) else None
            raise Mismatch(count, len(items))
        return [
            spoil(answer) if fault is not None and fault.name is FaultName.NAN else answer
            for fault, answer in zip(faults, answers, strict=True)
        ]

    def _probe(self, pipeline: Pipeline, frame: Probe) -> Probed:
        try:
            if self._rehearsal:
                self._rehearsal.check_device()
            return Probed(frame.probe, ok=bool(encode_answer(pipeline.canary())))
        except BaseException as error:  # noqa: BLE001
            # As in _run: the canary runs the same foreign code.
            lost = kind_of(error, pipeline.device_works) == "device_lost"
            return Probed(frame.probe, ok=False, device_lost=lost, trace=trace_of(error))

    def _finish(self, pipeline: Pipeline, answer: Result | Fault | Probed) -> None:
        if isinstance(answer, Fault) or (isinstance(answer, Probed) and not answer.ok):
            gc.collect()
            pipeline.release()
        try:
            self._link.send(answer)
        except WireError:
            if not isinstance(answer, Result):
                raise
            message = "the batch's answers are larger than one frame"
            self._link.send(Fault(answer.batch, "error", answer.seconds, message=message))
