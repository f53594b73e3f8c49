"""A lack of memory under a closed loop: so many users who ask again as soon as they are told.

An open load of less than the whole capacity hides how much less small batches can do; a closed loop
asks for whatever there is. It is what a live run measures, in virtual time.
"""

from __future__ import annotations

from functools import cache
from random import Random
from unittest.mock import patch

from service.core.memory import MemoryBudget
from tests.bench.simulation_clients import User
from tests.bench.simulation_device import Device
from tests.bench.simulation_faults import (
    LOW_FROM_S,
    LOW_PART,
    Short,
    Trouble,
    TroubledStage,
    usual_units,
)
from tests.bench.simulation_story import Story, _run

USERS = 64
AGAIN_S = 0.02
"""Who is refused comes back after so long."""

LOW_S = {"cpu": 30.0, "gpu": 60.0}


class ClosedStage(TroubledStage):
    """A stage with a closed loop; texts have at most so many words."""

    def __init__(self, story: Story, trouble: Trouble, most: int) -> None:
        self._most = most
        self._chance = Random(story.seed)
        super().__init__(story, [], trouble)
        self._crowd += [self._next(0.0) for _ in range(USERS)]
        self._open = USERS

    def _next(self, at: float) -> User:
        device = self.story.device
        return User(at, min(self._most, device.draw(self._chance)), 4, device.deadline_s)

    def _arrive(self, number: int) -> None:
        for user in self._crowd[:USERS]:
            self._ask(user)

    def _end(self, user: User, since: float, outcome: str) -> None:
        if self.at < self.story.seconds:
            pause_s = 0.0 if outcome == "ok" else AGAIN_S
            again = self._next(self.at + pause_s)
            self._crowd.append(again)
            self._open += 1
            self._loop.call_later(pause_s, self._ask, again)
        super()._end(user, since, outcome)


@cache
def short_of_memory(device: Device) -> Short:
    """For a while only batches of 0.4 of the usual size fit; back is not looked at."""
    low_s = LOW_S[device.name]
    end = LOW_FROM_S + low_s
    most = LOW_PART * usual_units(device)
    story = Story(device, ((0.0, 1.0),), end)

    def fitting(_: MemoryBudget, maximum: float) -> float:
        return min(most, maximum)

    def told(trouble: Trouble) -> tuple[ClosedStage, int]:
        stage = ClosedStage(story, trouble, int(most))
        crowd = _run(stage, lift_wait_cap=False).users
        return stage, sum(u.words for u in crowd if u.ok and LOW_FROM_S <= u.ended < end)

    stage, words = told(Trouble(low=(LOW_FROM_S, end), ceiling=most))
    with patch.object(MemoryBudget, "limit", fitting):
        _, usual = told(Trouble())
    return Short(
        overflows=stage.worker.overflows / low_s * 60.0,
        tokens=words / usual,
        back_s=0.0,
        errors=sum(u.outcome in {"out_of_memory", "payload_too_large"} for u in stage._crowd),
    )
