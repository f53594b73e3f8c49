"""How cost grows: with the length of a text, with the items of a list, with connections.

``python -m tests.bench.growth [--quick] [--paper FILE]``

===========  =======================================================================
table        what is measured, with the packaged model
===========  =======================================================================
length       one request at a time: median time for texts of 5 to 200 tokens
items        one request at a time: median time for lists of 1 to 32 texts of 26 tokens
connections  a closed loop of 1 to 1,000: answers a second, and what each answer costs
             the front in CPU
===========  =======================================================================

The limits are lifted, with the usual batch time: what is measured is cost, not what is let in.

Sizes are asked in turn, not one after the other, so that a slower minute of the machine meets all
of them. What is compared is in the same run: each table ends in ratios.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import psutil

from service.bench.client import Address, Client
from service.bench.command import raise_file_limit
from service.bench.run import machine
from service.bench.texts import Texts
from tests.bench.live import write_between
from tests.bench.live_ladder import NO_LIMITS, asking, plain_options, run
from tests.bench.live_packaged import all_ready
from tests.bench.live_rows import Unit, table
from tests.bench.speed_offline import LENGTHS
from tests.e2e.server import Server, wait_for
from tests.tools import ROOT

PROGRAM = "python -m tests.bench.growth"
PAPER = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- growth: begin -->", "<!-- growth: end -->"

SPECIAL_TOKENS = 2
LENGTHS_TOKENS = (5, 10, 25, 50, 100, 200)
ITEMS, ITEM_WORDS = (1, 2, 4, 8, 16, 32), 24
CONNECTIONS = (1, 10, 100, 1000)
DEEP_WARMUP_S = 8.0
"""Until everybody of a thousand who asked first has his answer."""

Request = Callable[[Client, Texts, int], bytes]
"""The bytes of a request of a size."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one size took: milliseconds."""

    size: int
    ms: float


@dataclass(frozen=True, slots=True)
class Crowd:
    """What a number of connections got: answers a second, front CPU for each."""

    connections: int
    rps: float
    front_us: float


def main(arguments: list[str]) -> int:
    """Measure and print; there are no targets."""
    given = _parse(arguments)
    rounds, seconds = (7, 4.0) if given.quick else (41, 15.0)
    raise_file_limit()
    started = time.monotonic()
    with Server("--workers", "auto") as usual:
        wait_for(lambda: all_ready(usual), "all workers")
        batch_ms = round(1000 * usual.status()["limits"]["batch_s"])
    flags = (*NO_LIMITS, "--batch-ms", str(batch_ms), "--watchdog-ms", "600000")
    with Server("--workers", "auto", *flags) as lifted:
        wait_for(lambda: all_ready(lifted), "all workers")
        lengths = run(lambda: timed(lifted.port, LENGTHS_TOKENS, _text, rounds))
        items = run(lambda: timed(lifted.port, ITEMS, _list, rounds))
        crowds = [_crowd(lifted, connections, seconds) for connections in CONNECTIONS]
    how = (
        f"Measured with `{' '.join((PROGRAM, *arguments))}` in"
        f" {(time.monotonic() - started) / 60:.0f} minutes on {machine().cpus} CPUs; medians of"
        f" {rounds} requests for each size, {seconds:g} s for each number of connections."
    )
    parts = (
        how,
        cost_table("tokens of the text", lengths),
        cost_table("items of the list", items),
        crowd_table(crowds),
    )
    text = "\n\n".join(parts)
    sys.stdout.write(text + "\n")
    if given.paper is not None:
        write_between(given.paper, BEGIN, END, text)
    return 0


# ---------------------------------------------------------------- one at a time


async def timed(port: int, sizes: Sequence[int], request: Request, rounds: int) -> list[Cost]:
    """The median time of a lone request of each size."""
    client = Client(Address(host="127.0.0.1", port=port), {"Accept": "application/json"})
    texts = Texts("[MASK]", 1)
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for number in range(rounds + 1):
        for size in sizes:
            data = request(client, texts, size)
            started = time.perf_counter()
            answer = await client.send(data)
            passed = time.perf_counter() - started
            if not answer.ok:
                raise RuntimeError(f"a request of size {size} ended with {answer.code}")
            if number:  # the first round warms up
                times[size].append(1000 * passed)
    client.close()
    return [Cost(size, median(found)) for size, found in times.items()]


def _text(client: Client, texts: Texts, tokens: int) -> bytes:
    return client.prediction(texts.cut(tokens - SPECIAL_TOKENS), None)


def _list(client: Client, texts: Texts, items: int) -> bytes:
    body = json.dumps({"inputs": [texts.cut(ITEM_WORDS).decode() for _ in range(items)]})
    plain = client.prediction(body.encode(), None)
    return plain.replace(b"text/plain; charset=utf-8", b"application/json", 1)


# ---------------------------------------------------------------- many at a time


def _crowd(server: Server, connections: int, seconds: float) -> Crowd:
    options = replace(
        plain_options(server), connections=connections, capacity_s=seconds,
        words_median=LENGTHS.median, words_sigma=LENGTHS.sigma, words_min=LENGTHS.least,
        words_max=LENGTHS.most,
    )  # fmt: skip
    front = psutil.Process(server.pid)
    before, answered = front.cpu_times(), server.outcomes().get("ok", 0)

    async def measure() -> float:
        async with asking(options) as bench:
            return (await bench.closed(min(DEEP_WARMUP_S, seconds))).rps

    rps = run(measure)
    after = front.cpu_times()
    used_s = after.user + after.system - before.user - before.system
    answers = server.outcomes().get("ok", 0) - answered
    return Crowd(connections, rps, 1e6 * used_s / answers)


# ---------------------------------------------------------------- tables


def cost_table(what: str, costs: Sequence[Cost]) -> str:
    """Times, and how they stand to the smallest size's."""
    least = costs[0]
    return table(
        (what, "median", "x the first", "for each, x the first's"),
        [
            (
                str(cost.size),
                Unit.MILLISECONDS.write(cost.ms),
                Unit.SHARE.write(cost.ms / least.ms),
                Unit.SHARE.write(cost.ms / cost.size / (least.ms / least.size)),
            )
            for cost in costs
        ],
    )


def crowd_table(crowds: Sequence[Crowd]) -> str:
    """Throughput and front CPU, and how they stand to the best and to the first."""
    most = max(crowd.rps for crowd in crowds)
    return table(
        ("connections", "answers", "of the most", "front CPU for each", "x the first"),
        [
            (
                f"{crowd.connections:,}",
                Unit.RATE.write(crowd.rps),
                Unit.SHARE.write(crowd.rps / most),
                Unit.MICROSECONDS.write(crowd.front_us),
                Unit.SHARE.write(crowd.front_us / crowds[0].front_us),
            )
            for crowd in crowds
        ],
    )


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
