"""The simulation: does the policy keep its promises under ten times the load?

``python -m tests.bench.simulation`` prints the ladder of loads and the targets for both devices,
and with ``--write`` puts them into ``docs/performance.md``. The tests of this folder hold the
targets in every run, with fixed seeds, in virtual time.

What is simulated, and what is not
    The real ``Dispatcher`` runs in the virtual-time loop of ``tests/virtual.py``: gate, admission,
    tickets and their timers, the queue, the pool with batching, cost model and metrics, the limits
    as they are derived from settings and facts. In front of it stand users that come and go as
    :mod:`tests.bench.simulation_clients` says, behind it a worker that is the synthetic pipeline
    itself, sleeping in virtual time. HTTP, wire, processes and the time that the front's own code
    takes are left out: they are what a live run measures.

Why the whole dispatcher and not only the core
    A loop of our own round the objects of ``core`` would have to repeat how the dispatcher uses
    them, and would not notice if that changes. It would be faster, but this is fast enough: 60 us
    of CPU for a refusal and 300 us for an answer on a busy core, so that a minute at ten times C
    costs two seconds on ``synthetic:cpu`` and six on ``synthetic:gpu``, and all targets together
    take about a minute.

Words
    C, the capacity: requests a second of the same batching with 4000 requests waiting and nobody in
    a hurry. D, the default deadline in force; a user's own is uniform over 0.5 to 1.5 D. Goodput:
    answers inside their users' own deadlines. Wasted: model time for users who were gone.

The targets, T1 to T17, and their bounds stand in :mod:`tests.bench.simulation_targets` and, with
what was found, in ``docs/performance.md``. T14, T15 and T18 on are figures of a live run, and so
is how long a refusal takes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.simulation_device import CPU, GPU, Device
from tests.bench.simulation_stories import LOADS, steady
from tests.bench.simulation_story import capacity
from tests.bench.simulation_targets import TARGETS
from tests.tools import ROOT

LADDER = (
    "load", "goodput / C", "in tokens", "users served", "refused at once", "wasted", "p50 / D",
    "p99 / D", "longest / shortest", "items in a batch",
)  # fmt: skip
PAPER = ROOT / "docs" / "performance.md"
TARGET = ("target", "figure", CPU.model, "simulated", GPU.model, "simulated")


def row(cells: tuple[str, ...]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |"


def head(cells: tuple[str, ...]) -> str:
    """The first two lines of a table."""
    return row(cells) + "\n" + "|---" * len(cells) + "|"


def step(device: Device, load: float) -> str:
    """A line of the ladder."""
    found = steady(device, load)
    return row(
        (
            f"{load:g}x",
            f"{found.goodput:.2f}",
            f"{found.tokens:.2f}",
            f"{found.success:.1%}",
            f"{found.refused:.1%}",
            f"{found.wasted:.1%}",
            f"{found.p50:.2f}",
            f"{found.p99:.2f}",
            f"{found.long_to_short:.2f}",
            f"{found.batch_items:.1f}",
        )
    )


def ladder(device: Device) -> str:
    """The ladder of a device."""
    about = f"C = {capacity(device):.1f} requests/s, D = {1000 * device.deadline_s:.0f} ms"
    lines = [f"`{device.model}`, {about}:", "", head(LADDER)]
    return "\n".join(lines + [step(device, load) for load in LOADS])


def targets() -> str:
    """Every target with its bounds and what was found."""
    lines = [head(TARGET)]
    for target in TARGETS:
        cells = [text for d in (CPU, GPU) for text in (target.wanted(d), target.found(d))]
        lines.append(row((target.number, target.what, *cells)))
    return "\n".join(lines)


def write(paper: Path, part: str, text: str) -> None:
    """Put a text between the markers of a part of the paper."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    before, begins, rest = paper.read_text().partition(begin)
    _, ends, after = rest.partition(end)
    if not (begins and ends):
        raise ValueError(f"{paper.name} has no lines {begin} and {end}")
    paper.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def main(arguments: list[str]) -> None:
    """Print the tables; with ``--write`` put them into the paper too."""
    parts = {
        "simulated ladder": lambda: "\n\n".join(ladder(device) for device in (CPU, GPU)),
        "simulated targets": targets,
    }
    for part, tell in parts.items():
        text = tell()
        sys.stdout.write(f"\n{text}\n")
        sys.stdout.flush()
        if arguments == ["--write"]:
            write(PAPER, part, text)


if __name__ == "__main__":
    main(sys.argv[1:])
