"""A failure's kind comes from its class or text; its trace holds no word of it."""

from __future__ import annotations

import asyncio

import pytest

from service.worker.faults import kind_of, trace_of

SECRET = "SECRET-7731"


class OutOfMemoryError(RuntimeError):
    """Named as torch's own."""


class AcceleratorError(RuntimeError):
    """Named as torch's own."""


def broken() -> bool:
    """A device that takes no work."""
    return False


def works() -> bool:
    """A device that takes work."""
    return True


def not_asked() -> bool:
    """Nobody may try the device where the error says enough."""
    raise AssertionError


@pytest.mark.parametrize(
    "error,kind",
    [
        (MemoryError(), "oom"),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."), "oom"),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: "
                "you tried to allocate 400000000000 bytes. Error code 12 (Cannot allocate memory)"
            ),
            "oom",
        ),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 4"), "oom"),
        (AcceleratorError("CUDA error: out of memory"), "oom"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), "oom"),
        (RuntimeError("CUDA error: device-side assert triggered"), "device_lost"),
        (AcceleratorError("CUDA error: an illegal memory access was encountered"), "device_lost"),
        (AcceleratorError("CUDA error: unspecified launch failure"), "device_lost"),
        (RuntimeError("The size of tensor a (600) must match the size of tensor b"), "error"),
        (ValueError("out of memory, said the text"), "error"),
        (KeyError("CUDA error"), "error"),
        (SystemExit(0), "error"),
        (KeyboardInterrupt(), "error"),
        (asyncio.CancelledError(), "error"),
        (StopIteration(), "error"),
        (ExceptionGroup("CUDA error", [ValueError()]), "error"),
    ],
)
def test_kinds(error: BaseException, kind: str) -> None:
    """Each way to fail has its kind, and the device is not tried where the error says enough."""
    assert kind_of(error, not_asked) == kind


@pytest.mark.parametrize(
    "error",
    [
        AcceleratorError("something new"),
        RuntimeError("CUDA error: invalid configuration argument"),
        RuntimeError("HIP error: something new"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
    ],
)
def test_open_device_errors_ask_the_device(error: RuntimeError) -> None:
    """An error of the device that may pass is one batch's own if the device still works."""
    assert kind_of(error, works) == "error"
    assert kind_of(error, broken) == "device_lost"


def test_trace_has_class_and_frames_only() -> None:
    """A trace says which class and where, with nothing of message, arguments, cause or path."""

    def fail(text: str) -> None:
        raise RuntimeError(f"cannot read /srv/{text}") from KeyError(text)

    with pytest.raises(RuntimeError) as caught:
        fail(SECRET)
    trace = trace_of(caught.value)
    assert trace.error == "RuntimeError"
    assert trace.frames[-1].startswith("tests/worker/test_faults.py:")
    assert trace.frames[-1].endswith(" fail")
    assert SECRET not in str(trace)


def test_trace_is_bounded() -> None:
    """A deep recursion gives its innermost frames, not thousands."""

    def descend(depth: int) -> None:
        if depth == 0:
            raise ValueError
        descend(depth - 1)

    with pytest.raises(ValueError, match=r"^$") as caught:
        descend(100)
    frames = trace_of(caught.value).frames
    assert len(frames) == 16
    assert all(frame.endswith(" descend") for frame in frames)
