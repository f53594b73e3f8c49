"""The front's end of the wire, for tests: a worker as a process or inside this one."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from service.worker.framing import Splitter
from service.worker.interface import Pipeline
from service.worker.runner import Runner
from service.worker.wire import (
    Facts,
    Failed,
    FromWorker,
    Load,
    Ready,
    Sample,
    ToWorker,
    WireItem,
    decode_from_worker,
    encode,
)
from tests.tools import ROOT

LONG_S = 120.0
"""Generous: nothing waits so long unless it is broken."""

WORKER = (sys.executable, "-P", "-m", "service.worker")
STUB = (sys.executable, "-P", str(ROOT / "tests" / "worker" / "stub_worker.py"))
PACKAGED = str(ROOT / "service" / "models" / "fill-mask-small")


class Line:
    """Frames to a worker and from it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(LONG_S)
        self._splitter = Splitter()
        self._frames: list[FromWorker] = []
        self._sending = threading.Lock()

    def send(self, *frames: ToWorker) -> None:
        """Send whole frames, from any thread."""
        with self._sending:
            self.sock.sendall(b"".join(encode(frame) for frame in frames))

    def next(self, *, samples: bool = False) -> FromWorker:
        """The next frame; samples are skipped unless asked for.

        Raises:
            EOFError: the worker closed its end.
        """
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if samples or not isinstance(frame, Sample):
                    return frame
            data = self.sock.recv(65536)
            if not data:
                raise EOFError
            self._frames += [decode_from_worker(body) for body in self._splitter.feed(data)]

    def ask(self, frame: ToWorker) -> Any:
        """Send one frame and take the next that comes back."""
        self.send(frame)
        return self.next()

    def load(self, model: str, task: str, **options: Any) -> Facts:
        """Load, and expect READY."""
        answer = self.ask(Load(model, task, **options))
        assert isinstance(answer, Ready), answer
        return answer.facts

    def ended(self) -> None:
        """Wait for the worker's end."""
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                self.next()


class Process(Line):
    """A worker process."""

    def __init__(self, *command: str, parent: int | None = None) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        arguments = [*(command or WORKER), str(theirs.fileno()), str(parent or os.getpid())]
        with theirs:
            self.popen = subprocess.Popen(
                arguments,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                cwd="/",
                env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
            )

    def wait(self) -> int:
        """Its exit status, once it has ended."""
        return self.popen.wait(LONG_S)

    def output(self) -> str:
        """What it printed so far."""
        self._output.seek(0)
        return self._output.read().decode()

    def close(self) -> None:
        """End it, hung or not."""
        self.sock.close()
        self.popen.kill()
        self.popen.wait(LONG_S)
        self._output.close()


@contextlib.contextmanager
def process(*command: str, parent: int | None = None) -> Iterator[Process]:
    """A worker process for one test."""
    worker = Process(*command, parent=parent)
    try:
        yield worker
    finally:
        worker.close()


@contextlib.contextmanager
def inside(load: Callable[[Load], Pipeline], **options: Any) -> Iterator[Line]:
    """A runner in a thread of this process; its end is awaited."""
    ours, theirs = socket.socketpair()
    runner = Runner(theirs, load=load, ended=lambda _: runner.stop(), **options)
    thread = threading.Thread(target=runner.serve)
    thread.start()
    try:
        yield Line(ours)
    finally:
        ours.close()
        thread.join(LONG_S)
        theirs.close()
    assert not thread.is_alive()


def items(texts: Sequence[str], start: int = 0, **members: Any) -> list[WireItem]:
    """Wire items with ids in a row."""
    return [WireItem(start + number, text, **members) for number, text in enumerate(texts)]


def failure(model: str, task: str = "fill-mask", **options: Any) -> Failed:
    """What a worker process says when it cannot load; it exits by itself."""
    with process() as worker:
        answer = worker.ask(Load(model, task, **options))
        assert isinstance(answer, Failed), answer
        worker.ended()
        assert worker.wait() == 3
        return answer
