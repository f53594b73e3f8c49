"""Faults live: what a poison, a broken model, a stall and a lack of memory cost real servers.

``python -m tests.bench.live_faults [--quick] [--only cpu,gpu,packaged] [--targets T14,T15,T17,T18]
[--paper FILE]``

======  ========================================================================================
target  what happens
======  ========================================================================================
T14     1 % of the inputs raise wherever they run, in a closed loop that saturates the worker
T15     at 0.7 C every batch and every canary fails for 20 s
T17     at 0.9 C the worker process stands still for 4.5 s
T18     a closed loop, and for 60 s batches over 0.4 of the usual size run out of memory; where the
        device is stretched, so is this
======  ========================================================================================

C is measured first, with the same closed loop. The model is the product's, with its faults
switched on by files (``tests/e2e/faulty_worker``). What T18 is compared with is the same server,
told before its start how much fits. ``--quick`` shortens every phase; its figures mean little.
Lengths are those of the other benchmarks, cut to what fits the lower memory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic, time

from tests.bench.live import write_between
from tests.bench.live_faults_load import (
    QUICK,
    SUBJECTS,
    Asked,
    Make,
    Pace,
    Subject,
    closed,
    meanwhile,
    poisson,
)
from tests.bench.live_rows import Row, Unit, markdown
from tests.e2e.faulty import broken, ceiling, faulty, know
from tests.e2e.load import Call
from tests.e2e.server import Server
from tests.tools import ROOT

PROGRAM = "python -m tests.bench.live_faults"
PAPER = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
TARGETS = ("T14", "T15", "T17", "T18")
POISONED = 0.01
BROKEN_LOAD, STALL_LOAD = 0.7, 0.9
STALL_S, FITS = 4.5, 0.4
AT_ONCE_S = 0.05
GRACE_S = 0.02
STEADY_S, BACK_S = 5.0, 60.0
ENOUGH_BUDGET = 0.95


@contextmanager
def serving(subject: Subject, most: int | None = None) -> Iterator[tuple[Server, Path]]:
    """The subject's server, which rehearses, and the folder of its faults.

    With ``most`` it makes no batch of more padded units, from the first one on.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if most is not None:
            know(folder, most)
        more = ("--rehearsal", "--restart-limit", "100")
        with Server(command=faulty(folder, *more, *subject.flags)) as server:
            yield server, folder


def measure(subject: Subject, pace: Pace, targets: Sequence[str]) -> Iterator[Row]:
    """The figures of one subject."""
    if not {"T14", "T15", "T17"}.isdisjoint(targets):
        yield from loaded(subject, pace, targets)
    if "T18" in targets:
        yield from memory(subject, pace)


def loaded(subject: Subject, pace: Pace, targets: Sequence[str]) -> Iterator[Row]:
    """What is measured against the capacity."""
    with serving(subject) as (server, folder):
        deadline_s = server.status()["limits"]["deadline_s"]
        plain = Asked()
        make = partial(subject.call, most=10_000)
        asyncio.run(closed(server, make, pace.closed, plain))
        rate = sum(answer.status == 200 for _, _, answer in plain.all) / pace.closed
        yield Row("C, closed loop of 64", subject.name, rate, Unit.RATE)
        if "T14" in targets:
            yield from poison(subject, server, pace, plain)
        if "T15" in targets:
            yield from breaking(subject, server, folder, pace, rate)
        if "T17" in targets:
            yield from stall(subject, server, rate, deadline_s)


def poison(subject: Subject, server: Server, pace: Pace, plain: Asked) -> Iterator[Row]:
    """T14."""
    asked, seen = Asked(), len(server.lines)

    def make(chance: Random) -> Call:
        bad = {"X_Rehearse_Fault": "raise"} if chance.random() < POISONED else {}
        return subject.call(chance, 10_000, **bad)

    asyncio.run(closed(server, make, pace.closed, asked))
    marked = asked.codes()["model_error"]
    innocent = sum(
        answer.code not in {"ok", "model_error", "overloaded", "deadline_exceeded", "queue_full"}
        for _, _, answer in asked.all
    )
    isolations = len({line["id"] for line in server.lines[seen:] if line["event"] == "model.error"})
    share = (
        sum(a.status == 200 for _, _, a in asked.all)
        / max(1, sum(a.status == 200 for _, _, a in plain.all))
    )  # fmt: skip
    yield Row("T14 poison 1 %: innocent failures", subject.name, innocent, Unit.NUMBER, most=0)
    yield Row("T14 poisoned inputs that were told so", subject.name, marked, Unit.NUMBER)
    yield Row("T14 of them found by the isolation", subject.name, isolations, Unit.NUMBER)
    yield Row("T14 answers / those without poison", subject.name, share, Unit.SHARE,
              least=subject.poisoned)  # fmt: skip


def breaking(
    subject: Subject, server: Server, folder: Path, pace: Pace, rate: float
) -> Iterator[Row]:
    """T15."""
    asked, seen = Asked(), len(server.lines)
    fault = broken(folder)
    times: list[tuple[float, float]] = []

    def start() -> None:
        times.append((monotonic(), time()))
        fault.__enter__()

    def stop() -> None:
        times.append((monotonic(), time()))
        fault.__exit__(None, None, None)

    load = poisson(server, partial(subject.call, most=10_000), BROKEN_LOAD * rate,
                   STEADY_S + pace.broken + 2 * STEADY_S, asked)  # fmt: skip
    asyncio.run(meanwhile(load, (STEADY_S, start), (pace.broken, stop)))
    lines = server.lines[seen:]
    names = [line["event"] for line in lines]
    opened = names.index("breaker.opened") if "breaker.opened" in names else len(names)
    (began, _), (ended, ended_at) = times
    victims = sum(line["items"] for line in lines if line["event"] == "batch.failed")
    users = asked.between(began, ended)
    back = [_at(line) - ended_at for line in lines if line["event"] == "breaker.closed"]
    after = asked.between(ended + 2.0, ended + 2.0 + STEADY_S)
    yield Row("T15 broken for 20 s: batches lost before it opens", subject.name,
              names[:opened].count("batch.failed"), Unit.NUMBER, most=5)  # fmt: skip
    yield Row("T15 users lost in a batch", subject.name, victims / len(users), Unit.PERCENT,
              most=0.02)  # fmt: skip
    yield Row("T15 closed after the fault", subject.name, max(back, default=None), Unit.SECONDS,
              most=2.0)  # fmt: skip
    yield Row("T15 answered, from two seconds after it", subject.name,
              sum(one.status == 200 for one in after) / len(after), Unit.PERCENT)  # fmt: skip
    yield Row("T15 slowest refusal while open", subject.name,
              1000 * max(one.seconds for one in users if one.code == "circuit_open"),
              Unit.MILLISECONDS)  # fmt: skip


def stall(subject: Subject, server: Server, rate: float, deadline_s: float) -> Iterator[Row]:
    """T17."""
    asked = Asked()
    times: list[float] = []

    def signalled(number: signal.Signals) -> None:
        os.kill(worker, number)
        times.append(monotonic())

    worker = server.worker_pid
    load = poisson(server, partial(subject.call, most=10_000), STALL_LOAD * rate,
                   2 * STEADY_S + STALL_S, asked)  # fmt: skip
    asyncio.run(
        meanwhile(
            load,
            (STEADY_S, partial(signalled, signal.SIGSTOP)),
            (STALL_S, partial(signalled, signal.SIGCONT)),
        )
    )
    began, ended = times
    during = asked.between(began + deadline_s / 2, ended)
    refused = [one for one in during if one.status == 503 and one.seconds < AT_ONCE_S]
    told = [one.seconds for one in asked.between(began, ended) if one.code == "deadline_exceeded"]
    late = sum(seconds > deadline_s + GRACE_S for seconds in told)
    yield Row("T17 stalled for 4.5 s: refused at once, from D/2 on", subject.name,
              len(refused) / max(1, len(during)), Unit.PERCENT, least=0.95)  # fmt: skip
    yield Row("T17 told 504 in that time", subject.name, len(told), Unit.NUMBER)
    yield Row("T17 of them later than deadline + 20 ms", subject.name, late, Unit.NUMBER, most=0)


def memory(subject: Subject, pace: Pace) -> Iterator[Row]:
    """T18: against a server that makes no batch which does not fit."""
    with serving(subject) as (server, folder):
        asyncio.run(closed(server, partial(subject.call, most=10_000), STEADY_S, Asked()))
        most = int(FITS * _usual_units(server))
        make = partial(subject.call, most=most - 2)
        asked = Asked()
        with ceiling(folder, most):
            start = monotonic()
            asyncio.run(closed(server, make, pace.low * subject.stretch, asked))
            end = monotonic()
            ooms = server.metric("seawall_oom_total", recovery="split")
        back_s = asyncio.run(_until_full(server, make, subject.stretch))
    with serving(subject, most) as (server, _):
        asyncio.run(closed(server, make, STEADY_S, Asked()))
        right, from_ = Asked(), monotonic()
        asyncio.run(closed(server, make, max(STEADY_S, pace.low * subject.stretch / 3), right))
        usual = right.words_per_s(from_, monotonic())
    errors = asked.codes()["out_of_memory"] + asked.codes()["payload_too_large"]
    yield Row("T18 memory of 0.4 for 60 s: overflows a minute", subject.name,
              ooms / (end - start) * 60, Unit.NUMBER, most=30)  # fmt: skip
    yield Row("T18 words answered / those of batches that fit", subject.name,
              asked.words_per_s(start, end) / usual, Unit.SHARE, least=subject.fits)  # fmt: skip
    yield Row("T18 budget back at 95 %", subject.name, back_s, Unit.SECONDS, most=30.0)
    yield Row("T18 errors for want of memory", subject.name, errors, Unit.NUMBER, most=0)


def _usual_units(server: Server) -> float:
    """The padded units of a batch that the time alone allows now."""
    status = server.status()
    cost, batch_s = status["estimator"], status["limits"]["batch_s"]
    return float((batch_s / cost["speed"] - cost["fixed_s"]) / cost["unit_s"])


async def _until_full(server: Server, make: Make, stretch: float) -> float | None:
    """Seconds of load, unstretched, until the budget is back; ``None``: more than a minute."""
    start = monotonic()
    while (monotonic() - start) / stretch < BACK_S:
        await closed(server, make, 1.0, Asked())
        if server.metric("seawall_memory_budget_tokens") >= ENOUGH_BUDGET * _usual_units(server):
            return (monotonic() - start) / stretch
    return None


def _at(line: dict[str, str]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()


def main(arguments: list[str]) -> int:
    """Run; returns 0 if every target is met, else 1."""
    names = [subject.name for subject in SUBJECTS]
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a look at everything")
    parser.add_argument("--only", type=lambda text: text.split(","), default=names,
                        help=f"some of {','.join(names)}")  # fmt: skip
    parser.add_argument("--targets", type=lambda text: text.split(","), default=list(TARGETS),
                        help=f"some of {','.join(TARGETS)}")  # fmt: skip
    parser.add_argument("--paper", type=Path, help="the paper to write into")
    given = parser.parse_args(arguments)
    whole = given.only == names and given.targets == list(TARGETS)
    if given.paper is None and not given.quick and whole:
        given.paper = PAPER
    rows, started = [], monotonic()
    for subject in SUBJECTS:
        if subject.name in given.only:
            for row in measure(subject, QUICK if given.quick else Pace(), given.targets):
                rows.append(row)
                sys.stderr.write(f"  {row.column}: {row.what}: {row.shown} ({row.target})\n")
    shown = " ".join((PROGRAM, *arguments))
    text = f"Measured with `{shown}` in {(monotonic() - started) / 60:.0f} minutes.\n\n"
    text += markdown(rows)
    sys.stdout.write(text + "\n")
    if given.paper is not None:
        write_between(given.paper, BEGIN, END, text)
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
