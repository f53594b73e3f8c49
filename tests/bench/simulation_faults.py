"""Stories of faults on the simulated devices: a poison, a broken model, a lack of memory.

They are the stories of T14, T15 and T18: the real dispatcher with its isolation, breaker and memory
budget in virtual time, over a worker whose model fails as the story says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any
from unittest.mock import patch

from service.core.memory import MemoryBudget
from service.dispatcher import Dispatcher
from service.worker.wire import Fault, FaultKind, Probed, WireItem
from service.workers import Loss, Worker, WorkerEvents, WorkerState
from tests.bench.simulation_clients import User, users
from tests.bench.simulation_device import Device
from tests.bench.simulation_figures import told_at_once
from tests.bench.simulation_story import Story, _run, _Stage, capacity
from tests.bench.simulation_worker import SimulatedWorker

POISON_LETTERS = 8
"""A text of such long words raises; no other text has them."""

RELOAD_S = 0.5
"""From a loss until the worker is ready again."""

CANARY_S = 0.01

ENOUGH = 0.95
"""Of the memory budget: whole again."""

OVERFLOW = 0.3
"""A batch that runs out of memory takes so much of its time."""


@dataclass(frozen=True)
class Trouble:
    """What the model does.

    Attributes:
        broken: from when to when every batch and every canary fails.
        low: from when to when batches of more padded units than ``ceiling`` do not fit.
        ceiling: those units.
    """

    broken: tuple[float, float] = (math.inf, math.inf)
    low: tuple[float, float] = (math.inf, math.inf)
    ceiling: float = math.inf


class TroubledWorker(SimulatedWorker):
    """A worker whose model fails.

    Attributes:
        stage: where it works.
        overflows: batches that ran out of memory.
        isolated: canaries of recoveries, one for each batch that failed by itself.
        again: runs of recoveries.
        full_at: when the memory budget was first whole again after the lack.
        losses: why its process was ended.
    """

    def __init__(self, *args: Any, stage: TroubledStage, **named: Any) -> None:
        super().__init__(*args, **named)
        self.stage = stage
        self.overflows = self.isolated = self.again = 0
        self.full_at = math.inf
        self.losses: list[Loss] = []
        self._life = 0

    def run(self, batch: int, items: Sequence[WireItem]) -> None:
        self.again += self.stage.recovering
        self._look_at_budget()
        padded = len(items) * max(self._held[item.id].units for item in items)
        kind = self.stage.fails(padded, items)
        if kind is None:
            super().run(batch, items)
            return
        self.overflows += kind == "oom"
        seconds = self.stage.story.device.times.seconds(padded)
        seconds *= OVERFLOW if kind == "oom" else 1.0
        self._loop.call_later(seconds, self._say, self._life, Fault(batch, kind, seconds))

    def probe(self, probe: int) -> None:
        self.isolated += self.stage.recovering
        frame = Probed(probe, ok=not self.stage.broken)
        self._loop.call_later(CANARY_S, self._say, self._life, frame)

    def kill(self, reason: Loss) -> None:
        self.losses.append(reason)
        self._life += 1
        self.state, self.facts = WorkerState.RESTARTING, None
        self._loop.call_soon(self._lost, reason)

    def _lost(self, reason: Loss) -> None:
        self._loop.call_later(RELOAD_S, self._ready)
        self._events.lost(self, reason, evidence=False)

    def _say(self, life: int, frame: Fault | Probed) -> None:
        if life == self._life:
            self._events.received(self, frame)

    def _look_at_budget(self) -> None:
        if self.full_at == math.inf and self.stage.at >= self.stage.trouble.low[1]:
            budget = self.stage.service.pool.budget
            if budget.tokens >= ENOUGH * budget._maximum:
                self.full_at = self.stage.at


class TroubledStage(_Stage):
    """A stage with such a worker; times count from the start of the story."""

    def __init__(self, story: Story, crowd: list[User], trouble: Trouble) -> None:
        super().__init__(story, crowd)
        self.trouble = trouble
        self.moves: list[tuple[float, str]] = []
        self.lost_before_opening = 0

    def _make(self, _: int, events: WorkerEvents) -> Worker:
        self.worker = self._worker = TroubledWorker(
            events,
            self.story.device,
            seed=self.story.seed,
            fit_error=1.0,
            slowness=lambda: 1.0,
            stall_s=lambda: 0.0,
            stage=self,
        )
        moved = self._metrics.breaker_transition

        def note(to: str) -> None:
            self.lost_before_opening = self.lost_before_opening or self.worker.isolated
            self.moves.append((self.at, to))
            moved(to)

        setattr(self._metrics, "breaker_transition", note)  # noqa: B010 - to hear of every move
        return self._worker

    @property
    def service(self) -> Dispatcher:
        """The dispatcher."""
        return self._dispatcher

    @property
    def at(self) -> float:
        """Seconds since the story began."""
        return self._loop.time() - self._zero

    @property
    def recovering(self) -> bool:
        """Whether a failed batch is being worked off."""
        return self._dispatcher.pool.slots[0].recovery is not None

    @property
    def broken(self) -> bool:
        """Whether the model fails at everything now."""
        start, end = self.trouble.broken
        return start <= self.at < end

    def fails(self, padded: float, items: Sequence[WireItem]) -> FaultKind | None:
        """How a batch fails now, if it does."""
        if self.broken or any("w" * POISON_LETTERS in item.inputs for item in items):
            return "error"
        start, end = self.trouble.low
        return "oom" if start <= self.at < end and padded > self.trouble.ceiling else None


def _told(
    device: Device, load: float, seconds: float, trouble: Trouble, crowd: list[User]
) -> TroubledStage:
    stage = TroubledStage(Story(device, ((0.0, load),), seconds), crowd, trouble)
    _run(stage, lift_wait_cap=False)
    return stage


def _crowd(device: Device, load: float, seconds: float) -> list[User]:
    return users(device, ((0.0, load),), capacity(device), seconds, 1)


# ---------------------------------------------------------------- T14

POISON_LOAD, POISON_SHARE = 2.0, 0.01
POISON_S = {"cpu": 40.0, "gpu": 15.0}


@dataclass(frozen=True)
class Poisoned:
    """What came of a poison.

    Attributes:
        innocent: users with a good input who were told that it failed.
        guilty: users with a poison who were told so.
        goodput: answers, as a share of those without poison.
        runs: executions for each batch that failed, itself included.
    """

    innocent: int
    guilty: int
    goodput: float
    runs: float


@cache
def poison(device: Device) -> Poisoned:
    """Twice the load; a hundredth of the inputs raise."""
    chance, seconds = Random("poison"), POISON_S[device.name]
    plain = _crowd(device, POISON_LOAD, seconds)
    crowd = [replace(user) for user in plain]
    for user in crowd:
        if chance.random() < POISON_SHARE:
            user.letters = POISON_LETTERS
    _told(device, POISON_LOAD, seconds, Trouble(), plain)
    stage = _told(device, POISON_LOAD, seconds, Trouble(), crowd)
    wrong = [user for user in crowd if user.outcome == "model_error"]
    isolated, again = stage.worker.isolated, stage.worker.again
    return Poisoned(
        innocent=sum(user.letters != POISON_LETTERS for user in wrong),
        guilty=sum(user.letters == POISON_LETTERS for user in wrong),
        goodput=sum(user.ok for user in crowd) / sum(user.ok for user in plain),
        runs=(isolated + again) / isolated,
    )


# ---------------------------------------------------------------- T15

BROKEN_LOAD, BROKEN_FROM_S, BROKEN_S = 0.7, 5.0, 20.0


@dataclass(frozen=True)
class Broken:
    """What came of a model that was broken for a while.

    Attributes:
        batches: lost before the breaker opened.
        users: share of the users of that time who were lost in a batch, unstretched: where all
            takes four times as long a fourth as many users come, and the batches stay.
        back_s: from the end of the fault until the breaker was closed for good.
    """

    batches: int
    users: float
    back_s: float


@cache
def broken(device: Device) -> Broken:
    """0.7 times C; for 20 s every batch and every canary fails."""
    end = BROKEN_FROM_S + BROKEN_S
    crowd = _crowd(device, BROKEN_LOAD, end + 5.0)
    stage = _told(device, BROKEN_LOAD, end + 5.0, Trouble(broken=(BROKEN_FROM_S, end)), crowd)
    during = [user for user in crowd if BROKEN_FROM_S <= user.at < end]
    lost = sum(user.outcome == "circuit_open" and not told_at_once(user) for user in during)
    last, state = stage.moves[-1]
    back_s = max(0.0, last - end) if state == "closed" else math.inf
    share = lost / len(during) / device.times.stretch
    return Broken(stage.lost_before_opening, share, back_s)


# ---------------------------------------------------------------- T18

LOW_FROM_S, LOW_PART = 5.0, 0.4
LOW_LOAD = {"cpu": 1.5, "gpu": 0.9}
LOW_S = {"cpu": 60.0, "gpu": 40.0}
LOW_AFTER_S = {"cpu": 30.0, "gpu": 80.0}
"""The larger device takes longer for everything, and its stories are long."""


@dataclass(frozen=True)
class Short:
    """What came of a lack of memory.

    Attributes:
        overflows: batches a minute that did not fit.
        tokens: words answered in that time, as a share of what fitting batches would bring.
        back_s: from its end until the budget was whole again, unstretched.
        errors: users who were told of it.
    """

    overflows: float
    tokens: float
    back_s: float
    errors: int


@cache
def short_of_memory(device: Device) -> Short:
    """More than fits; for a while only batches of 0.4 of the usual size fit."""
    load, low_s = LOW_LOAD[device.name], LOW_S[device.name]
    end = LOW_FROM_S + low_s
    over = end + LOW_AFTER_S[device.name]
    most = LOW_PART * usual_units(device)
    trouble = Trouble(low=(LOW_FROM_S, end), ceiling=most)
    crowds = []
    for seconds in (over, end):
        crowd = _crowd(device, load, seconds)
        for user in crowd:
            user.words = min(user.words, int(most))
        crowds.append(crowd)
    stage = _told(device, load, over, trouble, crowds[0])

    def fitting(_: MemoryBudget, maximum: float) -> float:
        return min(most, maximum)

    with patch.object(MemoryBudget, "limit", fitting):
        _told(device, load, end, Trouble(), crowds[1])
    words, usual = (
        sum(user.words for user in crowd if user.ok and LOW_FROM_S <= user.at < end)
        for crowd in crowds
    )
    return Short(
        overflows=stage.worker.overflows / low_s * 60.0,
        tokens=words / usual,
        back_s=(stage.worker.full_at - end) / device.times.stretch,
        errors=sum(u.outcome in {"out_of_memory", "payload_too_large"} for u in crowds[0]),
    )


def usual_units(device: Device) -> float:
    """Padded units of the largest batch that the time allows."""
    fixed_s, unit_s = device.times.fit()
    return (max(device.deadline_s / 8, 2 * fixed_s) - fixed_s) / unit_s
