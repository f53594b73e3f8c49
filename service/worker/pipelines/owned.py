"""What every pipeline built round a stock one has: its facts, its self-test, its device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import torch

from service.tasks import Task
from service.worker.interface import Answer, DeviceBytes, Foreign, PreparedInput
from service.worker.pipelines.sharing import share_cores
from service.worker.wire import Facts, Load


class Owned:
    """Base of the pipelines.

    Args:
        load: as it came in LOAD.
        task: its entry.
        pipe: the stock pipeline, on its device.

    Attributes:
        batchable: whether items may share a forward.
        cost_unit_s: seconds of one unit, once it was fitted.
        step_units: of one generated token.
    """

    batchable = False
    cost_unit_s = 0.0
    step_units = 0.0

    def __init__(self, load: Load, task: Task, pipe: Foreign) -> None:
        self.pipe = pipe
        self.task = task
        self._load = load
        self._canary: PreparedInput | None = None
        self._facts: Facts | None = None

    @property
    def facts(self) -> Facts:
        """What the warm-up found.

        Raises:
            RuntimeError: asked before the warm-up.
        """
        if self._facts is None:
            raise RuntimeError("not warmed up")
        return self._facts

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """As in the protocol."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """Find out what has to be known before the model serves, and note it."""
        raise NotImplementedError

    def run(self, items: Sequence[PreparedInput]) -> list[Any]:
        """As in the protocol."""
        raise NotImplementedError

    def measure_step(self) -> float:
        """Units of one generated token; called once the cost is fitted."""
        return 0.0

    def shared_cores(self, run: Callable[[int, int], object], typical: int) -> int:
        """How many workers the cores are best shared among; their threads are set.

        Args:
            run: runs one batch of (items, units of each).
            typical: units of a typical input.
        """
        cores = self._load.cores
        if cores <= 1 or self.pipe.device.type != "cpu":
            return 1
        return share_cores(cores, run, typical=typical, batchable=self.batchable).workers

    def canary(self) -> Answer:
        """The self-test's answer; its input was prepared once, the model thread must not do it.

        Raises:
            RuntimeError: asked before the warm-up.
        """
        if self._canary is None:
            raise RuntimeError("not warmed up")
        return self.run([self._canary])[0]

    def release(self) -> None:
        """Empty the device's cache; a device that is lost has none."""
        if self.pipe.device.type == "cuda":
            try:
                torch.cuda.empty_cache()
            except RuntimeError:
                return

    def device_works(self) -> bool:
        """Whether one small sum comes back right."""
        if self.pipe.device.type == "cpu":
            return True
        try:
            return bool(torch.ones(2, device=self.pipe.device).sum().item() == 2)  # noqa: PLR2004
        except RuntimeError:
            return False

    def device_bytes(self) -> DeviceBytes:
        """As the caching allocator counts them."""
        device = self.pipe.device
        if device.type != "cuda":
            return DeviceBytes()
        return DeviceBytes(
            allocated=torch.cuda.memory_allocated(device),
            reserved=torch.cuda.memory_reserved(device),
            total=torch.cuda.get_device_properties(device).total_memory,
        )

    def note(self, **found: Any) -> None:  # noqa: ANN401 - fields of Facts
        """Keep the facts: those found, and those that stand in the model."""
        known = {
            "task": self.task.name,
            "model": PurePath(self._load.model).name,
            "device": str(self.pipe.device),
            "dtype": str(self.pipe.model.dtype).removeprefix("torch."),
            "mask_token": "",
            "vocab_size": 0,
            "load_s": 0.0,
            "torch_threads": torch.get_num_threads(),
        }
        self._facts = Facts(**{**known, **found})
