"""Limits and counts of control groups, on faked trees of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cgroup import Cgroup
from service.metrics import Metrics

GIB = 1 << 30
MACHINE = {"proc/meminfo": f"MemTotal: {64 * GIB // 1024} kB\nMemFree: 5 kB\n"}
V1_NO_LIMIT = "9223372036854771712\n"


@pytest.fixture(autouse=True)
def sixteen_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of a known size, whatever runs the tests."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))


def tree(root: Path, files: dict[str, str]) -> Cgroup:
    """The group that a file system with these files shows."""
    for name, text in {**MACHINE, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Cgroup(root)


def test_version_2(tmp_path: Path) -> None:
    """Limits, use, throttling and kills come from the unified hierarchy."""
    group = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/app\n",
            "sys/fs/cgroup/app/memory.max": f"{2 * GIB}\n",
            "sys/fs/cgroup/app/memory.current": f"{GIB}\n",
            "sys/fs/cgroup/app/memory.stat": "anon 5\ninactive_file 1000\nactive_file 7\n",
            "sys/fs/cgroup/app/memory.events": "low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\n",
            "sys/fs/cgroup/app/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/app/cpu.stat": "usage_usec 9\nthrottled_usec 2500000\n",
        },
    )
    assert group.memory_limit_bytes() == 2 * GIB
    assert group.memory_usage_bytes() == GIB - 1000
    assert group.cpu_limit_cores() == 1.5
    assert group.cpu_throttled_s() == 2.5
    assert group.oom_kills() == 3


@pytest.mark.parametrize("cpu", ["cpu", "cpu,cpuacct"])
def test_version_1(tmp_path: Path, cpu: str) -> None:
    """The same numbers from the hierarchies of version 1, whatever the CPU one is called."""
    group = tree(
        tmp_path,
        {
            "proc/self/cgroup": f"4:memory:/pod/app\n2:{cpu}:/pod/app\n1:name=systemd:/\n0::/\n",
            "sys/fs/cgroup/memory/pod/app/memory.limit_in_bytes": f"{2 * GIB}\n",
            "sys/fs/cgroup/memory/pod/app/memory.usage_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/pod/app/memory.stat": "inactive_file 9\ntotal_inactive_file 8\n",
            "sys/fs/cgroup/memory/pod/app/memory.oom_control": "under_oom 0\noom_kill 4\n",
            f"sys/fs/cgroup/{cpu}/pod/app/cpu.cfs_quota_us": "250000\n",
            f"sys/fs/cgroup/{cpu}/pod/app/cpu.cfs_period_us": "100000\n",
            f"sys/fs/cgroup/{cpu}/pod/app/cpu.stat": "nr_throttled 3\nthrottled_time 1500000000\n",
        },
    )
    assert group.memory_limit_bytes() == 2 * GIB
    assert group.memory_usage_bytes() == GIB - 8
    assert group.cpu_limit_cores() == 2.5
    assert group.cpu_throttled_s() == 1.5
    assert group.oom_kills() == 4


def test_the_tightest_limit_above_holds(tmp_path: Path) -> None:
    """A limit of a group above counts where it is the smaller one."""
    group = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/app\n",
            "sys/fs/cgroup/pod/memory.max": f"{GIB}\n",
            "sys/fs/cgroup/pod/app/memory.max": "max\n",
            "sys/fs/cgroup/pod/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/pod/app/cpu.max": "400000 100000\n",
        },
    )
    assert group.memory_limit_bytes() == GIB
    assert group.cpu_limit_cores() == 0.5


@pytest.mark.parametrize("path", ["/docker/0123abc", "/../../elsewhere"])
def test_a_path_of_the_host_means_the_mount(tmp_path: Path, path: str) -> None:
    """Inside a container the host's path does not exist: the mount is the container's group."""
    group = tree(
        tmp_path,
        {
            "proc/self/cgroup": f"0::{path}\n",
            "sys/fs/cgroup/memory.max": f"{GIB}\n",
            "sys/fs/cgroup/memory.current": "5000\n",
            "elsewhere/memory.max": "1\n",
        },
    )
    assert group.memory_limit_bytes() == GIB
    assert group.memory_usage_bytes() == 5000


@pytest.mark.parametrize("hierarchy", ["0::/", "4:memory:/\n2:cpu:/"])
def test_without_a_limit_the_machine_is_the_limit(tmp_path: Path, hierarchy: str) -> None:
    """No limit reads as all memory and all usable CPUs, never as 0 or infinity."""
    group = tree(
        tmp_path,
        {
            "proc/self/cgroup": hierarchy,
            "sys/fs/cgroup/memory.max": "max\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": V1_NO_LIMIT,
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert group.memory_limit_bytes() == 64 * GIB
    assert group.cpu_limit_cores() == 16


@pytest.mark.parametrize("text", ["", "garbage", "1 0\n", "-5\n", "\xff\n", "max max\n"])
def test_nothing_readable_raises_nothing(tmp_path: Path, text: str) -> None:
    """Missing or senseless files are no limit and no use."""
    names = ("memory.max", "memory.current", "memory.stat", "memory.events", "cpu.max", "cpu.stat")
    files = {f"sys/fs/cgroup/{name}": text for name in names}
    group = tree(tmp_path, {"proc/self/cgroup": "0::/\nno colons\n", **files})
    assert group.memory_limit_bytes() in {64 * GIB, 1}
    assert group.memory_usage_bytes() == 0
    assert group.cpu_limit_cores() == 16
    assert group.cpu_throttled_s() == 0
    assert group.oom_kills() == 0
    nothing = Cgroup(tmp_path / "nowhere")
    assert nothing.memory_limit_bytes() == 0
    assert nothing.memory_usage_bytes() == 0
    assert nothing.cpu_limit_cores() == 16
    assert nothing.cpu_throttled_s() == 0
    assert nothing.oom_kills() == 0


def test_the_page_shows_the_group(tmp_path: Path) -> None:
    """What the group grants is on the metrics page."""
    group = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "4096\n",
            "sys/fs/cgroup/memory.current": "1024\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/cpu.stat": "throttled_usec 1000000\n",
        },
    )
    body = Metrics(group).render(None)[0].decode()
    for line in (
        "seawall_memory_limit_bytes 4096.0",
        "seawall_memory_usage_bytes 1024.0",
        "seawall_cpu_limit_cores 0.5",
        "seawall_cpu_throttled_seconds_total 1.0",
    ):
        assert f"\n{line}\n" in body


def test_this_machine_can_be_read() -> None:
    """On the machine that runs the tests the numbers make sense."""
    group = Cgroup()
    assert group.memory_limit_bytes() > 64 * 1024 * 1024
    assert 0 < group.cpu_limit_cores() <= 16
    assert group.memory_usage_bytes() >= 0
