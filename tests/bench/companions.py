"""How much an answer depends on what else is in its batch.

``python -m tests.bench.companions [--quick] [--paper FILE]``

Each text is answered alone, and in mixed batches of many sizes and lengths, with one thread and
with all; the tokens and scores are compared, token by token. Padding changes the shapes of the
sums, and so the order in which single precision adds: the last bits differ, never more. The same
texts alone are compared with the stock pipeline.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from service.bench.run import machine
from service.bench.texts import Texts
from tests.bench.live import write_between
from tests.bench.live_rows import Row, Unit, markdown
from tests.bench.speed_offline import LENGTHS, pipeline_of
from tests.tools import ROOT

PROGRAM = "python -m tests.bench.companions"
PAPER = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- companions: begin -->", "<!-- companions: end -->"

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
COMPANIONS_BOUND, STOCK_BOUND = 1e-5, 1e-4
"""Most difference of a score: what is documented for companions; what is promised at all."""

SWAP = 1e-6
"""Two candidates with scores nearer than this may change places."""


@dataclass(slots=True)
class Difference:
    """What was found.

    Attributes:
        answers: how many were compared.
        score: largest difference of the score of one token.
        tokens: answers whose tokens or whose order differ, ties left out.
    """

    answers: int = 0
    score: float = 0.0
    tokens: int = 0

    def note(self, alone: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> None:
        """One answer beside another to the same text."""
        self.answers += 1
        scores = {one["token"]: one["score"] for one in other}
        common = [one for one in alone if one["token"] in scores]
        found = [abs(one["score"] - scores[one["token"]]) for one in common]
        self.score = max(self.score, *found) if found else 1.0
        for mine, theirs in zip(alone, other, strict=True):
            near = abs(mine["score"] - theirs["score"]) <= SWAP
            if mine["token"] != theirs["token"] and not near:
                self.tokens += 1
                return


def compare(threads: int, texts: int, rounds: int) -> tuple[Difference, Difference]:
    """Alone against batches, and alone against the stock pipeline, in this process."""
    from transformers import pipeline

    from service.settings import Settings

    ours = pipeline_of("gathered", threads)
    stock = pipeline("fill-mask", model=Settings().model_path, device="cpu")
    chance, words = Random(7), Texts("[MASK]", 7)
    inputs = [words.cut(LENGTHS.draw(chance)).decode() for _ in range(texts)]
    items = [ours.prepare(text, b"", {}) for text in inputs]
    alone = [ours.run([item])[0] for item in items]
    beside, against = Difference(), Difference()
    for text, answer in zip(inputs, alone, strict=True):
        against.note(answer, stock(text))
    for number in range(rounds):
        order = chance.sample(range(texts), texts)
        size = SIZES[number % len(SIZES)]
        for start in range(0, texts, size):
            some = order[start : start + size]
            for index, answer in zip(some, ours.run([items[i] for i in some]), strict=True):
                beside.note(alone[index], answer)
    return beside, against


def main(arguments: list[str]) -> int:
    """Compare with each number of threads; returns 0 if the bounds hold, else 1."""
    given = _parse(arguments)
    if given.threads:
        found = compare(given.threads, given.texts, given.rounds)
        sys.stdout.write(json.dumps([asdict(one) for one in found]) + "\n")
        return 0
    texts, rounds = (24, len(SIZES)) if given.quick else (256, 4 * len(SIZES))
    started = time.monotonic()
    rows: list[Row] = []
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        rows += _rows(threads, texts, rounds)
    how = (
        f"Measured with `{' '.join((PROGRAM, *arguments))}` in"
        f" {(time.monotonic() - started) / 60:.0f} minutes on {machine().cpus} CPUs: {texts} texts"
        f" of {LENGTHS.least} to {LENGTHS.most} words, batches of {SIZES[0]} to {SIZES[-1]}."
    )
    text = f"{how}\n\n{markdown(rows)}"
    sys.stdout.write(text + "\n")
    if given.paper is not None:
        write_between(given.paper, BEGIN, END, text)
    return 0 if all(row.good for row in rows) else 1


def _rows(threads: int, texts: int, rounds: int) -> list[Row]:
    flags = ("--threads", str(threads), "--texts", str(texts), "--rounds", str(rounds))
    command = [sys.executable, "-m", "tests.bench.companions", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    beside, against = (Difference(**one) for one in json.loads(done.stdout.splitlines()[-1]))
    column = f"{threads} thread{'s' if threads > 1 else ''}"
    return [
        Row("answers in a batch, against those alone", column, beside.answers, Unit.NUMBER),
        Row("largest difference of a score", column, beside.score, Unit.TINY,
            most=COMPANIONS_BOUND),
        Row("answers with another token", column, beside.tokens, Unit.NUMBER, most=0),
        Row("answers alone, against the stock pipeline's", column, against.answers, Unit.NUMBER),
        Row("largest difference of a score from stock", column, against.score, Unit.TINY,
            most=STOCK_BOUND),
        Row("answers with another token than stock", column, against.tokens, Unit.NUMBER, most=0),
    ]  # fmt: skip


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a look at everything")
    parser.add_argument("--paper", type=Path, help="the paper to write into")
    for name in ("--threads", "--texts", "--rounds"):  # of one process
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.paper is None and not given.quick and not given.threads:
        given.paper = PAPER
    return given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
