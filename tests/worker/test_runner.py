"""The runner: every frame has its answer, whatever the pipeline does."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from service.worker import framing
from service.worker.interface import CannotLoad, PreparedInput
from service.worker.wire import (
    Drop,
    Failed,
    Fault,
    Load,
    Prepare,
    Prepared,
    Probe,
    Probed,
    Ready,
    Result,
    Run,
    Sample,
    Unfit,
    WireItem,
)
from tests.worker.line import Line, inside, items
from tests.worker.stub_pipeline import StubPipeline, right

SECRET = "SECRET-7731"


@pytest.fixture
def pipeline() -> StubPipeline:
    """The pipeline of one test."""
    return StubPipeline()


@pytest.fixture
def line(pipeline: StubPipeline) -> Iterator[Line]:
    """A line to a runner that has loaded the pipeline and rehearses."""
    with inside(pipeline.load) as line:
        line.load("stub", "fill-mask", rehearsal=True)
        yield line


def good(line: Line, batch: int = 99) -> None:
    """The next batch is answered right."""
    texts = ["one", "two words", "three words more"]
    result = line.ask(Run(batch, items(texts, start=batch * 100)))
    assert isinstance(result, Result), result
    assert (result.batch, [json.loads(output) for output in result.outputs]) == (batch, texts)
    assert (result.units, result.padded) == (6, 9)


def raising(error: BaseException) -> Callable[[Sequence[PreparedInput]], Any]:
    """A behaviour that raises."""

    def behave(_: Sequence[PreparedInput]) -> Any:
        raise error

    return behave


@pytest.mark.parametrize(
    "error,kind",
    [
        (RuntimeError(SECRET), "error"),
        (MemoryError(SECRET), "oom"),
        (SystemExit(SECRET), "error"),
        (KeyboardInterrupt(SECRET), "error"),
        (asyncio.CancelledError(SECRET), "error"),
        (GeneratorExit(SECRET), "error"),
        (ExceptionGroup(SECRET, [ValueError(SECRET)]), "error"),
        (RuntimeError(f"CUDA error: device-side assert triggered {SECRET}"), "device_lost"),
    ],
)
def test_nothing_a_model_raises_ends_the_loop(
    pipeline: StubPipeline, line: Line, error: BaseException, kind: str
) -> None:
    """Whatever is raised becomes one FAULT that quotes nothing; the next 20 batches are right."""
    pipeline.behaviour = raising(error)
    fault = line.ask(Run(1, items([SECRET, "b"])))
    assert isinstance(fault, Fault), fault
    assert (fault.batch, fault.kind, fault.index) == (1, kind, -1)
    assert fault.trace is not None
    assert fault.trace.error == type(error).__name__
    assert fault.trace.frames[-1].endswith(" behave")
    assert SECRET not in str(fault)
    assert pipeline.released == 1
    pipeline.behaviour = right
    for batch in range(2, 22):
        good(line, batch)


@pytest.mark.parametrize(
    "behaviour,count",
    [
        (lambda items: right(items)[:-1], "3"),
        (lambda items: [*right(items), "another"], "5"),
        (lambda _: [], "0"),
        (lambda items: dict.fromkeys(range(len(items)), "x"), "no list of"),
        (lambda _: "four", "no list of"),
    ],
    ids=["n-1", "n+1", "none", "dict", "string"],
)
def test_wrong_number_of_answers_fails_the_batch(
    pipeline: StubPipeline, line: Line, behaviour: Any, count: str
) -> None:
    """Where answers and items differ in number nobody gets any; both numbers are said."""
    pipeline.behaviour = behaviour
    fault = line.ask(Run(1, items(["a", "b", "c", "d"])))
    assert isinstance(fault, Fault), fault
    assert fault.kind == "error"
    assert fault.message == f"the pipeline gave {count} answers for 4 items"
    pipeline.behaviour = right
    good(line)


class Block:
    """Memory that a test can watch."""

    def __init__(self) -> None:
        self.content = bytearray(1000)


def test_memory_is_free_before_the_fault_leaves(pipeline: StubPipeline, line: Line) -> None:
    """When a FAULT for memory is there, all that the failed batch allocated is gone, ten times."""
    blocks: list[weakref.ref[Block]] = []

    def allocate(items: Sequence[PreparedInput]) -> Any:
        held = [Block() for _ in items]
        blocks.extend(weakref.ref(block) for block in held)
        if len(held) > 4:
            error = MemoryError(held)
            error.__context__ = RuntimeError(error, held)  # a cycle, as real tracebacks make them
            raise error
        return right(items)

    pipeline.behaviour = allocate
    gc.disable()  # nothing but the runner's own collection may free the cycle
    try:
        for round_number in range(10):
            fault = line.ask(Run(round_number, items(["x"] * 8)))
            assert isinstance(fault, Fault), fault
            assert fault.kind == "oom"
            assert not any(block() for block in blocks)
    finally:
        gc.enable()
    assert isinstance(line.ask(Run(99, items(["x"] * 4))), Result)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_score_that_is_no_number_is_the_items_own(
    pipeline: StubPipeline, line: Line, score: float
) -> None:
    """Only the item with such a score is without an answer; a denormal is a number."""
    pipeline.behaviour = lambda _: [{"score": 1e-320}, {"score": score}, {"score": 0.5}]
    result = line.ask(Run(1, items(["a", "b", "c"])))
    assert result.outputs == [b'{"score":1e-320}', b"", b'{"score":0.5}']


def test_prepared_once_run_from_the_cache(pipeline: StubPipeline, line: Line) -> None:
    """A prepared item is not prepared again for its run, nor for a second run after a fault."""
    [item] = items(["two words"])
    assert line.ask(Prepare(item)).units == 2
    pipeline.behaviour = raising(RuntimeError())
    assert isinstance(line.ask(Run(1, [item])), Fault)
    pipeline.behaviour = right
    assert isinstance(line.ask(Run(2, [item])), Result)
    assert pipeline.prepared == ["two words"]


@pytest.mark.parametrize("how", ["never", "dropped", "answered"])
def test_missing_item_is_prepared_again(pipeline: StubPipeline, line: Line, how: str) -> None:
    """An item that was never prepared, dropped or already answered runs all the same."""
    [item] = items(["two words"])
    if how != "never":
        line.ask(Prepare(item))
    if how == "dropped":
        line.send(Drop([item.id, 12345]))
        line.ask(Prepare(items(["a later one"], start=50)[0]))  # its answer: the drop is done
    if how == "answered":
        line.ask(Run(1, [item]))
    result = line.ask(Run(2, [item]))
    assert result.outputs == [b'"two words"']
    assert pipeline.prepared.count("two words") == (1 if how == "never" else 2)


def test_unfit_item_is_named(line: Line) -> None:
    """An input that does not fit is UNFIT when prepared, with limit and pointer."""
    assert line.ask(Prepare(WireItem(3, "unfit"))) == Unfit(
        3, "invalid_input", "send something else", 7, None, "/parameters/top_k"
    )


def test_unfit_item_in_a_run_is_named(pipeline: StubPipeline, line: Line) -> None:
    """An unprepared item that does not fit is named by index; the model is not called."""
    pipeline.behaviour = raising(AssertionError())
    fault = line.ask(Run(1, items(["a", "unfit", "b"])))
    assert (fault.kind, fault.index) == ("input", 1)
    assert (fault.message, fault.limit, fault.pointer) == (
        "send something else", 7, "/parameters/top_k",
    )  # fmt: skip
    assert fault.trace is None


@pytest.mark.parametrize("text", ["prepare fails", "prepare exits"])
def test_preparing_may_raise_anything(line: Line, text: str) -> None:
    """What preparing raises is this item's failure, without its message; the thread lives on."""
    unfit = line.ask(Prepare(WireItem(3, text)))
    assert isinstance(unfit, Unfit), unfit
    assert (unfit.id, unfit.code, unfit.message) == (3, "model_error", "")
    assert unfit.trace is not None
    assert text not in str(unfit)
    fault = line.ask(Run(1, [WireItem(3, text)]))
    assert (fault.kind, fault.message) == ("error", "")
    assert line.ask(Prepare(WireItem(4, "fits"))).id == 4
    good(line)


@pytest.mark.parametrize("parameters", [b"", b"[]", b'{"a":', b'{"unheard":1}', b"\xff"])
def test_broken_parameters_are_the_items_failure(line: Line, parameters: bytes) -> None:
    """Parameters that the front should never have sent fail their item, not the worker."""
    unfit = line.ask(Prepare(WireItem(3, "x", parameters)))
    assert (unfit.id, unfit.code) == (3, "model_error")
    good(line)


def test_post_parameters_are_not_in_the_key(line: Line) -> None:
    """Items that differ only in what happens after the forward may share a batch."""
    plain = line.ask(Prepare(WireItem(1, "x")))
    other = line.ask(Prepare(WireItem(2, "x", b'{"top_k":3,"targets":["a"]}')))
    assert plain.key == other.key


def test_model_calls_stay_in_one_thread(pipeline: StubPipeline, line: Line) -> None:
    """Load, runs and canaries share one thread, all preparing another one, misses included."""
    for batch in range(5):
        line.ask(Prepare(WireItem(1000 + batch, "a prepared one")))
        good(line, batch)
        line.ask(Probe(batch))
    assert len(pipeline.threads["model"]) == 1
    assert len(pipeline.threads["prepare"]) == 1
    assert pipeline.threads["model"] != pipeline.threads["prepare"]


def test_canary_verdicts(pipeline: StubPipeline, line: Line) -> None:
    """A canary is good with a finite answer, bad without one or when it raises."""
    assert line.ask(Probe(1)) == Probed(1, ok=True)
    pipeline.canary_behaviour = lambda: {"score": math.nan}
    assert line.ask(Probe(2)) == Probed(2, ok=False)
    pipeline.canary_behaviour = lambda: raising(SystemExit(SECRET))([])
    bad = line.ask(Probe(3))
    assert (bad.ok, bad.device_lost, bad.trace.error) == (False, False, "SystemExit")
    assert SECRET not in str(bad)
    pipeline.canary_behaviour = lambda: raising(RuntimeError("CUDA error: something new"))([])
    pipeline.alive = False
    assert line.ask(Probe(4)).device_lost
    pipeline.canary_behaviour = lambda: 1.0
    assert line.ask(Probe(5)).ok


def test_answers_over_a_frame_fail_the_batch(
    pipeline: StubPipeline, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers that no frame can carry are a FAULT that says so, and the worker goes on."""
    monkeypatch.setattr(framing, "MAX_FRAME", 10_000)
    pipeline.behaviour = lambda items: ["x" * 6000 for _ in items]
    fault = line.ask(Run(1, items(["a", "b"])))
    assert (fault.batch, fault.kind) == (1, "error")
    assert "larger than one frame" in fault.message
    assert isinstance(line.ask(Run(2, items(["a"]))), Result)


@pytest.mark.parametrize(
    "fault,kind", [("raise", "error"), ("oom", "oom"), ("device-lost", "device_lost")]
)
def test_rehearsed_fault_is_acted_out(line: Line, fault: str, kind: str) -> None:
    """A marked item brings its batch down as the real thing would; unmarked ones are right."""
    good(line)
    marked = WireItem(1, SECRET, rehearse=fault)
    answer = line.ask(Run(1, [*items(["x"], start=5), marked]))
    assert (answer.batch, answer.kind) == (1, kind)
    assert SECRET not in str(answer)
    if fault == "device-lost":
        assert line.ask(Run(2, items(["x"]))).kind == "device_lost"
        assert line.ask(Probe(3)).device_lost
    else:
        good(line)


def test_rehearsed_nan_is_the_items_own(pipeline: StubPipeline, line: Line) -> None:
    """Only the marked item loses its scores."""
    pipeline.behaviour = lambda items: [{"score": 0.5} for _ in items]
    result = line.ask(Run(1, [WireItem(1, "a", rehearse="nan"), WireItem(2, "b")]))
    assert result.outputs == [b"", b'{"score":0.5}']


def test_rehearsed_slowness_counts_in_the_batch(line: Line) -> None:
    """The time that slow items add is part of the batch's time."""
    slow = [WireItem(number, "a", rehearse="slow=30") for number in range(2)]
    assert line.ask(Run(1, slow)).seconds >= 0.06


def test_without_rehearsal_marks_mean_nothing(pipeline: StubPipeline) -> None:
    """A worker that was not told to rehearse answers marked items like any others."""
    with inside(pipeline.load) as line:
        line.load("stub", "fill-mask")
        for fault in ("raise", "exit", "oom-always", "device-lost", "hang", "nan"):
            result = line.ask(Run(1, [WireItem(1, "a", rehearse=fault)]))
            assert result.outputs == [b'"a"']


def test_samples_come_by_themselves(pipeline: StubPipeline) -> None:
    """A sample of memory, time and device arrives unasked, before loading and after it."""
    with inside(pipeline.load, sample_s=0.01) as line:
        first = line.next(samples=True)
        assert isinstance(first, Sample), first
        assert first.rss_bytes > 1_000_000
        assert first.cpu_s > 0
        assert first.device_total_bytes == 0
        line.load("stub", "fill-mask")
        later = first
        while later.device_total_bytes == 0:
            frame = line.next(samples=True)
            later = frame if isinstance(frame, Sample) else later
        assert (later.device_allocated_bytes, later.device_reserved_bytes) == (1, 2)


@pytest.mark.parametrize(
    "error,reason",
    [
        (CannotLoad("wrong_task", "The model was made for another task."), "wrong_task"),
        (MemoryError(SECRET), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 4 GB"), "out_of_memory"),
        (ValueError(SECRET), "error"),
        (SystemExit(SECRET), "error"),
    ],
)
def test_failed_load_says_why(error: BaseException, reason: str) -> None:
    """A load that fails gives one FAILED with its reason and a sentence, and nothing it quoted."""

    def load(_: Load) -> StubPipeline:
        raise error

    with inside(load) as line:
        failed = line.ask(Load("stub", "fill-mask"))
    assert isinstance(failed, Failed), failed
    assert failed.reason == reason
    assert failed.message.endswith(".")
    assert SECRET not in str(failed)
    assert (failed.trace is None) == isinstance(error, CannotLoad)


def test_cause_of_a_refused_load_is_traced() -> None:
    """Where a refusal has a cause, the log can have its class and frames."""

    def load(_: Load) -> StubPipeline:
        raise CannotLoad("model_broken", "It is broken.") from KeyError(SECRET)

    with inside(load) as line:
        failed = line.ask(Load("stub", "fill-mask"))
    assert failed.trace.error == "KeyError"
    assert SECRET not in str(failed)


def test_bad_canary_of_a_reload_is_told(pipeline: StubPipeline) -> None:
    """A model that did load once is ready again, and says that its self-test failed."""
    for canary in (lambda: {"score": math.nan}, lambda: raising(SystemExit(SECRET))([])):
        pipeline.canary_behaviour = canary
        with inside(pipeline.load) as line:
            ready = line.ask(Load("stub", "fill-mask", reload=True))
            assert isinstance(ready, Ready)
            assert not ready.canary_ok


def test_bad_canary_is_no_ready(pipeline: StubPipeline) -> None:
    """A model that loads but fails its self-test is not served."""
    pipeline.canary_behaviour = lambda: {"score": math.nan}
    with inside(pipeline.load) as line:
        assert line.ask(Load("stub", "fill-mask")).reason == "canary_failed"


def test_ready_has_the_time_it_took(pipeline: StubPipeline) -> None:
    """READY carries the pipeline's facts and the seconds since LOAD."""
    with inside(pipeline.load) as line:
        ready = line.ask(Load("stub", "fill-mask"))
    assert isinstance(ready, Ready)
    assert ready.facts.model == "stub"
    assert ready.facts.load_s != pipeline.facts.load_s


def test_prepared_before_ready_is_answered_after(pipeline: StubPipeline) -> None:
    """A PREPARE that arrives while the model loads is answered once it is there."""
    with inside(pipeline.load) as line:
        line.send(Prepare(WireItem(1, "early")), Load("stub", "fill-mask"))
        kinds = {type(line.next()), type(line.next())}
    assert kinds == {Ready, Prepared}


@pytest.mark.parametrize("frame", [Run(1, []), Probe(1)])
def test_work_before_a_load_ends_the_worker(frame: Run | Probe) -> None:
    """A front that asks for work before it asked for a model has broken the protocol."""
    ended = StubPipeline()
    with inside(ended.load) as line:
        line.send(frame)
    assert ended.threads["model"] == set()
