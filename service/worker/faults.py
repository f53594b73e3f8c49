"""What an exception of the model means: its kind, and its trace without a word of its message.

==========================================================  ===========  =========================
exception                                                   kind         why
==========================================================  ===========  =========================
``MemoryError``, ``torch.OutOfMemoryError``                 oom          smaller batches may fit
``RuntimeError`` with the CPU allocator's text              oom          torch has no class for it
device error with the text of an allocation                 oom          cuBLAS's workspace
text of a device that is lost for good                      device_lost  every later call fails
other device error                                          asked        the device is tried once
anything else, ``SystemExit`` and ``KeyboardInterrupt`` too  error        the model's own doing
==========================================================  ===========  =========================

Laws
- Knows torch's exceptions by name and text only, so that a worker without torch shares it.
- A message is read here to tell kinds apart and goes nowhere else: it may quote the input.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from types import TracebackType
from typing import Literal

from service.worker.wire import Trace

Kind = Literal["oom", "error", "device_lost"]

_MAX_FRAMES = 16
"""Innermost frames kept: transformers' own stack is about ten deep."""

_OOM_TEXTS = (
    "can't allocate memory",  # c10's CPU allocator, posix_memalign
    "not enough memory",  # the same on other systems
    "out of memory",  # CUDA's own word, without the class, from older builds and libraries
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
)
_LOST_TEXTS = (
    "device-side assert",
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
    "uncorrectable ecc",
    "device is lost",
    "device lost",
)
_DEVICE_TEXTS = ("cuda error", "hip error", "cudnn error", "xpu error")


def kind_of(error: BaseException, device_works: Callable[[], bool]) -> Kind:
    """The kind of one failure.

    Args:
        error: what the model raised.
        device_works: tries the device; asked only where the text leaves it open.
    """
    if isinstance(error, MemoryError):
        return "oom"
    names = {cls.__name__ for cls in type(error).__mro__}
    if "OutOfMemoryError" in names:
        return "oom"
    if not isinstance(error, RuntimeError):
        return "error"
    text = str(error).lower()
    if any(mark in text for mark in _LOST_TEXTS):
        return "device_lost"
    if any(mark in text for mark in _OOM_TEXTS):
        return "oom"
    if "AcceleratorError" in names or any(mark in text for mark in _DEVICE_TEXTS):
        return "error" if device_works() else "device_lost"
    return "error"


def trace_of(error: BaseException) -> Trace:
    """Class and frames of an exception, innermost last; no message, arguments or locals."""
    return Trace(type(error).__name__, frames_of(error.__traceback__))


def frames_of(traceback: TracebackType | None) -> list[str]:
    """``file:line function`` of each frame, the file by its last three parts."""
    frames: list[str] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        file = "/".join(PurePath(code.co_filename).parts[-3:])
        frames.append(f"{file}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return frames[-_MAX_FRAMES:]
