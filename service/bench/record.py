"""What happened, as plain values: one attempt, one phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LATE_GRACE_S = 0.020
"""An answer of any kind is late from here on after its deadline: timers and a trip through the
loop take some milliseconds."""

OK, REFUSED = 200, 503


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request and its end.

    Attributes:
        user_at_s: when the first attempt of its user was due, from the start of the phase.
        at_s: when this one was due.
        lag_s: how late it was sent.
        seconds: from when it was due to the whole answer.
        status: of HTTP; 0 for no answer.
        code: ``ok``, the problem's code, or what the client saw.
        words: length of the input.
        deadline_s: the deadline that it named, ``None`` for none.
        last: no other attempt of this user follows.
    """

    user_at_s: float
    at_s: float
    lag_s: float
    seconds: float
    status: int
    code: str
    words: int
    deadline_s: float | None
    last: bool = True

    @property
    def in_time(self) -> bool:
        """Whether it is a good answer within the deadline."""
        return self.status == OK and (self.deadline_s is None or self.seconds <= self.deadline_s)

    @property
    def late(self) -> bool:
        """Whether an answer of any kind came after deadline and grace."""
        if self.status == 0 or self.deadline_s is None:
            return False
        return self.seconds > self.deadline_s + LATE_GRACE_S

    @property
    def end_s(self) -> float:
        """When it ended, from the start of the phase."""
        return self.at_s + self.seconds

    @property
    def user_seconds(self) -> float:
        """From when the user's first attempt was due to this answer."""
        return self.at_s - self.user_at_s + self.seconds


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of load.

    Attributes:
        attempts: all of them, in the order of their ends.
        seconds: length of the schedule.
        warmup_s: the start of it that figures leave out.
        wall_s: until the last answer.
        cpu_s: CPU time of the generator.
        before, after: the server's metrics by series; empty where they cannot be had.
    """

    attempts: list[Attempt]
    seconds: float
    warmup_s: float
    wall_s: float
    cpu_s: float
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """Counts while a phase runs, for whoever watches."""

    sent: int = 0
    ok: int = 0
    refused: int = 0
    failed: int = 0

    def count(self, status: int) -> None:
        """One more has its end."""
        if status == OK:
            self.ok += 1
        elif status == REFUSED:
            self.refused += 1
        else:
            self.failed += 1
