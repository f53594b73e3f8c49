"""What a refusal costs the front, beside what the bare web server takes for any answer at all.

The worker of ``synthetic:cpu`` is held and the one place taken, so that everything is refused.
Below a few thousand a second most of the cost is the processor's: it sleeps between two requests
and finds its caches cold. So the cost is shown at two rates, and beside a server of three lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from service.bench.client import Address, Client
from service.bench.load import Span, open_loop
from service.bench.record import REFUSED, Tally
from service.bench.retries import Retries
from service.bench.schedule import Arrivals, Lengths, Segment, make_schedule
from service.bench.texts import Texts
from tests.bench.live_ladder import plain_options, run
from tests.bench.live_rows import Row, Unit, median
from tests.e2e.load import Call
from tests.e2e.server import Server

COLUMN = "packaged model"
RATE_RPS = 1400.0
"""Ten times what ``synthetic:gpu`` can do."""

HIGH_RPS = 4000.0
SECONDS = 6.0
HOLD_MS = 100_000
TRIES = 3

BARE = """
import sys, uvicorn
BODY = b"x" * 400
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 503,
                "headers": [(b"content-length", b"400")]})
    await send({"type": "http.response.body", "body": BODY})
uvicorn.run(app, port=0, http="httptools", loop="uvloop", lifespan="off", access_log=False)
"""


def refusal_rows() -> list[Row]:
    """The front's CPU for one refusal, median of :data:`TRIES`."""
    with _full() as (server, address), _bare() as (bare_pid, bare_address):
        idle = _cpu_s(server.pid, lambda: time.sleep(SECONDS))
        ours, high, bare = [], [], []
        for _ in range(TRIES):
            ours.append(_cost_us(server.pid, address, RATE_RPS, idle))
            bare.append(_cost_us(bare_pid, bare_address, RATE_RPS, (0.0, 0.0)))
            high.append(_cost_us(server.pid, address, HIGH_RPS, idle))
    every = f"{RATE_RPS:.0f} a second"
    return [
        Row(f"front CPU of one refusal, {every}", COLUMN, median(map(sum, ours)),
            Unit.MICROSECONDS, most=100.0),
        Row("of that in the kernel", COLUMN, median(kernel for _, kernel in ours),
            Unit.MICROSECONDS),
        Row(f"front CPU of one refusal, {HIGH_RPS:.0f} a second", COLUMN, median(map(sum, high)),
            Unit.MICROSECONDS),
        Row(f"a bare uvicorn application, any answer, {every}", COLUMN, median(map(sum, bare)),
            Unit.MICROSECONDS),
    ]  # fmt: skip


@contextmanager
def _full() -> Iterator[tuple[Server, Address]]:
    """A server that refuses everybody."""
    flags = (
        "--model", "synthetic:cpu", "--rehearsal", "--queue-limit", "1", "--watchdog-ms", "600000",
        "--max-deadline-ms", "600000", "--deadline-ms", str(2 * HOLD_MS),
    )  # fmt: skip
    with Server(*flags) as server:
        server.send(Call("one two three", {"X-Rehearse-Fault": f"slow={HOLD_MS}"}))
        server.wait_running()
        server.send(Call("four five six"))
        server.wait_depth(1)
        yield server, plain_options(server).address


@contextmanager
def _bare() -> Iterator[tuple[int, Address]]:
    """The web server alone."""
    with subprocess.Popen(
        [sys.executable, "-c", BARE], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            urls = (re.search(r"http://[0-9.]+:[0-9]+", line) for line in lines)
            url = next(match for match in urls if match)
            yield process.pid, Address.parse(url[0])
        finally:
            process.terminate()


def _cost_us(
    pid: int, address: Address, rps: float, idle: tuple[float, float]
) -> tuple[float, float]:
    """Microseconds of one refusal: the process's own, and the kernel's on its behalf."""
    refused: list[int] = []
    busy = _cpu_s(pid, lambda: refused.append(run(lambda: _refuse(address, rps))))
    own, kernel = (1e6 * (b - i) / refused[0] for b, i in zip(busy, idle, strict=True))
    return own, kernel


def _cpu_s(pid: int, during: Callable[[], None]) -> tuple[float, float]:
    """CPU time of a process meanwhile: its own, and the kernel's on its behalf."""
    process = psutil.Process(pid)
    before = process.cpu_times()
    during()
    after = process.cpu_times()
    return after.user - before.user, after.system - before.system


async def _refuse(address: Address, rps: float) -> int:
    calls = make_schedule([Segment(SECONDS, rps)], Arrivals.POISSON, Lengths(), None, seed=1)
    client = Client(address, {})
    try:
        phase = await open_loop(
            client, calls, Texts("", 1), span=Span(SECONDS, 0.0, 5.0, 1),
            retries=Retries(), tally=Tally(),
        )  # fmt: skip
    finally:
        client.close()
    refused = sum(one.status == REFUSED for one in phase.attempts)
    if refused != len(phase.attempts):
        raise RuntimeError("something was not refused")
    return refused
