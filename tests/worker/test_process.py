"""A worker process: it never outlives its front, never falls to a stray signal, never quotes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from service.worker.wire import (
    Fault,
    Prepare,
    Prepared,
    Probe,
    Probed,
    Result,
    Run,
    WireItem,
    encode,
)
from tests.tools import ROOT
from tests.worker.line import LONG_S, WORKER, Line, failure, items, process

SECRET = "SECRET-7731"

PARENT = """
import subprocess, sys
worker = subprocess.Popen(
    [*sys.argv[2:], sys.argv[1], str(__import__("os").getpid())],
    pass_fds=[int(sys.argv[1])], stdin=subprocess.DEVNULL,
)
print(worker.pid, flush=True)
worker.wait()
"""

UNCAUGHT = """
import logging, sys, threading, warnings
from service.worker.quiet import silence
silence()
def fail():
    raise RuntimeError("SECRET-7731")
class Falls:
    def __del__(self):
        fail()
thread = threading.Thread(target=fail)
thread.start()
thread.join()
Falls()
warnings.warn("SECRET-7731")
logging.getLogger("transformers.tokenization").critical("SECRET-7731")
logging.critical("SECRET-7731")
fail()
"""


def test_end_of_the_socket_ends_it() -> None:
    """When the front closes its end, an idle worker exits by itself."""
    with process() as worker:
        worker.load("synthetic:cpu", "synthetic")
        worker.sock.close()
        assert worker.wait() == 0


@pytest.mark.parametrize("hung_in", ["hang", "slow=600000"])
def test_end_of_the_socket_ends_a_hung_model(hung_in: str) -> None:
    """The same while its model's thread hangs."""
    with process() as worker:
        worker.load("synthetic:cpu", "synthetic", rehearsal=True)
        worker.send(Run(1, [WireItem(1, "a", rehearse=hung_in)]), Probe(2))
        assert isinstance(worker.ask(Prepare(WireItem(3, "still prepared"))), Prepared)
        worker.sock.close()
        assert worker.wait() == 0


def test_killed_parent_takes_it_along() -> None:
    """``kill -9`` of the front leaves no worker, although somebody holds the socket open."""
    ours, theirs = socket.socketpair()
    with theirs:
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(theirs.fileno()), *WORKER],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    line = Line(ours)
    with parent, ours:
        line.load("synthetic:cpu", "synthetic")
        parent.kill()
        line.ended()


def test_parent_that_is_gone_already() -> None:
    """A worker whose parent is not the one that started it ends before it does anything."""
    with process(parent=os.getpid() + 1) as worker:
        worker.ended()
        assert worker.wait() == 0


def test_stray_signals_do_not_end_it() -> None:
    """Ctrl-C and SIGTERM reach the whole group; the worker goes on until the front ends it."""
    with process() as worker:
        worker.load("synthetic:cpu", "synthetic")
        worker.send(Run(1, items(["a b c"])))
        worker.popen.send_signal(signal.SIGINT)
        worker.popen.send_signal(signal.SIGTERM)
        assert isinstance(worker.next(), Result)
        assert worker.ask(Probe(1)) == Probed(1, ok=True)


@pytest.mark.parametrize(
    "fault,status", [("exit", 1), ("segfault", -signal.SIGSEGV)], ids=["exit", "segfault"]
)
def test_rehearsed_deaths_are_real(fault: str, status: int) -> None:
    """``exit`` and ``segfault`` end the process as the real thing does."""
    with process() as worker:
        worker.load("synthetic:cpu", "synthetic", rehearsal=True)
        worker.send(Run(1, [WireItem(1, "a", rehearse=fault)]))
        worker.ended()
        assert worker.wait() == status


@pytest.mark.parametrize(
    "data",
    [b"\x00\x00\x00\x03abc", (2**31).to_bytes(4, "big"), encode(Probed(1, ok=True))],
    ids=["garbage", "oversize", "other_side"],
)
def test_broken_wire_ends_it(data: bytes) -> None:
    """A front that sends no frame of its own is not listened to any longer."""
    with process() as worker:
        worker.load("synthetic:cpu", "synthetic")
        worker.sock.sendall(data)
        worker.ended()
        assert worker.wait() == 4


def test_output_quotes_nothing() -> None:
    """A model's exception, which quotes the input, leaves no word of it in the output."""
    with process() as worker:
        worker.load("synthetic:cpu", "synthetic", rehearsal=True)
        fault = worker.ask(Run(1, [WireItem(1, SECRET, rehearse="raise")]))
        assert isinstance(fault, Fault), fault
        worker.sock.close()
        worker.wait()
        assert worker.output() == ""


def test_uncaught_exceptions_quote_nothing() -> None:
    """Uncaught exceptions print class and frames, in any thread; loggers and warnings nothing."""
    done = subprocess.run(
        [sys.executable, "-c", UNCAUGHT],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=LONG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert SECRET not in done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert lines.count("uncaught RuntimeError") == 3
    assert "  <string>:6 fail" in lines


def test_ready_without_torch() -> None:
    """A synthetic worker never maps torch's libraries."""
    with process() as worker:
        worker.load("synthetic:cpu", "synthetic")
        assert "libtorch" not in Path(f"/proc/{worker.popen.pid}/maps").read_text()


def test_unknown_synthetic_model_fails() -> None:
    """Another name is FAILED, and the process ends by itself."""
    assert failure("synthetic:tpu", "synthetic").reason == "model_not_found"
