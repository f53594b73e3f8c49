"""The targets: one row for each figure, with its bounds and where it is measured.

Tests hold every row, ``python -m tests.bench.simulation`` prints them with what was measured, and
``docs/performance.md`` shows both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.simulation_device import Device
from tests.bench.simulation_figures import mean
from tests.bench.simulation_stories import (
    CLIENTS,
    LOADS,
    Recovered,
    Unlearnt,
    after_burst,
    modulated,
    slow_phase,
    stall,
    steady,
    trips,
    wrong_start,
)

OVERLOADS = (1.5, 2.0, 5.0, 10.0)
HEAVY = (2.0, 5.0, 10.0)
WRONG = (100.0, 0.01)
WRONG_LOADS = (0.5, 0.9, 2.0)
HOURS = range(6)
"""Seeds of the breaker's hours."""

KINDS = {"cpu": tuple(CLIENTS), "gpu": ("give up", "retry at once", "obey Retry-After")}
"""Kinds of clients after a burst; the larger device has fewer, its stories are longer."""


@dataclass(frozen=True)
class Target:
    """One figure that must hold.

    Attributes:
        number: the target's; several rows may share it.
        what: the figure in words.
        least: whether the bound is a lower one.
        cpu, gpu: the bound on each device.
        form: how figure and bound are written.
        figure: measures it.
    """

    number: str
    what: str
    least: bool
    cpu: float
    gpu: float
    form: str
    figure: Callable[[Device], float]

    def bound(self, device: Device) -> float:
        """The bound on that device."""
        return self.cpu if device.name == "cpu" else self.gpu

    def holds(self, device: Device) -> bool:
        """Whether the figure keeps it."""
        figure, bound = self.figure(device), self.bound(device)
        return figure >= bound if self.least else figure <= bound

    def wanted(self, device: Device) -> str:
        """The bound as it is written."""
        return ("≥ " if self.least else "≤ ") + self.form.format(self.bound(device))

    def found(self, device: Device) -> str:
        """The figure as it is written."""
        return self.form.format(self.figure(device))


def _recovered(device: Device) -> list[Recovered]:
    return [after_burst(device, clients) for clients in KINDS[device.name]]


def _unlearnt(device: Device) -> list[Unlearnt]:
    return [wrong_start(device, error, load) for error in WRONG for load in WRONG_LOADS]


def _median_ms(device: Device) -> float:
    """Median at half the load, on a device that is not stretched."""
    return 1000 * steady(device, 0.5).p50 * device.deadline_s / device.times.stretch


RATIO, SHARE, SECONDS, NUMBER = "{:.2f}", "{:.1%}", "{:.1f} s", "{:.0f}"

TARGETS: tuple[Target, ...] = (
    Target(
        "T1", "goodput / C at 1.5x, 2x, 5x, 10x, the least of them", True, 0.90, 0.84, RATIO,
        lambda d: min(steady(d, load).goodput for load in OVERLOADS),
    ),
    Target(
        "T2", "goodput / C at 1x", True, 0.85, 0.80, RATIO,
        lambda d: steady(d, 1.0).goodput,
    ),
    Target(
        "T2", "users answered in time at 0.9x", True, 0.93, 0.89, SHARE,
        lambda d: steady(d, 0.9).success,
    ),
    Target(
        "T2", "users answered in time at 0.5x", True, 0.999, 0.999, SHARE,
        lambda d: steady(d, 0.5).success,
    ),
    Target(
        "T3", "goodput in tokens at 10x", True, 0.87, 0.82, RATIO,
        lambda d: steady(d, 10.0).tokens,
    ),
    Target(
        "T4", "wasted model time at 0.5x to 10x, the most", False, 0.02, 0.03, SHARE,
        lambda d: max(steady(d, load).wasted for load in LOADS),
    ),
    Target(
        "T5",
        "of the users not served at 10x, told in the instant in which they came",
        True,
        0.98,
        0.98,
        SHARE,
        lambda d: steady(d, 10.0).refused / (1.0 - steady(d, 10.0).success),
    ),
    Target(
        "T6", "p99 of the answers / D at 2x, 5x, 10x, the most", False, 0.95, 1.15, RATIO,
        lambda d: max(steady(d, load).p99 for load in HEAVY),
    ),
    Target(
        "T7", "told after the own deadline at any load, the latest", False, 0.0, 0.0, SECONDS,
        lambda d: round(max(steady(d, load).overtime_s for load in LOADS), 9),
    ),
    Target(
        "T8", "success of the longest tenth / of the shortest quarter, mean of 2x, 5x, 10x",
        True, 0.75, 0.75, RATIO,
        lambda d: mean(steady(d, load).long_to_short for load in HEAVY),
    ),
    Target(
        "T9", "median at 0.5x, all times unstretched", False, 36, 55, "{:.0f} ms", _median_ms
    ),
    Target(
        "T10", "recovery after 10x for 10 s on 0.7x, the slowest kind of clients", False, 2, 2,
        SECONDS,
        lambda d: max(one.seconds for one in _recovered(d)),
    ),
    Target(
        "T10", "users answered in time from 2 s after that on, the least", True, 0.99, 0.98, SHARE,
        lambda d: min(one.success for one in _recovered(d)),
    ),
    Target(
        "T11", "three times slower for a third of the time, at 2x: goodput of what it can do",
        True, 0.85, 0.62, RATIO,
        lambda d: slow_phase(d).during,
    ),
    Target(
        "T11", "wasted model time, over the whole", False, 0.05, 0.07, SHARE,
        lambda d: slow_phase(d).wasted,
    ),
    Target(
        "T11", "goodput / C afterwards", True, 0.92, 0.85, RATIO,
        lambda d: slow_phase(d).after,
    ),
    Target(
        "T12", "cost model 100 times wrong at the start, both ways, 0.5x, 0.9x, 2x: first answer",
        False, 0.1, 0.1, "{:.2f} s",
        lambda d: max(one.first_s for one in _unlearnt(d)),
    ),
    Target(
        "T12", "answers after 3 s / those of a right start, the least", True, 0.85, 0.85, RATIO,
        lambda d: min(one.normal for one in _unlearnt(d)),
    ),
    Target(
        "T12", "users who were told that no server could make it", False, 0, 0, NUMBER,
        lambda d: sum(one.misled for one in _unlearnt(d)),
    ),
    Target(
        "T13", "bursts, 0.9x in the mean: goodput / C", True, 0.54, 0.50, RATIO,
        lambda d: modulated(d).goodput,
    ),
    Target(
        "T13", "p99 of the answers / D", False, 0.9, 1.0, RATIO,
        lambda d: modulated(d).p99,
    ),
    Target(
        "T13", "wasted model time", False, 0.01, 0.01, SHARE,
        lambda d: modulated(d).wasted,
    ),
    Target(
        "T16", "breaker: openings in six hours in which a tenth of all runs fails", False, 0, 0,
        NUMBER,
        lambda _: sum(trips(hour, 0.1, 0.1) for hour in HOURS),
    ),
    Target(
        "T17", "one batch stalls for 4.5 s at 0.9x: refused at once, from D/2 on", True, 0.95, 0.95,
        SHARE,
        lambda d: stall(d).refused,
    ),
)  # fmt: skip
"""In the order of the numbers."""


def broken(number: str, device: Device) -> list[str]:
    """The rows of a target that do not hold, with what was found."""
    return [
        f"{row.what}: {row.found(device)}, wanted {row.wanted(device)}"
        for row in TARGETS
        if row.number == number and not row.holds(device)
    ]
