"""What one process can do with a fill-mask model and no server: the offline limit.

``python -m tests.bench.speed_offline WAY THREADS BATCH SECONDS MODEL`` prints answers a second.
``… WAY THREADS alone`` prints, for each text of :func:`lone_texts`, the milliseconds of a bare
forward: the model on prepared tensors and nothing else.

``MODEL`` is a folder, or empty for the packaged model. ``WAY`` is ``stock`` (all positions through
the vocabulary head) or ``gathered`` (the masked ones).
The loop is perfect: everything is prepared beforehand and sorted by length, no queue, no clock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from service.bench.schedule import Lengths
from service.bench.texts import Texts
from tests.tools import ROOT

if TYPE_CHECKING:
    from service.worker.pipelines.fill_mask import FillMask

LENGTHS = Lengths(median=24.0, sigma=0.8, least=5, most=200)
WAYS = ("stock", "gathered")
BATCHES = (4, 8, 16)
MANY = 512
LONE, LONE_TIMES = 40, 5


@dataclass(frozen=True, slots=True)
class Limit:
    """The best that was found for one way and one split of the cores."""

    way: str
    processes: int
    threads: int
    batch: int
    rate: float

    @property
    def what(self) -> str:
        """For people."""
        split = f"{self.processes} x {self.threads} threads"
        return f"offline, {self.way}: {split}, batches of {self.batch}"


def limits(seconds: float, model: str = "") -> list[Limit]:
    """For each way and split the best batch size, in answers a second."""
    cores = len(os.sched_getaffinity(0))
    found = []
    for way in WAYS:
        for processes, threads in dict.fromkeys(((1, cores), (cores, 1))):
            split = (processes, threads)
            rates = {batch: rates_of(way, *split, batch, seconds, model) for batch in BATCHES}
            batch = max(rates, key=lambda size: rates[size])
            found.append(Limit(way, processes, threads, batch, rates[batch]))
    return found


def best(found: list[Limit], way: str) -> float:
    """Answers a second of the best split."""
    return max(one.rate for one in found if one.way == way)


def lone_texts() -> list[bytes]:
    """The texts of the lone requests."""
    chance, texts = Random(5), Texts("[MASK]", 5)
    return [texts.cut(LENGTHS.draw(chance)) for _ in range(LONE)]


def rate(way: str, threads: int, batch: int, seconds: float, model: str) -> float:
    """Answers a second of this process."""
    pipeline = pipeline_of(way, threads, model)
    chance, texts = Random(1), Texts("[MASK]", 1)
    items = [
        pipeline.prepare(texts.cut(LENGTHS.draw(chance)).decode(), b"", {}) for _ in range(MANY)
    ]
    items.sort(key=lambda item: item.units)
    batches = [items[start : start + batch] for start in range(0, MANY, batch)]
    chance.shuffle(batches)
    for some in batches[:3]:
        pipeline.run(some)
    done, started = 0, time.perf_counter()
    while True:
        for some in batches:
            pipeline.run(some)
            done += len(some)
            passed = time.perf_counter() - started
            if passed >= seconds:
                return done / passed


def alone(way: str, threads: int) -> list[float]:
    """Milliseconds of a bare forward for each lone text."""
    pipeline = pipeline_of(way, threads)
    found = []
    for text in lone_texts():
        payload = pipeline.prepare(text.decode(), b"", {}).payload
        times = []
        for _ in range(LONE_TIMES):
            started = time.perf_counter()
            pipeline.forward([payload])
            times.append(time.perf_counter() - started)
        found.append(1000 * median(times))
    return found


def rates_of(
    way: str, processes: int, threads: int, batch: int, seconds: float, model: str = ""
) -> float:
    """Answers a second of several processes at the same time, together."""
    command = [sys.executable, "-m", "tests.bench.speed_offline", way, str(threads)]
    running = [
        subprocess.Popen(
            [*command, str(batch), str(seconds), model], stdout=subprocess.PIPE, text=True,
            cwd=ROOT, stderr=subprocess.DEVNULL,
        )
        for _ in range(processes)
    ]  # fmt: skip
    return sum(float(process.communicate()[0].splitlines()[-1]) for process in running)


def alone_ms(way: str, threads: int) -> list[float]:
    """:func:`alone` in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.speed_offline", way, str(threads), "alone"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def pipeline_of(way: str, threads: int, model: str = "") -> FillMask:
    """The pipeline that a worker has, on its fast path or without it."""
    from service.settings import Settings
    from service.worker.pipelines.fill_mask import FillMask
    from service.worker.wire import Load

    path = model or Settings().model_path
    pipeline = FillMask.from_load(Load(path, "fill-mask", torch_threads=threads), Path(path))
    if way == "stock":
        pipeline._gathering = None
    return pipeline


def main(arguments: list[str]) -> None:
    """Measure one thing and print it."""
    way, threads, batch = arguments[0], int(arguments[1]), arguments[2]
    if batch == "alone":
        sys.stdout.write(json.dumps(alone(way, threads)) + "\n")
    else:
        found = rate(way, threads, int(batch), float(arguments[3]), arguments[4])
        sys.stdout.write(f"{found}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
