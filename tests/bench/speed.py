"""How near the server comes to what the machine can do, with the packaged model.

``python -m tests.bench.speed [--quick] [--paper FILE]``

==========  =========================================================================
part        what runs
==========  =========================================================================
offline     a perfect loop without a server: stock and gathered, batches of 4, 8, 16,
            one process with all threads and one process of one thread for each core
server      the default server in a closed loop of 64 connections, limits lifted, and the
            best offline loop, in turn: the machine's speed drifts
lone        one request at a time, and a bare forward of the same text, in turn
idle        the closed loop again, with 1,000 idle connections open
start       from the command to the first answer, and what front and worker hold
==========  =========================================================================

A full run takes about ten minutes and wants the machine for itself; its figures go between two
markers of ``docs/performance.md``.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

import psutil

from service.bench.command import raise_file_limit
from service.bench.report import Capacity
from tests.bench.live import write_between
from tests.bench.live_ladder import NO_LIMITS, asking, plain_options, run
from tests.bench.live_packaged import all_ready
from tests.bench.live_rows import Row, Unit, markdown
from tests.bench.speed_offline import LENGTHS, WAYS, Alone, Limit, best, limits, lone_texts
from tests.e2e.server import Server, wait_for
from tests.tools import ROOT

PROGRAM = "python -m tests.bench.speed"
PAPER = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"
COLUMN = "packaged model"

CONNECTIONS, IDLE = 64, 1000
LONE_ROUNDS = 7
PAIRS = 5
MIB = 2**20


def main(arguments: list[str]) -> int:
    """Measure everything; returns 0 if every target is met, else 1."""
    given = _parse(arguments)
    seconds = 3.0 if given.quick else 12.0
    raise_file_limit()
    started = time.monotonic()
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        sys.stderr.write(f"  {row.what}: {row.shown} {row.target}\n")

    limit = _offline(seconds, add)
    threads = _server(seconds, limit, add)
    _lone(threads, add)
    _start(add)
    shown = " ".join((PROGRAM, *arguments))
    text = (
        f"Measured with `{shown}` in {(time.monotonic() - started) / 60:.0f} minutes, lengths"
        f" lognormal {LENGTHS.least} to {LENGTHS.most} words, {seconds:g} s for each rate.\n\n"
        + markdown(rows)
    )
    sys.stdout.write(text + "\n")
    if given.paper is not None:
        write_between(given.paper, BEGIN, END, text)
    return 0 if all(row.good for row in rows) else 1


def _offline(seconds: float, add: Callable[[Row], None]) -> Limit:
    found = limits(seconds)
    for one in found:
        add(Row(one.what, COLUMN, one.rate, Unit.RATE))
    stock, gathered = (best(found, way) for way in WAYS)
    add(Row("gathered / stock", COLUMN, gathered.rate / stock.rate, Unit.TIMES))
    return gathered


def _server(seconds: float, limit: Limit, add: Callable[[Row], None]) -> int:
    with Server("--workers", "auto") as usual:
        wait_for(lambda: all_ready(usual), "all workers")
        batch_ms = round(1000 * usual.status()["limits"]["batch_s"])
    flags = (*NO_LIMITS, "--batch-ms", str(batch_ms), "--watchdog-ms", "600000")
    with Server("--workers", "auto", *flags) as server:
        wait_for(lambda: all_ready(server), "all workers")
        status = server.status()
        threads: int = status["model"]["torch_threads"]
        what = f"server, {len(status['workers'])} workers x {threads} threads, closed loop of 64"
        closed, offline = [], []
        for _ in range(PAIRS):
            offline.append(limit.again(seconds / 2))
            closed.append(_closed(server, seconds / 2))
        add(Row(what, COLUMN, median(closed), Unit.RATE))
        shares = [ours / theirs for ours, theirs in zip(closed, offline, strict=True)]
        add(Row("server / offline limit, in turn", COLUMN, median(shares), Unit.SHARE, least=0.85))
        again = []
        idle = []
        for _ in range(3):
            again.append(_closed(server, seconds / 2))
            with _idle(server):
                idle.append(_closed(server, seconds / 2))
        add(Row(f"with {IDLE} idle connections / without", COLUMN, median(idle) / median(again),
                Unit.SHARE, least=0.95))  # fmt: skip
    return threads


def _closed(server: Server, seconds: float) -> float:
    options = replace(
        plain_options(server), connections=CONNECTIONS, capacity_s=seconds,
        words_median=LENGTHS.median, words_sigma=LENGTHS.sigma, words_min=LENGTHS.least,
        words_max=LENGTHS.most,
    )  # fmt: skip

    async def measure() -> Capacity:
        async with asking(options) as bench:
            return await bench.closed()

    return run(measure).rps


@contextmanager
def _idle(server: Server) -> Iterator[None]:
    """A thousand clients that were served once and are silent now."""
    with ExitStack() as stack:
        for _ in range(IDLE):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            one.sendall(b"GET /livez HTTP/1.1\r\nHost: idle\r\n\r\n")
            one.recv(4096)
        yield


def _lone(threads: int, add: Callable[[Row], None]) -> None:
    texts = lone_texts()
    times: list[list[float]] = [[] for _ in texts]
    more: list[list[float]] = [[] for _ in texts]
    with (
        Server("--workers", "auto") as server,
        Alone("gathered", threads) as bare,
        closing(HTTPConnection("127.0.0.1", server.port)) as client,
    ):
        wait_for(lambda: all_ready(server), "all workers")
        for _ in range(LONE_ROUNDS):
            for place, text in enumerate(texts):
                started = time.perf_counter()
                client.request("POST", "/", text)
                answer = client.getresponse()
                answer.read()
                took_ms = 1000 * (time.perf_counter() - started)
                assert answer.status == HTTPStatus.OK
                times[place].append(took_ms)
                more[place].append(took_ms - bare.forward_ms(place))
    add(Row("a lone request, median", COLUMN, median(map(median, times)), Unit.MILLISECONDS))
    add(Row("the same beyond its bare forward", COLUMN, median(map(median, more)),
            Unit.MILLISECONDS, most=5.0))  # fmt: skip


def _start(add: Callable[[Row], None]) -> None:
    seconds, front, worker = [], [], []
    for _ in range(3):
        started = time.monotonic()
        with Server("--workers", "auto") as server:
            server.client.post("/", content=b"Paris is the [MASK] of France.").raise_for_status()
            seconds.append(time.monotonic() - started)
            wait_for(partial(all_ready, server), "all workers")
            process = psutil.Process(server.pid)
            front.append(process.memory_info().rss / MIB)
            worker.append(max(child.memory_info().rss for child in process.children()) / MIB)
    add(Row("start to the first answer", COLUMN, median(seconds), Unit.SECONDS, most=10.0))
    add(Row("front, resident", COLUMN, median(front), Unit.MEBIBYTES, most=120.0))
    add(Row("one worker, resident", COLUMN, median(worker), Unit.MEBIBYTES, most=700.0))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a look at everything")
    parser.add_argument("--paper", type=Path, help="the paper to write into")
    given = parser.parse_args(arguments)
    if given.paper is None and not given.quick:
        given.paper = PAPER
    return given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
