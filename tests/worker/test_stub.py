"""The stub worker obeys its script, so that tests of the front can trust it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from service.worker.framing import WireError
from service.worker.wire import (
    Fault,
    Prepare,
    Prepared,
    Probe,
    Probed,
    Result,
    Run,
    Unfit,
)
from tests.worker.line import STUB, Line, items, process


def stub(script: dict[str, Any]) -> tuple[str, ...]:
    """The command that runs it."""
    return (*STUB, json.dumps(script))


def answers(line: Line, *texts: str) -> list[Any]:
    """What a batch gives."""
    result = line.ask(Run(1, items(texts)))
    assert isinstance(result, Result), result
    return [json.loads(output) for output in result.outputs]


def test_default_life() -> None:
    """Without a script it prepares, answers and passes its canary, and ends with its socket."""
    with process(*stub({})) as worker:
        assert worker.load("m", "fill-mask").mask_token == "[MASK]"
        [item] = items(["two words"])
        assert worker.ask(Prepare(item)).units == 2
        assert answers(worker, "a", "b") == [
            {"text": "a", "batch": 2, "life": 1},
            {"text": "b", "batch": 2, "life": 1},
        ]
        assert worker.ask(Probe(4)) == Probed(4, ok=True)
        worker.sock.close()
        assert worker.wait() == 0


def test_runs_and_probes_follow_the_script() -> None:
    """Actions stand by the number of the run or probe in its life."""
    script = {
        "facts": {"cost_unit_s": 0.5},
        "prepare": "unfit",
        "runs": {"1": "oom", "2": "error_above=1", "3": "few", "*": "answer"},
        "probes": {"1": "bad", "2": "lost"},
    }
    with process(*stub(script)) as worker:
        assert worker.load("m", "fill-mask").cost_unit_s == 0.5
        assert isinstance(worker.ask(Prepare(items(["x"])[0])), Unfit)
        kinds = [worker.ask(Run(number, items(["a", "b"]))) for number in range(2)]
        assert [fault.kind for fault in kinds if isinstance(fault, Fault)] == ["oom", "error"]
        assert len(worker.ask(Run(3, items(["a", "b"]))).outputs) == 1
        assert len(answers(worker, "a", "b")) == 2
        verdicts = [worker.ask(Probe(number)) for number in range(3)]
        assert [(v.ok, v.device_lost) for v in verdicts] == [
            (False, False), (False, True), (True, False),
        ]  # fmt: skip


def test_a_run_is_held(tmp_path: Path) -> None:
    """A held run has no end while its file is there; what comes meanwhile is prepared."""
    file = tmp_path / "held"
    file.touch()
    with process(*stub({"runs": {"1": f"held={file}"}})) as worker:
        worker.load("m", "fill-mask")
        worker.send(Run(1, items(["a"])))
        assert isinstance(worker.ask(Prepare(items(["b"])[0])), Prepared)
        file.unlink()
        assert isinstance(worker.next(), Result)


def test_lives_are_counted(tmp_path: Path) -> None:
    """Each process takes the next life of the script, and the last one repeats."""
    script = {"lives": [{"load": "exit"}, {}], "count": str(tmp_path / "count")}
    for life in (1, 2, 3):
        with process(*stub(script)) as worker:
            if life == 1:
                with pytest.raises((EOFError, ConnectionError)):
                    worker.load("m", "fill-mask")
                assert worker.wait() == 1
            else:
                worker.load("m", "fill-mask")
                assert answers(worker, "a")[0]["life"] == life


@pytest.mark.parametrize(
    "action,end",
    [
        ("exit", 1),
        ("segfault", -signal.SIGSEGV),
        ("torn", 1),
        ("garbage", None),
        ("oversize", None),
    ],
)
def test_ends_are_as_asked(action: str, end: int | None) -> None:
    """A run can end the process or break the wire."""
    with process(*stub({"runs": {"*": action}})) as worker:
        worker.load("m", "fill-mask")
        worker.send(Run(1, items(["a"])))
        with pytest.raises(WireError if end is None else (EOFError, ConnectionError)):
            worker.next()
        if end is not None:
            assert worker.wait() == end
