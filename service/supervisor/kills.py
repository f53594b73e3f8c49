"""The kernel's memory kills, each claimed once.

The control group counts them and does not say whom. Several workers, one counter: a kill belongs to
the worker whose SIGKILL is seen first, and to nobody else, or the next stray SIGKILL would pass for
one. What nobody claimed (another process of the group) is forgotten when a worker has come up.
"""

from __future__ import annotations

from service.cgroup import Cgroup


class KernelKills:
    """Shared by all workers of one service.

    Args:
        cgroup: whose counter is read.
    """

    def __init__(self, cgroup: Cgroup | None = None) -> None:
        self._cgroup = cgroup or Cgroup()
        self._told = self._cgroup.oom_kills()

    def claim(self) -> bool:
        """Whether there is a kill that nobody claimed; it is claimed now."""
        if self._cgroup.oom_kills() <= self._told:
            return False
        self._told += 1
        return True

    def forget(self) -> None:
        """Whatever nobody claimed until now was nobody's of ours."""
        self._told = self._cgroup.oom_kills()
