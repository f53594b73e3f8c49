"""Memory that runs out: in the model, where smaller batches help, and by the kernel's hand."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import PATIENT
from tests.e2e.faulty import ceiling, faulty
from tests.e2e.faulty_worker import HOARD
from tests.e2e.held import busy
from tests.e2e.load import Call
from tests.e2e.server import GOOD_TEXT, Server, wait_for

pytestmark = pytest.mark.e2e

SYNTHETIC, PACKAGED = ("--model", "synthetic:cpu"), ()
RESTARTS = "seawall_worker_restarts_total"
GROUPS = Path("/sys/fs/cgroup")
OPENED = "seawall_breaker_transitions_total"


@pytest.mark.parametrize("model", [SYNTHETIC, PACKAGED], ids=["synthetic", "packaged"])
def test_less_memory_costs_size_and_no_request(tmp_path: Path, model: tuple[str, ...]) -> None:
    """Under a lower ceiling of memory all are answered, from smaller batches; then as before.

    A lone input over the ceiling is 503 as long as as much has fitted before, and 413 if not.
    """
    flags = ("--batch-ms", "300", "--rehearsal")
    with Server(command=faulty(tmp_path, *PATIENT, *flags, *model)) as server:
        most = server.status()["limits"]["batch_units"]
        calls = [Call(f"[MASK] {'word ' * 38} {n}") for n in range(80)]
        with ceiling(tmp_path, int(0.4 * most)):
            with busy(server, tmp_path) as holder:
                sent = server.send(*calls)
                server.wait_depth(len(calls))
            answers = [*holder.result(), *sent.result()]
            assert {answer.code for answer in answers} == {"ok"}
            split = server.metric("seawall_oom_total", recovery="split")
            assert split >= 1
            assert server.metric("seawall_memory_budget_tokens") <= 0.5 * most
            answers = server.send(*calls).result()
            assert {answer.code for answer in answers} == {"ok"}
            # What was learnt holds: half of what failed may be a little too much, once.
            assert server.metric("seawall_oom_total", recovery="split") <= split + 1
            assert server.metric("seawall_oom_total", recovery="failed") == 0
        budget = server.metric("seawall_memory_budget_tokens")

        def grown() -> bool:
            assert server.predict("[MASK]").status_code == 200
            return server.metric("seawall_memory_budget_tokens") > budget

        wait_for(grown, "the budget to grow back")
        lone(server, tmp_path)
        assert server.metric(OPENED, to="open") == 0
        server.healthy()


def lone(server: Server, folder: Path) -> None:
    """Inputs that cannot fit, each by itself."""
    split = server.metric("seawall_oom_total", recovery="split")
    large = Call("[MASK] " + "word " * 20)
    largest = Call({"inputs": "[MASK]", "parameters": {"top_k": 9000}})
    with ceiling(folder, 12):
        [answer] = server.send(large).result()
        assert (answer.status, answer.code) == (503, "out_of_memory")
        assert int(answer.headers["retry-after"]) >= 1
        if "fill-mask" in server.status()["model"]["task"]:
            [answer] = server.send(largest).result()
            assert (answer.status, answer.code) == (413, "payload_too_large")
        assert server.predict(GOOD_TEXT).status_code == 200
    assert server.metric("seawall_oom_total", recovery="split") == split
    assert server.send(large).result()[0].code == "ok"


@contextmanager
def memory_group(most_bytes: int) -> Iterator[Path]:
    """A control group that may hold so much; skips the test where none can be made."""
    older = (GROUPS / "memory").is_dir()
    group = (GROUPS / "memory" if older else GROUPS) / f"seawall-test-{os.getpid()}"
    limits = (
        ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        if older
        else ("memory.max", "memory.swap.max")
    )
    try:
        group.mkdir()
        (group / limits[0]).write_text(str(most_bytes))
    except OSError:
        if group.is_dir():
            group.rmdir()
        pytest.skip("no control group can be made here")
    if (group / limits[1]).exists():
        (group / limits[1]).write_text(str(most_bytes if older else 0))
    try:
        yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(), "the group to empty")
        group.rmdir()


def inside(group: Path, command: tuple[str, ...]) -> tuple[str, ...]:
    """The same command in a control group."""
    enter = f'echo $$ > {group / "cgroup.procs"} && exec "$@"'
    return ("sh", "-c", enter, "sh", *command)


def test_the_kernels_memory_kill_is_told_apart(tmp_path: Path) -> None:
    """A worker that the kernel kills for memory is ``oom_killed`` and its input a suspect.

    A SIGKILL from elsewhere, right after it, is ``crashed`` and proves nothing.
    """
    flags = ("--restart-limit", "100", "--model", "synthetic:cpu")
    with memory_group(192 * 2**20) as group:
        command = inside(group, faulty(tmp_path, *PATIENT, *flags, "--rehearsal"))
        with Server(command=command) as server:
            front = server.pid
            for kills in (1, 2):
                [answer] = server.send(Call(f"{HOARD} [MASK]")).result()
                assert answer.code == "worker_lost"
                server.healthy()
                assert server.metric(RESTARTS, reason="oom_killed") == kills
            server.wait_event("worker.lost", reason="oom_killed")
            assert server.send(Call(f"{HOARD} [MASK]")).result()[0].code == "poisoned_input"
            for _ in range(2):
                running = server.send(Call(GOOD_TEXT, {"X-Rehearse-Fault": "slow=60000"}))
                server.wait_running()
                os.kill(server.worker_pid, signal.SIGKILL)
                assert running.result()[0].code == "worker_lost"
                server.healthy()
            assert server.metric(RESTARTS, reason="oom_killed") == 2
            assert server.metric(RESTARTS, reason="crashed") == 2
            assert server.pid == front
            server.healthy()


MANY, FEW = 1000, 200


def test_memory_does_not_grow_with_requests(model: Server) -> None:
    """All model calls stay in one thread, and memory after many requests is as after few."""
    worker = psutil.Process(model.worker_pid)

    def ask(requests: int) -> None:
        calls = [Call(f"request [MASK] {n % 7}") for n in range(50)]
        for _ in range(requests // 50):
            assert {answer.status for answer in model.send(*calls).result()} == {200}

    ask(FEW)
    threads, rss = worker.num_threads(), worker.memory_info().rss
    ask(MANY - FEW)
    assert worker.num_threads() == threads
    assert worker.memory_info().rss <= 1.05 * rss
