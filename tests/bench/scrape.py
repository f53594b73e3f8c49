"""What a scrape costs the event loop: ``python -m tests.bench.scrape [--paper FILE]``.

The page has the same series at any load, so its cost has two parts: values are written, and what
has been noted since the last scrape is counted, 64 notes of each kind at most (``portion``). Both
are at their most here: every series has a value, every bucket that can an exemplar, and the notes
are full at each scrape. CPU time of the thread, which is the loop's; the library's own way to the
same page beside it. The last row is a whole server's: its CPU time for each ``GET /metrics`` of
Prometheus' own kind, connection and door included, while nobody else asks.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import httpx
import psutil
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from service.metrics import Metrics
from service.metrics.portion import MOST
from tests.bench.live import write_between
from tests.e2e.server import Server

PROGRAM = "python -m tests.bench.scrape"
BEGIN, END = "<!-- scrape: begin -->", "<!-- scrape: end -->"

ROUNDS = 500
TARGET_MS = 5.0
LIBRARY: Callable[[CollectorRegistry], bytes] = openmetrics.generate_latest

ACCEPT = "application/openmetrics-text; version=1.0.0"
"""As Prometheus asks."""


def _note(metrics: Metrics, chance: random.Random) -> None:
    """As much as can be waiting to be counted."""
    for _ in range(MOST - 1):
        seconds = chance.lognormvariate(-2.0, 2.0)
        metrics.request_done("ok", seconds, trace_id=f"{chance.getrandbits(128):032x}")
        metrics.queue_wait(seconds)


def _times_ms(write: Callable[[Metrics], object]) -> list[float]:
    """The loop's time for each of many scrapes, rising."""
    metrics, chance = Metrics(), random.Random(7)
    found = []
    for _ in range(ROUNDS):
        _note(metrics, chance)
        before = time.thread_time()
        write(metrics)
        found.append(1000 * (time.thread_time() - before))
    return sorted(found)


def _server_ms() -> float:
    """A whole server's CPU time for each scrape."""
    with Server("--model", "synthetic:cpu") as server, httpx.Client(base_url=server.url) as client:
        front = psutil.Process(server.pid)

        def cpu_ms() -> float:
            used = front.cpu_times()
            return 1000 * (used.user + used.system)

        def ask() -> None:
            client.get("/metrics", headers={"Accept": ACCEPT}).raise_for_status()

        ask()
        before, started = cpu_ms(), time.monotonic()
        for _ in range(ROUNDS):
            ask()
        spent, seconds = cpu_ms() - before, time.monotonic() - started
        before = cpu_ms()
        time.sleep(seconds)
        return (spent - (cpu_ms() - before)) / ROUNDS


def main(arguments: list[str]) -> int:
    """Measure; returns 0 if the target is met, else 1."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("--paper", type=Path, help="write the table between its marks there")
    given = parser.parse_args(arguments)
    ways: dict[str, Callable[[Metrics], object]] = {
        "text": lambda metrics: metrics.render(None),
        "OpenMetrics": lambda metrics: metrics.render(ACCEPT),
        "text, the library's way": lambda metrics: generate_latest(metrics.registry),
        "OpenMetrics, the library's way": lambda metrics: LIBRARY(metrics.registry),
    }
    lines = Metrics().render(None)[0].count(b"\n")
    rows, good = [], True
    for name, write in ways.items():
        times = _times_ms(write)
        p50, p99 = median(times), times[int(0.99 * len(times))]
        rows.append(f"| {name} | {p50:.1f} ms | {p99:.1f} ms |")
        if "library" not in name:
            good &= p99 < TARGET_MS
    rows.append(f"| a whole scrape of an idle server, OpenMetrics | {_server_ms():.1f} ms | |")
    how = (
        f"Measured with `{PROGRAM}`: {lines} lines, {ROUNDS} scrapes each, everything that can "
        f"wait to be counted waiting; at most {TARGET_MS:g} ms of the loop are wanted."
    )
    text = "\n".join((how, "", "| page | p50 | p99 |", "|---|---|---|", *rows))
    sys.stdout.write(text + "\n")
    if given.paper is not None:
        write_between(given.paper, BEGIN, END, text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
