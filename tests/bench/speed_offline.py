"""What one process can do with a fill-mask model and no server: the offline limit.

``python -m tests.bench.speed_offline WAY THREADS BATCH SECONDS MODEL`` prints answers a second.
``… WAY THREADS alone`` answers each line of its input, the place of a text of :func:`lone_texts`,
with the milliseconds of a bare forward: the model on prepared tensors and nothing else.

``MODEL`` is a folder, or empty for the packaged model. ``WAY`` is ``stock`` (all positions through
the vocabulary head) or ``gathered`` (the masked ones).
The loop is perfect: everything is prepared beforehand and sorted by length, no queue, no clock.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Self

from service.bench.schedule import Lengths
from service.bench.texts import Texts
from tests.tools import ROOT

if TYPE_CHECKING:
    from service.worker.pipelines.fill_mask import FillMask

LENGTHS = Lengths(median=24.0, sigma=0.8, least=5, most=200)
WAYS = ("stock", "gathered")
BATCHES = (4, 8, 16)
MANY = 512
LONE = 40


@dataclass(frozen=True, slots=True)
class Limit:
    """The best that was found for one way and one split of the cores."""

    way: str
    processes: int
    threads: int
    batch: int
    rate: float
    model: str = ""

    @property
    def what(self) -> str:
        """For people."""
        split = f"{self.processes} x {self.threads} threads"
        return f"offline, {self.way}: {split}, batches of {self.batch}"

    def again(self, seconds: float) -> float:
        """Measure it once more."""
        return rates_of(self.way, self.processes, self.threads, self.batch, seconds, self.model)


def limits(seconds: float, model: str = "") -> list[Limit]:
    """For each way and split the best batch size, in answers a second."""
    cores = len(os.sched_getaffinity(0))
    found = []
    for way in WAYS:
        for processes, threads in dict.fromkeys(((1, cores), (cores, 1))):
            split = (processes, threads)
            rates = {batch: rates_of(way, *split, batch, seconds, model) for batch in BATCHES}
            batch = max(rates, key=lambda size: rates[size])
            found.append(Limit(way, processes, threads, batch, rates[batch], model))
    return found


def best(found: list[Limit], way: str) -> Limit:
    """The best split."""
    return max((one for one in found if one.way == way), key=lambda one: one.rate)


def lone_texts() -> list[bytes]:
    """The texts of the lone requests."""
    chance, texts = Random(5), Texts("[MASK]", 5)
    return [texts.cut(LENGTHS.draw(chance)) for _ in range(LONE)]


def rate(way: str, threads: int, batch: int, seconds: float, model: str) -> float:
    """Answers a second of this process."""
    pipeline = pipeline_of(way, threads, model)
    chance, texts = Random(1), Texts("[MASK]", 1)
    items = [
        pipeline.prepare(texts.cut(words).decode(), b"", {})
        for words in islice(LENGTHS.draws(chance), MANY)
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


def alone(way: str, threads: int) -> None:
    """A bare forward of each text that is asked for, once it is asked for."""
    pipeline = pipeline_of(way, threads)
    payloads = [pipeline.prepare(text.decode(), b"", {}).payload for text in lone_texts()]
    for payload in payloads:
        pipeline.forward([payload])
    for line in sys.stdin:
        started = time.perf_counter()
        pipeline.forward([payloads[int(line)]])
        sys.stdout.write(f"{1000 * (time.perf_counter() - started)}\n")
        sys.stdout.flush()


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


class Alone:
    """A process that does one bare forward when it is asked to, and is silent otherwise."""

    def __init__(self, way: str, threads: int) -> None:
        command = [sys.executable, "-m", "tests.bench.speed_offline", way, str(threads), "alone"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, cwd=ROOT,
        )  # fmt: skip
        self.forward_ms(0)

    def forward_ms(self, place: int) -> float:
        """Milliseconds of a bare forward of the text with this place."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{place}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


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
        alone(way, threads)
    else:
        found = rate(way, threads, int(batch), float(arguments[3]), arguments[4])
        sys.stdout.write(f"{found}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
