"""What each way of the fill-mask worker gave: one after the other switched on, in one process.

``python -m tests.bench.gains [--quick] [--paper FILE]``

=================  ====================================================================
way                what is new in it
=================  ====================================================================
stock              every position goes through the vocabulary head, the stock postprocess
gathered           the masked positions only
written together   one softmax, one top-k and one decoding call for a batch
laid out           weights lie as the kernels read them: what a worker does
=================  ====================================================================

The ways take turns, since the machine's speed drifts; a figure is the median of the ratios of
neighbours. One thread, prepared texts sorted by length, the packaged model.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median

import torch

from service.bench.texts import Texts
from service.worker.interface import PreparedInput
from service.worker.pipelines.fill_mask import FillMask
from tests.bench.live import write_between
from tests.bench.speed_offline import LENGTHS, MANY, pipeline_of
from tests.tools import ROOT

PROGRAM = "python -m tests.bench.gains"
PAPER = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- gains: begin -->", "<!-- gains: end -->"

WAYS = ("stock", "gathered", "written together", "laid out")
SIZES = (1, 4, 8, 16)
BATCHES = 8
ROUNDS = 9


class Ways:
    """One pipeline that works in any of the ways."""

    def __init__(self) -> None:
        self.pipeline: FillMask = pipeline_of("gathered", 1)
        self._gathering, self._writer = self.pipeline._gathering, self.pipeline._writer
        weights = [
            module.weight
            for module in self.pipeline.pipe.model.modules()
            if type(module) is torch.nn.Linear and not module.weight.is_contiguous()
        ]
        self._weights = [(weight, weight.data, weight.data.contiguous()) for weight in weights]

    def use(self, way: str) -> None:
        """Work like that from now on."""
        level = WAYS.index(way)
        self.pipeline._gathering = self._gathering if level >= WAYS.index("gathered") else None
        written = level >= WAYS.index("written together")
        self.pipeline._writer = self._writer if written else None
        for weight, laid, contiguous in self._weights:
            weight.data = laid if level >= WAYS.index("laid out") else contiguous


def measure(ways: Ways, size: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of an item in batches of one size, a figure a round for each way."""
    batches = _batches(ways.pipeline, size)
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            ways.use(way)
            ways.pipeline.run(batches[0])
            started = time.perf_counter()
            for batch in batches:
                ways.pipeline.run(batch)
            took_s = time.perf_counter() - started
            found[way].append(1000 * took_s / size / len(batches))
    return found


def _batches(pipeline: FillMask, size: int) -> list[list[PreparedInput]]:
    chance, texts = Random(1), Texts("[MASK]", 1)
    items = [
        pipeline.prepare(texts.cut(LENGTHS.draw(chance)).decode(), b"", {}) for _ in range(MANY)
    ]
    items.sort(key=lambda item: item.units)
    starts = [chance.randrange(0, MANY - size) for _ in range(BATCHES)]
    return [items[start : start + size] for start in starts]


def table(found: dict[int, dict[str, list[float]]]) -> str:
    """For the paper."""
    head = "".join(f" batches of {size} |" if size > 1 else " alone |" for size in found)
    lines = [f"| way |{head}", "|---|" + "---|" * len(found)]
    for before, way in zip((None, *WAYS), WAYS, strict=False):
        cells = []
        for figures in found.values():
            shown = f"{median(figures[way]):.1f} ms"
            if before is not None:
                shown += f" ({_gain(figures[before], figures[way]):.2f} x)"
            cells.append(shown)
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _gain(before: Sequence[float], after: Sequence[float]) -> float:
    return median(one / other for one, other in zip(before, after, strict=True))


def main(arguments: list[str]) -> int:
    """Measure all; returns 0."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a look at everything")
    parser.add_argument("--paper", type=Path, help="the paper to write into")
    given = parser.parse_args(arguments)
    ways = Ways()
    found = {size: measure(ways, size, 2 if given.quick else ROUNDS) for size in SIZES}
    text = (
        f"Measured with `{' '.join((PROGRAM, *arguments))}`: time of an item, and in brackets how"
        f" many times the way above it.\n\n{table(found)}"
    )
    sys.stdout.write(text + "\n")
    paper = given.paper or (None if given.quick else PAPER)
    if paper is not None:
        write_between(paper, BEGIN, END, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
