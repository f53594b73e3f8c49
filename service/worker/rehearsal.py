"""Faults on demand: what an operator or a test asks for with ``X-Rehearse-Fault``.

A fault belongs to an item and is acted out when that item is in a running batch:

===========  ====================================================================================
fault        what happens
===========  ====================================================================================
slow=MS      the batch takes MS longer; slow items of one batch add up, so that k of them take
             k x MS together or apart ("one item at a time of 1 s" is ``slow=1000``)
hang         the batch never returns
raise        raises wherever the item runs; the exception's text quotes the input, as libraries do
oom          out of memory as long as the item does not run alone
oom-always   out of memory, alone too
nan          every number in the item's own answer becomes NaN
exit         the process exits
segfault     the process dies of a real SIGSEGV
device-lost  the error text of a lost device, now and at every later call of this worker
===========  ====================================================================================

Laws
- Only a worker that was told so at LOAD rehearses; otherwise the marks are ignored.
- :func:`parse_fault` knows no torch: the front checks the header with it.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

Answer = Any
"""As in ``interface``, which this module must not know: the front imports it."""


class FaultName(StrEnum):
    """Every fault that can be asked for."""

    SLOW = "slow"
    HANG = "hang"
    RAISE = "raise"
    OOM = "oom"
    OOM_ALWAYS = "oom-always"
    NAN = "nan"
    EXIT = "exit"
    SEGFAULT = "segfault"
    DEVICE_LOST = "device-lost"


MAX_SLOW_MS = 600_000
"""Longest ``slow``: ten minutes, well over every deadline."""

FAULT_SYNTAX = ", ".join(
    f"{name}=MS" if name is FaultName.SLOW else name.value for name in FaultName
)
"""What may be asked for, for messages and pages."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; ``slow_s`` is 0 unless it is ``slow``."""

    name: FaultName
    slow_s: float = 0.0


def parse_fault(text: str) -> Fault | None:
    """The fault that a header names, ``None`` if there is no such fault."""
    name, equals, value = text.partition("=")
    if name == FaultName.SLOW:
        if not (value.isascii() and value.isdigit()) or len(value) > len(str(MAX_SLOW_MS)):
            return None
        milliseconds = int(value)
        return Fault(FaultName.SLOW, milliseconds / 1000) if milliseconds <= MAX_SLOW_MS else None
    if equals or name not in FaultName.__members__.values():
        return None
    return Fault(FaultName(name))


class Rehearsal:
    """Acts faults out; one for each worker, since a lost device stays lost."""

    def __init__(self, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep
        self._device_lost = False

    def act(self, faults: Sequence[tuple[Fault | None, str]]) -> None:
        """Act out a batch's faults, given as (fault, input); returns if the batch may run.

        Raises:
            RuntimeError: ``raise``, ``device-lost``.
            MemoryError: ``oom``, ``oom-always``.
        """
        named = [(fault, text) for fault, text in faults if fault is not None]
        names = {fault.name for fault, _ in named}
        if FaultName.DEVICE_LOST in names:
            self._device_lost = True
        self.check_device()
        slow_s = sum(fault.slow_s for fault, _ in named)
        if slow_s:
            self._sleep(slow_s)
        if FaultName.EXIT in names:
            os._exit(1)
        if FaultName.SEGFAULT in names:
            _die_of_segfault()
        while FaultName.HANG in names:
            self._sleep(3600)
        if FaultName.OOM_ALWAYS in names or (FaultName.OOM in names and len(faults) > 1):
            raise MemoryError("rehearsed")
        for fault, text in named:
            if fault.name is FaultName.RAISE:
                raise RuntimeError(f"rehearsed failure for input {text!r}")

    def check_device(self) -> None:
        """Fail as every call does after the device is lost.

        Raises:
            RuntimeError: the device was lost before.
        """
        if self._device_lost:
            raise RuntimeError("CUDA error: device-side assert triggered (rehearsed)")


def spoil(answer: Answer) -> Answer:
    """The same answer with NaN in the place of every number."""
    if isinstance(answer, dict):
        return {key: spoil(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [spoil(value) for value in answer]
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        return math.nan
    return answer


def _die_of_segfault() -> NoReturn:
    # The default action, not faulthandler's: it would print the stack first.
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)
    while True:  # the signal arrives at the next instruction; nothing may run after it
        time.sleep(3600)
