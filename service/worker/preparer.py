"""The prepare thread: the only one that tokenises.

A fast tokenizer keeps truncation and padding as its own state, so that one shared by two threads
gives wrong lengths without an error. Everything that tokenises therefore comes through here: the
PREPARE frames in their order, and ahead of them what the model thread finds missing.

Laws
- Each PREPARE has exactly one answer, PREPARED or UNFIT; nothing that an item does ends the thread.
- A DROP keeps its place in the order, so that it also takes away what was just prepared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Condition, Thread
from time import perf_counter
from typing import Any

import msgspec

from service.tasks import Task
from service.worker.cache import PreparedCache
from service.worker.faults import trace_of
from service.worker.interface import Pipeline, PreparedInput, Unsuitable
from service.worker.wire import Drop, FromWorker, Prepare, Prepared, Unfit, WireItem

_parameters: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])

_Missing = tuple[WireItem, "Future[PreparedInput]"]


class Preparer:
    """Owns ``pipeline.prepare`` and the thread that calls it."""

    def __init__(self, cache: PreparedCache, send: Callable[[FromWorker], None]) -> None:
        self._cache = cache
        self._send = send
        self._work: deque[Prepare | Drop | _Missing | None] = deque()
        self._changed = Condition()

    def start(self, pipeline: Pipeline, task: Task) -> None:
        """Start the thread; what arrived before the model was loaded is taken first."""
        Thread(target=self._loop, args=(pipeline, task), name="prepare", daemon=True).start()

    def stop(self) -> None:
        """Let the thread end once its work is done."""
        self._put(None)

    def submit(self, frame: Prepare | Drop) -> None:
        """Queue one frame."""
        self._put(frame)

    def prepared(self, item: WireItem) -> PreparedInput:
        """The item, from the cache or prepared again; called by the model thread, and waits.

        Raises:
            Unsuitable: the input does not fit the model.
            BaseException: whatever preparing raised.
        """
        cached = self._cache.get(item.id)
        if cached is not None:
            return cached
        future: Future[PreparedInput] = Future()
        self._put((item, future), first=True)
        return future.result()

    def _put(self, work: Prepare | Drop | _Missing | None, *, first: bool = False) -> None:
        with self._changed:
            if first:
                self._work.appendleft(work)
            else:
                self._work.append(work)
            self._changed.notify()

    def _take(self) -> Prepare | Drop | _Missing | None:
        with self._changed:
            while not self._work:
                self._changed.wait()
            return self._work.popleft()

    def _loop(self, pipeline: Pipeline, task: Task) -> None:
        while (work := self._take()) is not None:
            if isinstance(work, Drop):
                self._cache.drop(work.ids)
            elif isinstance(work, Prepare):
                self._send(self._answer(pipeline, task, work.item))
            else:
                self._resolve(pipeline, *work)

    def _answer(self, pipeline: Pipeline, task: Task, item: WireItem) -> Prepared | Unfit:
        started = perf_counter()
        try:
            parameters = _parameters.decode(item.parameters)
            key = task.key(parameters)
            prepared = pipeline.prepare(item.inputs, item.media, parameters)
        except Unsuitable as reason:
            return Unfit(
                item.id,
                "invalid_input",
                message=reason.message,
                limit=reason.limit,
                pointer=reason.pointer,
            )
        except BaseException as error:  # noqa: BLE001
            # Foreign code: whatever it raises, SystemExit too, is this item's own failure.
            return Unfit(item.id, "model_error", trace=trace_of(error))
        self._cache.put(item.id, prepared)
        return Prepared(item.id, prepared.units, key + prepared.key, perf_counter() - started)

    def _resolve(self, pipeline: Pipeline, item: WireItem, future: Future[PreparedInput]) -> None:
        try:
            parameters = _parameters.decode(item.parameters)
            prepared = pipeline.prepare(item.inputs, item.media, parameters)
        except BaseException as error:  # noqa: BLE001
            # Raised again in the model thread, which names the failure.
            future.set_exception(error)
        else:
            self._cache.put(item.id, prepared)
            future.set_result(prepared)
