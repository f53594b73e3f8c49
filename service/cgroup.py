"""What the control group grants and counts: memory, CPU and kills, version 1 and 2.

Laws
- A limit is the tightest of the group and everything above it, and never more than the machine
  has: a container's quota, not the host, says how much there is.
- Nothing here raises: a file that is missing or unreadable is "no limit" or 0.
- The root folder is an argument, so that a faked tree stands for any host.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path("/")
_MOUNT = "sys/fs/cgroup"
_V1_NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of the page size below 2^63."""


class Cgroup:
    """The control group of this process.

    Args:
        root: the file system's root (``proc`` and ``sys`` are looked up below it).
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        groups = dict(_groups(_text(root / "proc/self/cgroup")))
        self._memory_v1 = "memory" in groups
        self._cpu_v1 = "cpu" in groups
        self._memory = self._chain(groups, "memory")
        self._cpu = self._chain(groups, "cpu")

    def _chain(self, groups: dict[str, str], controller: str) -> tuple[Path, ...]:
        """The group's folder and those above it, the innermost first."""
        if controller in groups:
            path, names = groups[controller], (controller, "cpu,cpuacct")
        else:
            path, names = groups.get("", "/"), ("", "unified")
        for name in names:
            mount = self._root / _MOUNT / name
            if not mount.is_dir():
                continue
            leaf = mount / path.strip("/")
            # Inside a container the path may be the host's and the mount the container's own.
            if ".." in leaf.parts or not leaf.is_dir():
                leaf = mount
            above = [folder for folder in leaf.parents if folder.is_relative_to(mount)]
            return (leaf, *above)
        return ()

    def memory_limit_bytes(self) -> int:
        """The tightest memory limit, or the machine's memory; 0 if neither can be read."""
        name = "memory.limit_in_bytes" if self._memory_v1 else "memory.max"
        limits = [_number(folder / name) for folder in self._memory]
        limits.append(self._machine_bytes())
        return min((one for one in limits if 0 < one < _V1_NO_LIMIT), default=0)

    def memory_usage_bytes(self) -> int:
        """Memory that counts against the limit, without file pages that the kernel would drop."""
        if not self._memory:
            return 0
        folder = self._memory[0]
        if self._memory_v1:
            used, droppable = "memory.usage_in_bytes", "total_inactive_file"
        else:
            used, droppable = "memory.current", "inactive_file"
        return max(0, _number(folder / used) - _field(folder / "memory.stat", droppable))

    def cpu_limit_cores(self) -> float:
        """The tightest CPU quota in cores, at most the CPUs this process may use."""
        limits = [_quota_v1(f) if self._cpu_v1 else _quota_v2(f) for f in self._cpu]
        return min((one for one in (*limits, _usable_cpus()) if one > 0), default=1.0)

    def cpu_throttled_s(self) -> float:
        """Seconds in which the quota held the group's threads back, since it exists."""
        if not self._cpu:
            return 0.0
        stat = self._cpu[0] / "cpu.stat"
        if self._cpu_v1:
            return _field(stat, "throttled_time") / 1e9
        return _field(stat, "throttled_usec") / 1e6

    def oom_kills(self) -> int:
        """How many of the group's processes the kernel has killed for memory."""
        name = "memory.oom_control" if self._memory_v1 else "memory.events"
        return _field(self._memory[0] / name, "oom_kill") if self._memory else 0

    def _machine_bytes(self) -> int:
        return 1024 * _field(self._root / "proc/meminfo", "MemTotal:")


def _groups(text: str) -> Iterator[tuple[str, str]]:
    """Controller and path of each line of ``/proc/self/cgroup``; "" is the unified hierarchy."""
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:  # noqa: PLR2004 - hierarchy id, controllers, path
            for controller in parts[1].split(","):
                yield controller, parts[2]


def _quota_v1(folder: Path) -> float:
    quota = _number(folder / "cpu.cfs_quota_us")
    period = _number(folder / "cpu.cfs_period_us")
    return quota / period if quota > 0 and period > 0 else 0.0


def _quota_v2(folder: Path) -> float:
    words: Sequence[str] = _text(folder / "cpu.max").split()
    with contextlib.suppress(ValueError, ZeroDivisionError):
        return int(words[0]) / int(words[1]) if len(words) > 1 else 0.0
    return 0.0  # "max 100000"


def _usable_cpus() -> float:
    return float(len(os.sched_getaffinity(0)))


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""


def _number(path: Path) -> int:
    with contextlib.suppress(ValueError):
        return int(_text(path))
    return 0  # missing, or "max"


def _field(path: Path, name: str) -> int:
    """The number behind a name, in files of "name number" lines."""
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return 0
