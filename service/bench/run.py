"""One benchmark, from the first look at the server to the report."""

from __future__ import annotations

import os
import platform
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

from service import NAME, __version__
from service.bench.client import Client
from service.bench.figures import knee, make_point
from service.bench.load import Asking, Span, closed_loop, open_loop
from service.bench.options import Options, Rate
from service.bench.progress import Progress
from service.bench.record import Phase
from service.bench.report import (
    FORMAT,
    Capacity,
    Limits,
    Load,
    Machine,
    Point,
    Report,
    Server,
)
from service.bench.retries import Retries
from service.bench.schedule import Call, Deadlines, Lengths, Segment, make_schedule
from service.bench.table import notes
from service.bench.target import BenchError, Facts, Target
from service.bench.texts import Texts
from service.cgroup import Cgroup

CLOSED_WARMUP_S = 2.0
"""Time in which a closed loop fills the queue and the estimator learns."""

PATIENCE_S = 2.0
"""For the last answers, beyond the longest deadline: then their connections are cut."""

DEFAULT_PAUSE_S = 0.1
MOST_WORDS = 512


class Bench:
    """A server that was looked at, and the load that it will get.

    Args:
        options: as asked for.
        client: for the load.
        target: the server's pages.
        facts: what they said.
        progress: where phases are shown.
    """

    def __init__(
        self, options: Options, client: Client, target: Target, facts: Facts, progress: Progress
    ) -> None:
        self.options = options
        self.facts = facts
        self.lengths = _lengths(options, facts)
        self.deadlines = _deadlines(options, facts)
        self._client = client
        self._target = target
        self._progress = progress
        self._texts = Texts(facts.mask, options.seed)

    async def try_one(self) -> None:
        """Ask for one short prediction.

        Raises:
            BenchError: it is not answered.
        """
        await self._target.try_one(self._texts)

    async def capacity(self) -> Capacity:
        """C, given or measured.

        Raises:
            BenchError: nothing was answered.
        """
        if self.options.capacity_rps is not None:
            return Capacity(rps=self.options.capacity_rps, words_rps=None, how="as given")
        return await self.closed()

    async def closed(self, warmup_s: float = CLOSED_WARMUP_S) -> Capacity:
        """Measure C in a closed loop.

        A server that refuses what it cannot do in time has no deep queue to drain, but a fixed
        number of clients that ask again and again keeps its queue as full as its limits allow.

        Raises:
            BenchError: nothing was answered.
        """
        options = self.options
        async with self._progress.phase("C", options.capacity_s + warmup_s) as tally:
            found = await closed_loop(
                self._client,
                self.lengths,
                self._texts,
                asking=Asking(
                    connections=options.connections,
                    seconds=options.capacity_s,
                    warmup_s=warmup_s,
                    pause_s=self.facts.wait_cap_s / 4 or DEFAULT_PAUSE_S,
                    deadline_s=self.facts.max_deadline_s or None,
                    seed=options.seed,
                ),
                tally=tally,
            )
        if not found.ok:
            [(code, count)] = found.codes.most_common(1)
            raise BenchError(f"nothing was answered: {count} requests ended with {code}")
        return Capacity(
            rps=found.ok / found.seconds,
            words_rps=found.words / found.seconds,
            how=f"closed loop of {options.connections} connections for {found.seconds:g} s",
        )

    async def point(self, rate: Rate, capacity: Capacity | None) -> Point:
        """Offer one rate and measure."""
        rps = rate.rps(capacity.rps if capacity else 0.0)
        options = self.options
        phase = await self.offer(
            rate.label,
            [Segment(options.seconds, rps)],
            warmup_s=options.warmup_s,
            seed=options.seed,
        )
        return make_point(rate.label, rps, phase, capacity)

    async def offer(
        self,
        label: str,
        segments: Sequence[Segment],
        *,
        warmup_s: float = 0.0,
        seed: int,
    ) -> Phase:
        """Offer arrivals, lengths and deadlines as the options say, over stretches of time."""
        calls = make_schedule(segments, self.options.arrivals, self.lengths, self.deadlines, seed)
        seconds = sum(segment.seconds for segment in segments)
        return await self.send(label, calls, seconds=seconds, warmup_s=warmup_s, seed=seed)

    async def send(
        self,
        label: str,
        calls: Sequence[Call],
        *,
        seconds: float,
        warmup_s: float = 0.0,
        seed: int,
    ) -> Phase:
        """Send a schedule to an idle server, and wait until it is idle again."""
        longest_s = max((call.deadline_s or self.facts.deadline_s for call in calls), default=0.0)
        before = await self._target.idle()
        async with self._progress.phase(label, seconds) as tally:
            phase = await open_loop(
                self._client,
                calls,
                self._texts,
                span=Span(seconds, warmup_s, longest_s + PATIENCE_S, seed),
                retries=Retries(self.options.retries),
                tally=tally,
            )
        return replace(phase, before=before, after=await self._target.idle())


@asynccontextmanager
async def opened(options: Options, progress: Progress) -> AsyncGenerator[Bench]:
    """Look at the server, and close what was opened in the end.

    Raises:
        BenchError: the server cannot be reached or is not ready.
    """
    headers = {"User-Agent": f"{NAME}-bench/{__version__}", "Accept": "application/json"}
    if options.api_key_file is not None:
        headers["Authorization"] = f"Bearer {_key(options)}"
    client = Client(options.address, headers)
    watching = Client(options.metrics_address, {**headers, "Accept": "*/*"})
    try:
        target = Target(client, watching)
        facts = await target.look()
        yield Bench(options, client, target, facts, progress)
    finally:
        client.close()
        watching.close()


async def run(options: Options, progress: Progress) -> Report:
    """The whole benchmark.

    Raises:
        BenchError: it cannot be run.
    """
    started = datetime.now(UTC)
    async with opened(options, progress) as bench:
        await bench.try_one()
        relative = any(rate.of_capacity for rate in options.rates)
        known = options.capacity_rps is not None
        capacity = await bench.capacity() if relative or known else None
        points = [await bench.point(rate, capacity) for rate in options.rates]
    server = _server(bench.facts)
    return Report(
        format=FORMAT,
        version=__version__,
        started=started.isoformat(timespec="seconds"),
        server=server,
        load=_load(bench),
        machine=machine(),
        capacity=capacity,
        points=points,
        knee=knee(points),
        notes=list(notes(server.limits, capacity, points)),
    )


def machine() -> Machine:
    """Where the generator runs."""
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        cpu_limit_cores=Cgroup().cpu_limit_cores(),
        python=platform.python_version(),
    )


def _key(options: Options) -> str:
    try:
        lines = options.api_key_file.read_text("ascii").split() if options.api_key_file else []
    except (OSError, ValueError):
        lines = []
    if not lines:
        raise BenchError("--api-key-file holds no key that can be read")
    return lines[0]


def _lengths(options: Options, facts: Facts) -> Lengths:
    most = options.words_max
    if most is None:
        fits = facts.max_tokens
        if facts.mask:  # words may be several tokens, and special tokens come on top
            fits = facts.max_tokens * 9 // 10
        most = max(options.words_min, min(MOST_WORDS, fits or MOST_WORDS))
    return Lengths(options.words_median, options.words_sigma, options.words_min, most)


def _deadlines(options: Options, facts: Facts) -> Deadlines | None:
    mean_s = facts.deadline_s if options.deadline_ms is None else options.deadline_ms / 1000
    return Deadlines(mean_s, options.deadline_spread) if mean_s else None


def _server(facts: Facts) -> Server:
    limits = None
    if facts.deadline_s:
        limits = Limits(
            deadline_ms=1000 * facts.deadline_s,
            wait_cap_ms=1000 * facts.wait_cap_s,
            batch_ms=1000 * facts.batch_s,
            batch_tokens=facts.batch_units,
            queue_limit=facts.queue_limit,
        )
    return Server(
        version=facts.version,
        task=facts.task,
        model=facts.model,
        device=facts.device,
        limits=limits,
    )


def _load(bench: Bench) -> Load:
    options, lengths, deadlines = bench.options, bench.lengths, bench.deadlines
    return Load(
        arrivals=options.arrivals,
        retries=options.retries,
        words_median=lengths.median,
        words_sigma=lengths.sigma,
        words_min=lengths.least,
        words_max=lengths.most,
        deadline_ms=1000 * deadlines.mean_s if deadlines else None,
        deadline_spread=options.deadline_spread,
        seconds=options.seconds,
        warmup_seconds=options.warmup_s,
        seed=options.seed,
    )
