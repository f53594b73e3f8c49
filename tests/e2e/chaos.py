"""Chaos: a seeded random schedule of faults against a loaded real server, then the books.

::

    python -m tests.e2e.chaos --minutes 30 --seeds 1 2 3

runs the seeds in turn until the time is over, each with a server of its own that goes through
rounds of load and faults and is at last told to stop under load. After each round the books must
balance (``chaos_books``), and the server must be as it was before (``chaos_house``). Where they do
not, the faults, the seed and the schedules are printed; ``--play FILE`` plays such schedules (one
a line) again, whole or cut down by hand. ``--packaged`` serves the packaged model.

==============  ==================================================================================
deed            what it does
==============  ==================================================================================
``plain``       a good request: ``text``, ``json``, ``list`` (each its own connection), ``keep``
                (four in turn on one), ``pipeline`` (four at once on one)
``fault``       brings one of the faults of ``service/worker/rehearsal``
``poison``      the same text again and again, each time with the fault ``exit``
``hasty``       a short deadline
``leave``       sends its head, half its body, or all and goes, or goes while its answer is due;
                with FIN or with RST
``bad``         a prediction that is wrong in itself
``odd``         no prediction at all, or no HTTP
``huge``        a body over the limit (announced, sent, or in chunks), too many inputs, too many
                words, and a long text that just fits
``dribble``     head or body one byte at a time
``stall``       stops in the middle of the body
``slow_head``   says nothing, or stops in the middle of the head
``deaf``        asks for much and reads nothing
``burst``       more requests at once than the queue holds
``kill``        SIGKILL of a worker
``stop``        SIGSTOP of a worker, and SIGCONT after a while or never
``terminate``   SIGTERM of the server
==============  ==================================================================================
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psutil

from tests.e2e.chaos_books import Log, Request, answers_right, balance, log_clean, log_lines
from tests.e2e.chaos_clients import Clients
from tests.e2e.chaos_house import (
    PACKAGED,
    SYNTHETIC,
    Saboteur,
    growth_faults,
    left_behind,
    state_faults,
    until_right,
)
from tests.e2e.chaos_schedule import Kind, Schedule, make_schedule, probe
from tests.e2e.server import LONG_S, Server

MOST_SHOWN = 40
"""Faults that are printed."""

TURN = 1000
"""Between a seed and the one that follows it in the next turn."""

END_S = 3.0
"""Of the round in which a server is told to stop."""

PROBES_AT_ONCE = 4
PROBES = 1_000_000
"""Numbers of the requests after a round: no deed of a schedule has them."""


class Unbalanced(AssertionError):
    """The books do not balance, or the server is not what it was."""

    def __init__(self, faults: Sequence[str], schedules: Sequence[Schedule]) -> None:
        last = schedules[-1]
        shown = "".join(f"  {fault}\n" for fault in faults[:MOST_SHOWN])
        lines = "".join(f"{schedule.dumps()}\n" for schedule in schedules)
        super().__init__(
            f"seed {last.seed}, round {last.round}: {len(faults)} faults\n{shown}"
            f"played so far, as lines for --play:\n{lines}"
        )


@dataclass(slots=True)
class Told:
    """What a run was.

    Attributes:
        outcomes: how its requests ended.
        losses: why workers were lost.
        done: what was done to workers.
        rss_bytes: of the front, after each round.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    rss_bytes: list[int] = field(default_factory=list)


class Chaos:
    """One server and what is done to it.

    Args:
        server: just started.
        workers: how many it has.
        masked: whether its model wants masks.

    Attributes:
        told: what the run was.
        requests: every request so far.
        log: everything that the server printed, as of the last round.
    """

    def __init__(self, server: Server, *, workers: int = 1, masked: bool = False) -> None:
        self.told = Told()
        self.requests: list[Request] = []
        self.log = ""
        self._server = server
        self._workers = workers
        self._masked = masked
        self._faults: list[str] = []
        self._played: list[Schedule] = []
        self._probes = PROBES
        self._front = psutil.Process(server.pid)
        assert server.get("/readyz").status_code == 200
        self._fds = self._front.num_fds()

    def play(self, schedule: Schedule) -> None:
        """Play a round.

        Raises:
            Unbalanced: something is wrong afterwards.
        """
        self._played.append(schedule)
        clients = Clients(self._server.port, schedule, masked=self._masked)
        saboteur = Saboteur(self._server)
        asyncio.run(_play(schedule, clients, saboteur))
        self._keep(clients)
        self.told.done += saboteur.done
        outcomes = None
        if schedule.kind is Kind.DRAIN:
            self._ended()
        else:
            self._settle(schedule)
            self.told.rss_bytes.append(self._front.memory_info().rss)
            outcomes = self._server.outcomes()
        self.log = self._server.text
        log = Log.read(log_lines(self.log))
        self.told.outcomes = log.totals
        self.told.losses = Counter(line["reason"] for line in self._server.events("worker.lost"))
        faults = [
            *self._faults,
            *(fault for request in self.requests for fault in answers_right(request)),
            *balance(self.requests, log, outcomes),
            *log_clean(self.log),
            *growth_faults(self.told.rss_bytes),
        ]
        if faults:
            raise Unbalanced(faults, self._played)

    def _keep(self, clients: Clients) -> None:
        self.requests += clients.requests
        self._faults += clients.faults

    def _settle(self, schedule: Schedule) -> None:
        """Wait until requests are answered and everything is as it was before."""
        clients = Clients(self._server.port, schedule, masked=self._masked)

        def not_served() -> list[str]:
            """As many at once as reach every worker, also one that stands still and was idle."""
            before = len(clients.requests)
            asyncio.run(_ask(clients, range(self._probes, self._probes + PROBES_AT_ONCE)))
            self._probes += PROBES_AT_ONCE
            codes = {request.code for request in clients.requests[before:]}
            return [] if codes == {"ok"} else [f"the next requests end as {codes}"]

        def not_told() -> list[str]:
            """Refusals are told as a count when their second is over."""
            counted, logged = self._server.outcomes(), Log.read(self._server.lines).totals
            return [] if Counter(counted) == logged else ["metrics and log do not agree"]

        def not_right() -> list[str]:
            state = not_served() or state_faults(self._server, self._workers, self._fds)
            return state or not_told()

        self._faults += until_right(not_right)
        self._keep(clients)

    def _ended(self) -> None:
        code = self._server.wait(LONG_S)
        if code != 0:
            self._faults.append(f"the exit code is {code}")
        self._faults += until_right(lambda: left_behind(self._server))


async def _ask(clients: Clients, numbers: Iterable[int]) -> None:
    await asyncio.gather(*(clients.act(probe(number)) for number in numbers))


async def _play(schedule: Schedule, clients: Clients, saboteur: Saboteur) -> None:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    async with asyncio.TaskGroup() as group:
        for deed in schedule.deeds:
            await asyncio.sleep(begin + deed.at_s - loop.time())
            actor = clients if clients.knows(deed.what) else saboteur
            group.create_task(actor.act(deed))


def run(schedules: Sequence[Schedule], *, packaged: bool = False) -> Chaos:
    """Play rounds on one server.

    Raises:
        Unbalanced: after one of them something is wrong.
    """
    flags = PACKAGED if packaged else SYNTHETIC
    workers = schedules[0].workers
    with Server(*flags, "--workers", str(workers)) as server:
        chaos = Chaos(server, workers=workers, masked=packaged)
        for schedule in schedules:
            chaos.play(schedule)
        return chaos


def rounds(
    seed: int,
    seconds: Sequence[float],
    *,
    rate: float,
    workers: int = 1,
    kind: Kind = Kind.FULL,
    shares: int = 1,
) -> list[Schedule]:
    """The rounds of a seed, each so long; in the last one the server is told to stop."""
    kinds = [*[kind] * (len(seconds) - 1), Kind.DRAIN]
    return [
        make_schedule(seed, n, one, seconds=length, rate=rate, workers=workers, shares=shares)
        for n, (one, length) in enumerate(zip(kinds, seconds, strict=True))
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code, 1 if anything was wrong."""
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.chaos", description=summary)
    parser.add_argument("--minutes", type=float, default=30.0, help="begin no server after that")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=4, help="of each server, beside its end")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each round")
    parser.add_argument("--rate", type=float, default=40.0, help="deeds a second")
    parser.add_argument("--packaged", action="store_true", help="the packaged model")
    parser.add_argument("--play", type=Path, help="schedules, one a line")
    given = parser.parse_args(arguments)
    end = time.monotonic() + 60 * given.minutes
    seconds = [*[given.seconds] * given.rounds, END_S]
    for seed in seeds(given.seeds):
        kind, workers = (Kind.GENTLE, 1) if given.packaged else (Kind.FULL, 1 + seed % 2)
        plan = rounds(seed, seconds, rate=given.rate, workers=workers, kind=kind)
        if given.play is not None:
            plan = [Schedule.loads(line) for line in given.play.read_text().splitlines()]
        try:
            told = run(plan, packaged=given.packaged).told
        except Unbalanced as unbalanced:
            sys.stdout.write(f"{unbalanced}\n")
            return 1
        sys.stdout.write(f"seed {plan[0].seed}: {told}\n")
        sys.stdout.flush()
        if time.monotonic() > end or given.play is not None:
            break
    return 0


def seeds(named: Sequence[int]) -> Iterator[int]:
    """The named seeds, and then, while there is time, others made from them."""
    for turn in count():
        for seed in named:
            yield seed + TURN * turn


if __name__ == "__main__":
    sys.exit(main())
