"""A pipeline for the runner's tests: does at each run what the test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from service.worker.interface import DeviceBytes, PreparedInput, Unsuitable
from service.worker.wire import Facts, Load
from tests.worker.stub_worker import FACTS

Behaviour = Callable[[Sequence[PreparedInput]], Any]


def right(items: Sequence[PreparedInput]) -> Any:
    """One answer for each item, the text itself."""
    return [item.payload for item in items]


class StubPipeline:
    """Implements the protocol without a model.

    Attributes:
        behaviour: what ``run`` does.
        released: how often the cache was emptied.
        threads: names of the threads that called each method.
        alive: what the device says when it is tried.
    """

    def __init__(self, behaviour: Behaviour = right) -> None:
        self.behaviour = behaviour
        self.canary_behaviour: Callable[[], Any] = lambda: {"score": 1.0}
        self.released = 0
        self.prepared: list[str] = []
        self.threads: dict[str, set[int]] = {"prepare": set(), "model": set()}
        self.alive = True

    def load(self, load: Load) -> StubPipeline:
        """Stands for loading."""
        del load
        self.threads["model"].add(threading.get_ident())
        return self

    @property
    def facts(self) -> Facts:
        """The stub's."""
        return Facts(**FACTS)

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """Count words; some texts misbehave."""
        self.threads["prepare"].add(threading.get_ident())
        self.prepared.append(inputs)
        if inputs == "unfit":
            raise Unsuitable("send something else", limit=7, pointer="/parameters/top_k")
        if inputs == "prepare exits":
            raise SystemExit(inputs)
        if inputs == "prepare fails":
            raise ValueError(inputs)
        return PreparedInput(len(inputs.split()), 100, inputs)

    def run(self, items: Sequence[PreparedInput]) -> Any:
        """As the test wants."""
        self.threads["model"].add(threading.get_ident())
        return self.behaviour(items)

    def canary(self) -> Any:
        """As the test wants."""
        self.threads["model"].add(threading.get_ident())
        return self.canary_behaviour()

    def release(self) -> None:
        """Count."""
        self.released += 1

    def device_works(self) -> bool:
        """As the test wants."""
        return self.alive

    def device_bytes(self) -> DeviceBytes:
        """Recognisable figures."""
        return DeviceBytes(1, 2, 3)
