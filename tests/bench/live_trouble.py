"""Trouble: a burst, with clients that retry; a slow device; an estimator that is wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from service.bench.options import Options
from service.bench.record import Attempt
from service.bench.report import Capacity
from service.bench.retries import RetryKind
from service.bench.schedule import Segment
from tests.bench.live_ladder import Pace, Profile, asking, run
from tests.bench.live_rows import Row, Unit, median
from tests.bench.live_worker import SLOWER
from tests.e2e.server import Server

BASE, BURST, TWICE = 0.7, 10.0, 2.0
BEFORE_S, BURST_S, AFTER_S = 4.0, 10.0, 8.0
BURSTS = 3
"""One second of one burst is forty users on the CPU-like device: three refusals among them, which
its base load of 0.7 brings by chance every few seconds, would look like no recovery. So the seconds
of several bursts are counted together."""

ECHO_S = 7.0
"""How long three retries that obey a ``Retry-After`` of one second may take, with jitter."""

STEADY_BINS = 5
"""Seconds in a row that must be as before the burst."""

AS_BEFORE = 0.95
NORMAL = 0.85
WRONG_S = 8.0
BINS_PER_S = 2
SLOW_PHASE_S = 15.0
"""A third of the run, as in the simulation."""

SLOW_RUNS = 5
"""A slow device answers few, and their lengths vary: one run is off by 0.03 with the luck of the
draw alone, in the simulation too."""


def variant(name: str, *flags: str) -> Server:
    """A server with one thing changed (``live_server``)."""
    program = (sys.executable, "-m", "tests.bench.live_server", name)
    return Server(command=(*program, "--bind", "127.0.0.1:0", "--log-format", "json", *flags))


# ---------------------------------------------------------------- recovery


def recovery_row(profile: Profile, pace: Pace, capacity: Capacity, kind: RetryKind) -> Row:
    """Seconds after ten times the load until new users succeed as before, for five seconds.

    The same seconds of :data:`BURSTS` bursts are counted together. For clients that obey
    ``Retry-After`` they count from the last retry of the burst's users: it is a whole second at
    least, so three obedient retries make the burst longer, whatever a server does.
    """
    obedient = kind is RetryKind.RETRY_AFTER
    end_s = BEFORE_S + BURST_S * pace.shorter
    last_s = end_s + AFTER_S + (ECHO_S if obedient else 0.0)
    segments = [
        Segment(BEFORE_S, BASE * capacity.rps),
        Segment(end_s - BEFORE_S, BURST * capacity.rps),
        Segment(last_s - end_s, BASE * capacity.rps),
    ]
    with Server(*profile.flags) as server:
        options = replace(profile.options(server), retries=kind)
        users = run(lambda: _bursts(options, segments, kind))
    if obedient:
        end_s = max(user.at_s for user in users if user.user_at_s < end_s)
    what = f"recovery after 10x for 10 s on 0.7x, retries {kind}"
    value = recovery_s(users, BEFORE_S, end_s, last_s)
    return Row(what, profile.name, value, Unit.SECONDS, most=2.0)


async def _bursts(options: Options, segments: Sequence[Segment], kind: RetryKind) -> list[Attempt]:
    found: list[Attempt] = []
    for seed in range(options.seed, options.seed + BURSTS):
        label = f"burst {seed}, retries {kind}"
        found += await _users(replace(options, seed=seed), segments, label)
    return found


async def _users(options: Options, segments: Sequence[Segment], label: str) -> list[Attempt]:
    async with asking(options) as bench:
        phase = await bench.offer(label, segments, seed=options.seed)
    return [one for one in phase.attempts if one.last]


def recovery_s(users: Sequence[Attempt], begin: float, end: float, last: float) -> float | None:
    """Whole seconds from ``end`` until success is as before ``begin``; ``None`` if never."""

    def success(start: float, stop: float) -> float:
        seen = [user.in_time for user in users if start <= user.user_at_s < stop]
        return sum(seen) / len(seen) if seen else 1.0

    usual = success(1.0, begin)
    bins = [success(end + k, end + k + 1) for k in range(int(last - end))]
    for start in range(len(bins) - STEADY_BINS + 1):
        if all(share >= AS_BEFORE * usual for share in bins[start : start + STEADY_BINS]):
            return float(start)
    return None


# ---------------------------------------------------------------- a slow device


def slow_row(profile: Profile, pace: Pace, capacity: Capacity) -> Row:
    """Goodput at 2x while the device takes three times as long, by what it can do then."""
    third_s = SLOW_PHASE_S * pace.shorter
    with variant("slowable", *profile.flags) as server:
        worker = server.worker_pid
        options = profile.options(server)
        rps = TWICE * capacity.rps
        runs = [
            run(partial(_slowed, replace(options, seed=seed), rps, third_s, worker))
            for seed in range(1, 1 + (SLOW_RUNS if len(pace.seeds) > 1 else 1))
        ]
    good = median(
        sum(user.in_time for user in users if third_s <= user.user_at_s < 2 * third_s)
        for users in runs
    )
    share = SLOWER * (good or 0.0) / third_s / capacity.rps
    what = "device three times slower for a third of the run: goodput by what it can do"
    return Row(what, profile.name, share, Unit.SHARE, least=profile.targets.slow)


async def _slowed(options: Options, rps: float, third_s: float, worker: int) -> list[Attempt]:
    async def switch() -> None:
        await asyncio.sleep(third_s)
        os.kill(worker, signal.SIGUSR1)
        await asyncio.sleep(third_s)
        os.kill(worker, signal.SIGUSR2)

    switching = asyncio.create_task(switch())
    users = await _users(options, [Segment(3 * third_s, rps)], "device 3x slower in the middle")
    await switching
    return users


# ---------------------------------------------------------------- a wrong estimator


def wrong_row(profile: Profile, pace: Pace, capacity: Capacity, factor: float) -> Row:
    """Seconds of load at 2x until a fresh server with a wrong estimator does as well as later."""
    seconds = WRONG_S * max(pace.shorter, 0.75)
    segments = [Segment(seconds, TWICE * capacity.rps)]
    label = f"estimator starts {factor:g}x wrong"
    found = []
    for seed in pace.seeds:
        with variant(f"speed={factor:g}", *profile.flags) as server:
            options = replace(profile.options(server), seed=seed)
            users = run(partial(_users, options, segments, label))
        found.append(normal_after_s(users, seconds))
    what = f"normal again after an estimator {factor:g} times the truth"
    return Row(what, profile.name, median(found), Unit.SECONDS, most=3.0)


def normal_after_s(users: Sequence[Attempt], seconds: float) -> float | None:
    """When a half second first brings 85 % of what the second half of the run brings."""
    ends = Counter(int(BINS_PER_S * u.end_s) for u in users if u.in_time)
    bins = [ends[k] for k in range(int(BINS_PER_S * seconds))]
    later = bins[len(bins) // 2 :]
    usual = sum(later) / len(later)
    if not usual:
        return None
    return next((k / BINS_PER_S for k, n in enumerate(bins) if n >= NORMAL * usual), None)
