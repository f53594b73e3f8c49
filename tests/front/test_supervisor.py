"""The supervisor over real processes: every way to live and to end, and what is said of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import structlog

from service import METRIC_PREFIX
from service.cgroup import Cgroup
from service.core.errors import Refused
from service.dispatcher import Ask, Dispatcher
from service.metrics import Metrics
from service.settings import Settings
from service.supervisor import Supervisor, orders, supervisor, worker_count, worker_factory
from service.supervisor.process import LINE_BYTES, LINES_A_SECOND, environment
from service.tasks import TASKS
from service.worker.wire import (
    Failed,
    Fault,
    Load,
    Prepared,
    Probed,
    Ready,
    Result,
    Unfit,
)
from service.workers import Loss, WorkerState
from tests.front.supervised import LONG_S, Supervised, items, real, stub

SYNTHETIC = Load("synthetic:cpu", "synthetic")


@pytest.fixture
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restart without waiting: the waits have a test of their own."""
    monkeypatch.setattr(supervisor, "backoff_s", lambda deaths: 0.0)


# ---------------------------------------------------------------------- a life


@real
async def test_a_real_worker_lives() -> None:
    """A worker process starts, gets ready, prepares, runs, proves itself and sends samples."""
    async with Supervised(supervisor.COMMAND, load=SYNTHETIC) as one:
        assert one.worker.state is WorkerState.STARTING
        await one.ready()
        assert one.worker.pid is not None
        first, second = items("one two three", "four")
        one.worker.prepare(first)
        prepared = await one.answer(Prepared)
        assert (prepared.id, prepared.units, prepared.key) == (1, 3, "")
        one.worker.run(7, [first, second])
        result = await one.answer(Result)
        assert (result.batch, [json.loads(output)["tokens"] for output in result.outputs]) == (
            7,
            [3, 1],
        )
        one.worker.probe(9)
        assert await one.answer(Probed) == Probed(9, ok=True)
        one.worker.prepare(second)
        one.worker.drop([1, 2])
        await one.heard.until(lambda: one.heard.samples > 0)
        assert one.heard.losses == []


@real
async def test_frames_go_both_ways() -> None:
    """What the dispatcher asks reaches the process, and every kind of answer comes back."""
    life = {"prepare": "unfit", "runs": {"1": "oom"}, "probes": {"1": "bad"}}
    async with Supervised(stub(life)) as one:
        await one.ready()
        (item,) = items("a")
        one.worker.prepare(item)
        assert (await one.answer(Unfit)).message == "send something else"
        one.worker.run(1, [item])
        assert (await one.answer(Fault)).kind == "oom"
        one.worker.probe(3)
        assert not (await one.answer(Probed)).ok


@real
async def test_a_model_that_cannot_be_loaded_is_reported_not_restarted() -> None:
    """FAILED is heard as such, with its reason; whoever hears it decides what comes next."""
    async with Supervised(supervisor.COMMAND, load=Load("synthetic:no", "synthetic")) as one:
        failed = await one.answer(Failed)
        assert failed.reason == "model_not_found"
        assert one.worker.state is WorkerState.FAILED
        assert one.heard.losses == []


# ---------------------------------------------------------------------- ends


@pytest.mark.parametrize(
    "action,code",
    [("exit", 1), ("segfault", -signal.SIGSEGV)],
)
@real
async def test_an_exit_is_evidence(action: str, code: int, no_backoff: None) -> None:
    """A process that ends by itself while it runs a batch is crashed, and that is evidence."""
    async with Supervised(stub({"runs": {"*": action}})) as one:
        await one.ready()
        one.worker.run(1, items("a"))
        assert await one.lost() == [(Loss.CRASHED, True)]
        assert one.worker.pid is None
        assert [event["code"] for event in one.events("worker.exited")] == [code]
        await one.ready(2)


@pytest.mark.parametrize("by_kernel", [False, True])
@real
async def test_a_kill_from_outside_is_no_evidence(by_kernel: bool) -> None:
    """A SIGKILL is evidence only if the kernel's count of memory kills explains it."""
    async with Supervised(stub({"runs": {"*": "hang"}})) as one:
        await one.ready()
        one.worker.run(1, items("a"))
        one.kernel.kills += by_kernel
        assert one.worker.pid is not None
        os.kill(one.worker.pid, signal.SIGKILL)
        expected = (Loss.OOM_KILLED, True) if by_kernel else (Loss.CRASHED, False)
        assert await one.lost() == [expected]


@pytest.mark.parametrize("action", ["garbage", "oversize", "torn"])
@real
async def test_a_broken_wire_ends_the_worker(action: str, no_backoff: None) -> None:
    """Bytes that are no frame end the process, whatever it was doing, and a new one comes."""
    async with Supervised(stub({"runs": {"*": action}})) as one:
        await one.ready()
        one.worker.run(1, items("a"))
        assert await one.lost() == [(Loss.CRASHED, True)]
        await one.ready(2)
        assert len(one.heard.losses) == 1


SPEAK = """
import os, socket, sys, time
from service.worker.wire import *
sock = socket.socket(fileno=int(sys.argv[-2]))
def send(frame): sock.sendall(encode(frame))
def stay():
    while sock.recv(65536): pass
facts = Facts("synthetic", "m", "d", "n", "", 8, 0, True, .1, .1, 1, .1, .1, .1, 1)
"""
"""The beginning of a worker of one test, for what the stub does not do."""


def speaks(then: str) -> tuple[str, ...]:
    """The command of a process that does just this."""
    return (sys.executable, "-P", "-c", SPEAK + then)


@real
async def test_a_socket_that_closes_without_an_exit_ends_the_worker() -> None:
    """A process that closes its socket and stays is killed."""
    async with Supervised(speaks("sock.close(); time.sleep(3600)")) as one:
        assert await one.lost() == [(Loss.CRASHED, True)]
        assert len(one.events("worker.broken")) == 1


@real
async def test_ready_twice_is_a_broken_worker() -> None:
    """READY comes once in a life."""
    async with Supervised(speaks("send(Ready(facts)); send(Ready(facts)); stay()")) as one:
        assert await one.lost() == [(Loss.CRASHED, True)]
        assert len(one.of(Ready)) == 1


def stand_still_until_dead(pid: int) -> None:
    """Keep everything waiting until the process has ended."""
    process = psutil.Process(pid)
    while process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)


@real
async def test_last_words_are_heard(tmp_path: Path) -> None:
    """What a process sent before it ended is heard before its end, however much it is."""
    word = tmp_path / "word"
    then = f"""
sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
send(Sample(0, 0.0))
while not os.path.exists({str(word)!r}):
    time.sleep(0.005)
sock.sendall(encode(Sample(1, 1.0)) * 10_000 + encode(Failed("error", "last words")))
os._exit(3)
"""
    async with Supervised(speaks(then)) as one:
        await one.heard.until(lambda: one.heard.samples > 0)
        assert one.worker.pid is not None
        word.touch()
        stand_still_until_dead(one.worker.pid)  # the loop finds words and end at one moment
        assert (await one.answer(Failed)).message == "last words"
        assert one.heard.samples == 10_001
        assert one.worker.state is WorkerState.FAILED


@real
async def test_last_words_do_not_wait_for_a_child() -> None:
    """A child that holds the socket of a dead worker does not hide its death."""
    then = "if os.fork(): os._exit(1)\nstay()"
    async with Supervised(speaks(then)) as one:
        assert await one.lost() == [(Loss.CRASHED, True)]


@real
async def test_never_ready_is_hung() -> None:
    """A process that does not get ready in time is killed as hung; the next may."""
    async with Supervised(stub({"load": "never"}), load_timeout_s=0.2) as one:
        assert (await one.lost())[0][0] is Loss.HUNG


@real
async def test_killed_on_request(no_backoff: None) -> None:
    """``kill`` ends the process for the given reason, once; nothing more is heard of it."""
    async with Supervised(stub({"runs": {"*": "slow=0.2"}})) as one:
        await one.ready()
        pid = one.worker.pid
        assert pid is not None
        one.worker.run(1, items("a"))
        one.worker.kill(Loss.HUNG)
        one.worker.kill(Loss.CRASHED)
        assert one.heard.losses == []  # never from inside the call
        assert await one.lost() == [(Loss.HUNG, True)]
        await one.ready(2)
        assert not psutil.pid_exists(pid)
        assert one.of(Result) == []
        one.worker.kill(Loss.PROBE_FAILED)
        assert (await one.lost(2))[1] == (Loss.PROBE_FAILED, False)


@real
async def test_frames_to_a_dead_worker_go_nowhere(no_backoff: None) -> None:
    """Whatever is asked of a worker without a process is not an error."""
    async with Supervised(stub({"runs": {"*": "exit"}})) as one:
        await one.ready()
        one.worker.run(1, items("a"))
        await one.lost()
        one.worker.run(2, items("a"))
        one.worker.prepare(items("a")[0])
        one.worker.probe(1)
        one.worker.drop([1])
        await one.ready(2)


@real
async def test_a_program_that_cannot_be_started() -> None:
    """A command that does not exist is a lost worker like another, not the end of the front."""
    async with Supervised(("/does/not/exist",)) as one:
        assert (await one.lost())[0] == (Loss.CRASHED, False)
        assert len(one.events("worker.start_failed")) == 1


# ---------------------------------------------------------------------- restarts


@real
async def test_backoff_grows_and_a_good_batch_resets_it(tmp_path: Path) -> None:
    """Half a second, then a whole one; after an answered batch half a second again."""
    dies = {"load": "exit"}
    lives = ({"runs": {"*": "exit"}}, dies, {"runs": {"1": "answer", "2": "exit"}})
    async with Supervised(stub(*lives, folder=tmp_path)) as one:
        await one.ready()
        one.worker.run(1, items("a"))
        began = time.monotonic()
        await one.ready(2)
        assert time.monotonic() - began >= 1.5
        one.worker.run(1, items("a"))
        await one.answer(Result)
        one.worker.run(2, items("a"))
        await one.lost(3)
        waits = [event["backoff_s"] for event in one.events("worker.restarting")]
        assert waits == [0.5, 1.0, 0.5]


@real
async def test_ten_restarts_leak_nothing(no_backoff: None) -> None:
    """After ten lives there are as many open files, children and tasks as after one."""
    async with Supervised(stub({"says": "hello", "runs": {"*": "exit"}})) as one:
        me = psutil.Process()

        def held() -> tuple[int, int, int]:
            return me.num_fds(), len(me.children()), len(asyncio.all_tasks())

        await one.ready()
        first = held()
        for life in range(1, 12):
            await one.ready(life)
            await one.when(lambda: held() == first)
            one.worker.run(1, items("a"))
            await one.lost(life)
        assert len(one.heard.losses) == 11


# ---------------------------------------------------------------------- stop


@pytest.mark.parametrize(
    "life,started",
    [
        pytest.param({}, True, id="idle"),
        pytest.param({"runs": {"*": "hang"}}, True, id="hangs"),
        pytest.param({"runs": {"*": "hang"}, "deaf": True}, True, id="deaf"),
        pytest.param({"load": "never"}, False, id="loads"),
    ],
)
@real
async def test_stop_ends_it_within_seconds(life: dict[str, Any], started: bool) -> None:
    """``stop`` ends the process whatever it does, and nothing is reported."""
    async with Supervised(stub(life)) as one:
        if started:
            await one.ready()
            one.worker.run(1, items("a"))
        else:
            await one.when(lambda: one.worker.state is WorkerState.LOADING)
        pid = one.worker.pid
        began = time.monotonic()
        await one.worker.stop()
        assert time.monotonic() - began < LONG_S / 2
        assert pid is None or not psutil.pid_exists(pid)
        one.worker.kill(Loss.HUNG)
        await asyncio.sleep(0)
        assert one.heard.losses == []


@real
async def test_stop_during_a_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between two lives it does not start again."""
    monkeypatch.setattr(supervisor, "backoff_s", lambda deaths: LONG_S)
    async with Supervised(stub({"load": "exit"})) as one:
        await one.lost()
        await one.worker.stop()
        assert one.worker.pid is None
        assert len(one.events("worker.started")) == 1


@real
async def test_stop_before_it_has_begun() -> None:
    """Stopped in the instant of its start it leaves no process."""
    before = psutil.Process().children()
    async with Supervised(stub()) as one:
        await one.worker.stop()
        assert psutil.Process().children() == before


@real
async def test_stop_right_after_a_kill() -> None:
    """A loss that was not reported yet is not reported after ``stop``."""
    async with Supervised(stub()) as one:
        await one.ready()
        one.worker.kill(Loss.HUNG)
        await one.worker.stop()
        assert one.heard.losses == []


# ---------------------------------------------------------------------- output


@real
async def test_output_is_drained_and_logged_sparingly() -> None:
    """A worker that prints megabytes is not held up, and costs a few log lines."""
    then = "print(('x' * 1000 + '\\n') * 10_000, flush=True); send(Ready(facts)); stay()"
    async with Supervised(speaks(then)) as one:
        began = time.monotonic()
        await one.ready()
        seconds = time.monotonic() - began
        lines = one.events("worker.output")
        assert 1 <= len(lines) <= LINES_A_SECOND * (seconds + 2)
        assert {len(event["line"]) for event in lines} == {LINE_BYTES}


@real
async def test_output_is_plain_text() -> None:
    """Control characters of a worker's output do not reach the log; its last line does."""
    then = r"os.write(1, b'a\x1b[31mb\x07\r\n\n  \xff\nthe end'); os._exit(1)"
    async with Supervised(speaks(then)) as one:
        await one.lost()
        lines = [event["line"] for event in one.events("worker.output")]
        assert lines[:3] == ["a [31mb", "\N{REPLACEMENT CHARACTER}", "the end"]


@real
async def test_a_terminals_signals_are_the_fronts() -> None:
    """Ctrl-C goes to a process group: a worker is in one of its own from its first instruction."""
    then = "os.write(1, str(os.getpgrp() == os.getpid()).encode()); os._exit(1)"
    async with Supervised(speaks(then)) as one:
        await one.lost()
        assert one.events("worker.output")[0]["line"] == "True"


@real
async def test_output_names_no_path_of_the_machine() -> None:
    """Of a path in a worker's output the last three parts are logged; addresses stay."""
    said = 'File "/srv/a/b/c/d.py", line 3; /pytorch/x/y/z.cu:7: no; /etc/hosts; http://h/a/b/c/d/e'
    then = f"os.write(1, {said.encode()!r}); os._exit(1)"
    async with Supervised(speaks(then)) as one:
        await one.lost()
        [line] = [event["line"] for event in one.events("worker.output")][:1]
        assert line == 'File "b/c/d.py", line 3; x/y/z.cu:7: no; /etc/hosts; http://h/a/b/c/d/e'


@real
async def test_a_flood_of_lines_does_not_stall_the_loop() -> None:
    """Short lines without end are thrown away in bulk: the loop goes on."""
    then = """
import threading
threading.Thread(target=lambda: stay() or os._exit(0), daemon=True).start()
send(Ready(facts))
while True:
    os.write(1, b'y\\n' * 32768)
"""
    async with Supervised(speaks(then)) as one:
        await one.when(lambda: len(one.events("worker.output")) >= LINES_A_SECOND)
        turns = 200
        used = time.thread_time()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert (time.thread_time() - used) / turns < 0.02  # of CPU, in each turn of the loop


# ---------------------------------------------------------------------- environment


SECRETS = (
    "SEAWALL_API_KEYS_FILE", "SEAWALL_MODEL", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "API_KEY",
    "HF_API_TOKEN", "CUDA_SECRET", "TORCH_KEY", "DATABASE_PASSWORD", "XDG_CREDENTIALS",
)  # fmt: skip


def test_environment_holds_no_secret() -> None:
    """No setting of the front and nothing that is named like a secret reaches a worker."""
    environ = dict.fromkeys(SECRETS, "hidden") | {"PATH": "/bin", "HF_HOME": "/x", "HF_TOKEN": "t"}
    kept = environment(environ, 3)
    assert "hidden" not in kept.values()
    assert "HF_TOKEN" not in kept
    assert (kept["PATH"], kept["HF_HOME"], kept["OMP_NUM_THREADS"]) == ("/bin", "/x", "3")


def test_environment_of_a_hub_model() -> None:
    """The hub's token reaches a worker that loads a hub model, and nothing else of its kind."""
    hub = {"HF_TOKEN": "t", "HF_TOKEN_PATH": "/t", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
    kept = environment(hub | {"HF_API_TOKEN": "hidden"}, 1, hub=True)
    assert hub.items() <= kept.items()
    assert "hidden" not in kept.values()


def test_environment_keeps_what_the_operator_set() -> None:
    """Threads that were set by hand win over ours."""
    kept = environment({"OMP_NUM_THREADS": "7", "MKL_NUM_THREADS": "5"}, 2)
    assert (kept["OMP_NUM_THREADS"], kept["MKL_NUM_THREADS"]) == ("7", "5")
    assert kept["OPENBLAS_NUM_THREADS"] == "2"
    assert kept["RAYON_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    "model,token", [("owner/name", True), ("/models/bert", False), ("synthetic:cpu", False)]
)
@real
async def test_a_process_gets_just_this(
    model: str, token: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real process sees that environment, an empty input, and no open file but its socket."""
    for name in (*SECRETS, "HF_TOKEN"):
        monkeypatch.setenv(name, "hidden")
    seen = tmp_path / "seen"
    then = f"""
import json
files = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
listing = files.pop()  # of the folder itself
json.dump([dict(os.environ), files, sys.stdin.read(), int(sys.argv[-1])], open({str(seen)!r}, "w"))
send(Ready(facts)); stay()
"""
    leak = (tmp_path / "open").open("w")
    os.set_inheritable(leak.fileno(), True)
    async with Supervised(speaks(then), load=Load(model, "fill-mask")) as one:
        await one.ready()
        environ, files, typed, parent = json.loads(seen.read_text())
        hidden = {name for name, value in environ.items() if value == "hidden"}
        assert hidden == ({"HF_TOKEN"} if token else set())
        assert not [name for name in environ if name.startswith("SEAWALL_")]
        assert files[:3] == [0, 1, 2]
        assert len(files) == 4
        assert (typed, parent) == ("", os.getpid())
    leak.close()


# ---------------------------------------------------------------------- from settings


def test_workers_and_threads_from_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """``auto`` is one worker with the whole quota; numbers and OMP_NUM_THREADS are taken as set."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    class Quota(Cgroup):
        def cpu_limit_cores(self) -> float:
            return 7.5

    def threads(workers: int, **settings: Any) -> int:
        return orders.torch_threads(Settings(**settings), workers, Quota())

    assert worker_count(Settings()) == 1
    assert worker_count(Settings(workers=3)) == 3
    assert [threads(workers) for workers in (1, 2, 3, 20)] == [8, 4, 2, 1]
    assert threads(2, torch_threads=5) == 5
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads(1) == 3


def test_cores_to_share_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole cores, and none where the operator said how many workers or threads there are."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    class Quota(Cgroup):
        def cpu_limit_cores(self) -> float:
            return 7.5

    def cores(**settings: Any) -> int:
        return orders.first_load(Settings(**settings), Quota()).cores

    assert [cores(), cores(workers=2), cores(torch_threads=2)] == [7, 0, 0]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert cores() == 0


@real
async def test_what_the_first_worker_found_is_an_order() -> None:
    """Every worker after the first, and every later life, is told the threads that it found."""
    first = Load("synthetic:cpu", "synthetic", torch_threads=4, cores=4)
    async with Supervised(stub(), load=first) as one:
        await one.ready()
        assert one.worker.facts is not None
        assert one.orders.load == Load("synthetic:cpu", "synthetic", torch_threads=1, reload=True)
        one.orders.settle(msgspec.structs.replace(one.worker.facts, torch_threads=9))
        assert one.orders.load.torch_threads == 1


@real
async def test_factory_makes_workers_from_settings() -> None:
    """What is to be loaded, and for how long, comes from the settings."""
    settings = Settings(
        model="synthetic:gpu", load_timeout_s=9, rehearsal=True, torch_threads=2, device="cpu"
    )

    class Nobody:
        def received(self, worker: object, frame: object) -> None:
            raise AssertionError

        def lost(self, worker: object, reason: object, *, evidence: bool) -> None:
            raise AssertionError

    worker = worker_factory(settings)(4, Nobody())
    assert isinstance(worker, Supervisor)
    assert worker.index == 4
    assert worker._load_timeout_s == 9.0
    assert worker._orders.load == Load(
        "synthetic:gpu", "synthetic", device="cpu", torch_threads=2, rehearsal=True
    )
    assert (worker.pid, worker.facts, worker.state) == (None, None, WorkerState.STARTING)


# ---------------------------------------------------------------------- under the dispatcher


@real
async def test_a_service_over_real_processes(no_backoff: None, tmp_path: Path) -> None:
    """Answers that do not add up, a crash and a hang cost their batch a worker, and no more."""
    lives: tuple[dict[str, Any], ...] = (
        {"runs": {"2": "wrong_batch"}},
        {"runs": {"1": "segfault"}},
        {"runs": {"1": "hang"}},
        {},
    )
    settings = Settings(model="synthetic:cpu", watchdog_ms=3000, deadline_ms=60_000)
    fatal: list[int] = []
    metrics = Metrics()
    service = Dispatcher(
        settings=settings, task=TASKS["synthetic"], metrics=metrics, on_fatal=fatal.append
    )
    service.start(worker_factory(settings, stub(*lives, folder=tmp_path)), 1)

    async def outcome(text: str) -> str:
        async with asyncio.timeout(LONG_S):
            while service.gate() is not None:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.001)
        now = service.clock()
        ask = Ask("r", (text,), b"{}", False, len(text), now, now, None)
        try:
            reply = await service.admit(ask).wait()
        except Refused as refusal:
            return refusal.problem.code
        assert json.loads(reply.outputs[0])["text"] == text
        return "ok"

    with structlog.testing.capture_logs() as log:
        assert await outcome("a") == "ok"
        for number in range(3):
            assert await outcome(f"bad {number}") == "worker_lost"
        assert await outcome("b") == "ok"
        await service.stop()
    assert [event["reason"] for event in log if event["event"] == "worker.lost"] == [
        "crashed",
        "crashed",
        "hung",
    ]
    assert fatal == []
    assert metrics.registry.get_sample_value(f"{METRIC_PREFIX}queue_wait_seconds_count") == 5
