"""What workers are told to load, and how many of them with how many threads.

::

    workers   torch_threads   then
    -------   -------------   ---------------------------------------------------------------
    auto      auto            the first worker measures how the cores are best shared out
                              (``core/split``); the others are started as it says
    auto      given           one worker
    given     auto            the quota divided by the workers
    given     given           as given

``OMP_NUM_THREADS`` in the environment counts as a given number of threads.
"""

from __future__ import annotations

import math
import os

from msgspec.structs import replace

from service.cgroup import Cgroup
from service.settings import Settings
from service.worker.wire import Facts, Load


class Orders:
    """What every worker of one service is told to load.

    The first worker may find out how the cores are best shared out. From then on all others, and
    every worker that is started again, are told what it found, and that the model did load once.

    Args:
        load: the first order.
    """

    def __init__(self, load: Load) -> None:
        self.load = load

    def settle(self, facts: Facts) -> None:
        """A worker is ready."""
        if self.load.cores:
            self.load = replace(self.load, cores=0, torch_threads=max(1, facts.torch_threads))
        if not self.load.reload:
            self.load = replace(self.load, reload=True)


def first_load(settings: Settings, cgroup: Cgroup | None = None) -> Load:
    """The first order of these settings."""
    return Load(
        model=settings.model_path,
        task=settings.task,
        revision=settings.revision,
        device=settings.device,
        dtype=settings.dtype,
        torch_threads=torch_threads(settings, worker_count(settings), cgroup),
        cores=shared_cores(settings, cgroup),
        trust_remote_code=settings.trust_remote_code,
        rehearsal=settings.rehearsal,
    )


def torch_threads(settings: Settings, workers: int, cgroup: Cgroup | None = None) -> int:
    """Intra-op threads of each worker: the setting, ``OMP_NUM_THREADS``, or its share of the quota.

    The quota of the control group counts, not the host's cores: 192 threads on 8 granted cores
    were throttled 95 % of the time in the field.
    """
    if isinstance(settings.torch_threads, int):
        return settings.torch_threads
    named = os.environ.get("OMP_NUM_THREADS", "")
    if named.isdigit() and int(named) > 0:
        return int(named)
    cores = (cgroup or Cgroup()).cpu_limit_cores()
    return max(1, math.ceil(cores) // workers)


def worker_count(settings: Settings) -> int:
    """How many workers to start; with ``auto`` the first one finds out how many more."""
    return settings.workers if isinstance(settings.workers, int) else 1


def shared_cores(settings: Settings, cgroup: Cgroup | None = None) -> int:
    """Whole cores that the first worker may share out; 0 where the operator said how."""
    given = isinstance(settings.workers, int) or isinstance(settings.torch_threads, int)
    if given or "OMP_NUM_THREADS" in os.environ:
        return 0
    return int((cgroup or Cgroup()).cpu_limit_cores())
