"""A worker that obeys a script: it speaks the wire, and loads nothing.

``python -P stub_worker.py SCRIPT FD PARENT_PID``, as a supervisor starts a real one. ``SCRIPT`` is
JSON: one life as an object, or ``{"lives": [life, ...], "count": FILE}``, where each new process
takes the next life and the last one repeats; ``FILE`` holds one byte for each life begun.

A life (all members are optional):

================  ================================================================================
``load``          what LOAD leads to: ``ready`` (default), ``never``, ``exit``, ``failed``, or a
                  bad frame as below
``ready_after_s`` seconds before that
``facts``         members of READY's facts that differ from the default
``runs``          {number or ``"*"``: action}, the first RUN of a life is ``"1"``; else ``answer``
``run_s``         seconds that every RUN takes
``probes``        {number or ``"*"``: action}, actions ``good`` (default), ``bad``, ``lost`` and
                  those of a RUN that end or break the worker
``prepare``       ``answer`` (default), ``never``, ``unfit``, ``model_error``, ``unknown`` (an id
                  that nobody asked for)
``says``          text to print at the start, as a library would
``deaf``          true: stays when its socket is closed
================  ================================================================================

Actions of a RUN: ``answer``, ``empty`` (each item's own model error), ``few`` and ``many`` (one
answer less or more), ``wrong_batch``, ``oom``, ``error``, ``input`` (the first item's fault),
``device_lost``, ``hang``, ``exit``, ``segfault``, ``slow=SECONDS``, ``held=FILE`` (no end while
the file is there), and the bad frames ``garbage``, ``oversize``, ``torn`` (half a frame, then the
end). ``oom_above=N`` and ``error_above=N`` fail while the batch has more than N items; ``poison``
exits if an item's text contains the word ``poison``, ``reject`` fails with ``error`` if one
contains ``reject``.

An answer is ``{"text": the input, "batch": its size, "life": n}``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from service.worker.framing import Splitter
from service.worker.wire import (
    Drop,
    Facts,
    Failed,
    Fault,
    FaultKind,
    FromWorker,
    Load,
    Prepare,
    Prepared,
    Probe,
    Probed,
    Ready,
    Result,
    Run,
    Trace,
    Unfit,
    WireItem,
    decode_to_worker,
    encode,
)

FACTS: dict[str, Any] = {
    "task": "fill-mask",
    "model": "stub",
    "device": "cpu",
    "dtype": "float32",
    "mask_token": "[MASK]",
    "max_tokens": 512,
    "vocab_size": 100,
    "batchable": True,
    "cost_fixed_s": 0.001,
    "cost_unit_s": 0.0001,
    "typical_units": 8,
    "units_per_char": 0.25,
    "prepare_s_per_char": 1e-7,
    "load_s": 0.01,
    "torch_threads": 1,
}

FOREVER_S = 3600.0
LOOK_S = 0.005


class Stub:
    """One life on one socket."""

    def __init__(self, sock: socket.socket, life: dict[str, Any], number: int) -> None:
        self._sock = sock
        self._life = life
        self._number = number
        self._sending = threading.Lock()
        self._jobs: SimpleQueue[Load | Run | Probe] = SimpleQueue()
        self._runs = 0
        self._probes = 0

    def live(self) -> None:
        """Obey until the socket ends."""
        if "says" in self._life:
            print(self._life["says"], flush=True)  # noqa: T201 - that is the point
        threading.Thread(target=self._work, daemon=True).start()
        splitter = Splitter()
        while data := self._sock.recv(65536):
            for body in splitter.feed(data):
                frame = decode_to_worker(body)
                if isinstance(frame, Prepare):
                    self._prepare(frame.item)
                elif not isinstance(frame, Drop):
                    self._jobs.put(frame)
        if self._life.get("deaf"):
            time.sleep(FOREVER_S)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if isinstance(job, Load):
                self._load()
            elif isinstance(job, Run):
                self._runs += 1
                self._run(job, self._action("runs", self._runs, "answer"))
            else:
                self._probes += 1
                self._probe(job, self._action("probes", self._probes, "good"))

    def _action(self, table: str, number: int, default: str) -> str:
        actions: dict[str, str] = self._life.get(table, {})
        return actions.get(str(number), actions.get("*", default))

    def _load(self) -> None:
        time.sleep(self._life.get("ready_after_s", 0))
        action = self._life.get("load", "ready")
        if action == "ready":
            self._send(Ready(Facts(**FACTS | self._life.get("facts", {}))))
        elif action == "failed":
            self._send(Failed("model_not_found", "The model folder does not exist."))
        elif action != "never":
            self._misbehave(action)

    def _prepare(self, item: WireItem) -> None:
        action = self._life.get("prepare", "answer")
        units = max(1, len(item.inputs.split()))
        if action == "answer":
            self._send(Prepared(item.id, units, "", 1e-5))
        elif action == "unfit":
            self._send(Unfit(item.id, "invalid_input", message="send something else"))
        elif action == "model_error":
            self._send(Unfit(item.id, "model_error", trace=_TRACE))
        elif action == "unknown":
            self._send(Prepared(item.id + 1_000_000, units, "", 1e-5))

    def _run(self, run: Run, action: str) -> None:
        time.sleep(self._life.get("run_s", 0))
        name, _, value = action.partition("=")
        size = len(run.items)
        if name in {"slow", "held"}:
            _take_time(name, value)
        elif name in {"oom_above", "error_above"}:
            if size > int(value):
                self._fault(run, "oom" if name == "oom_above" else "error")
                return
        elif name == "poison":
            if any("poison" in item.inputs for item in run.items):
                os._exit(1)
        elif name == "reject":
            if any("reject" in item.inputs for item in run.items):
                self._fault(run, "error")
                return
        elif name in _FAULTS:
            self._fault(run, _FAULTS[name])
            return
        elif name not in {"answer", "empty", "few", "many", "wrong_batch"}:
            self._misbehave(name)
            return
        self._answer(run, name)

    def _answer(self, run: Run, action: str) -> None:
        size = len(run.items)
        outputs = [
            json.dumps({"text": item.inputs, "batch": size, "life": self._number}).encode()
            for item in run.items
        ]
        if action == "few":
            outputs.pop()
        elif action == "many":
            outputs.append(outputs[-1])
        elif action == "empty":
            outputs = [b""] * size
        batch = run.batch + (action == "wrong_batch")
        lengths = [max(1, len(item.inputs.split())) for item in run.items]
        seconds = 0.001 + self._life.get("run_s", 0)
        self._send(Result(batch, outputs, seconds, sum(lengths), size * max(lengths)))

    def _fault(self, run: Run, kind: FaultKind) -> None:
        index = 0 if kind == "input" else -1
        message = "send something else" if kind == "input" else ""
        self._send(Fault(run.batch, kind, 0.001, index=index, message=message, trace=_TRACE))

    def _probe(self, probe: Probe, action: str) -> None:
        if action in {"good", "bad", "lost"}:
            lost = action == "lost"
            self._send(Probed(probe.probe, ok=action == "good", device_lost=lost))
        else:
            self._misbehave(action)

    def _misbehave(self, action: str) -> None:
        if action == "exit":
            os._exit(1)
        if action == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if action == "hang":
            time.sleep(FOREVER_S)
        if action == "garbage":
            self._sock.sendall(b"\x00\x00\x00\x05nonsense\xff\xff")
        if action == "oversize":
            self._sock.sendall((2**31).to_bytes(4, "big"))
        if action == "torn":
            self._sock.sendall(encode(Probed(1, ok=True))[:-3])
            os._exit(1)

    def _send(self, frame: FromWorker) -> None:
        with self._sending:
            self._sock.sendall(encode(frame))


_FAULTS: dict[str, FaultKind] = {
    "oom": "oom", "error": "error", "input": "input", "device_lost": "device_lost",
}  # fmt: skip
_TRACE = Trace("RuntimeError", ["stub_worker.py:1 run"])


def _take_time(name: str, value: str) -> None:
    if name == "slow":
        time.sleep(float(value))
    while name == "held" and Path(value).exists():
        time.sleep(LOOK_S)


def _take_life(script: dict[str, Any]) -> tuple[dict[str, Any], int]:
    if "lives" not in script:
        return script, 1
    count = Path(script["count"])
    with count.open("ab") as file:
        file.write(b".")
    number = count.stat().st_size
    lives: list[dict[str, Any]] = script["lives"]
    return lives[min(number, len(lives)) - 1], number


def main() -> None:
    """Live one life."""
    life, number = _take_life(json.loads(sys.argv[1]))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Stub(socket.socket(fileno=int(sys.argv[2])), life, number).live()
    os._exit(0)


if __name__ == "__main__":
    main()
