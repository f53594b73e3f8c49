"""A real worker process whose model fails as real models do, when a text or a file asks for it.

``python -P faulty_worker.py FOLDER FD PARENT_PID``, as a supervisor starts a worker. Everything
round the model is the product's: loading, preparing, the wire, the threads.

A text that holds a word of :data:`ERRORS` or :data:`ANSWERS` fails whatever batch it runs in. The
message of each exception quotes the text, a path and a device, as libraries do.

==================  ==============================================================================
file in ``FOLDER``  while it is there
==================  ==============================================================================
``broken``          every batch raises, and every canary but that of loading
``ceiling``         a batch of more padded units than it says does not fit the memory
``held``            a batch with the word :data:`HELD` waits
==================  ==============================================================================
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partialmethod
from pathlib import Path
from typing import Any

from service.worker.__main__ import main
from service.worker.interface import Pipeline, PreparedInput
from service.worker.pipelines import load_pipeline
from service.worker.runner import Runner
from service.worker.wire import Load

LEAKS = ("/srv/app", "token=abc123", "DefaultCPUAllocator", "device-side", "CUDA", "whose text")
"""What the messages hold, and nobody outside may read."""

HIDDEN = "/srv/app/secret.py token=abc123, whose text is"

ALLOCATOR = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 400000000000 bytes"


def _chain(text: str) -> BaseException:
    error = ValueError(f"boom {HIDDEN} {text}")
    error.__cause__ = KeyError(f"cause {HIDDEN} {text}")
    return error


ERRORS: dict[str, Callable[[str], BaseException]] = {
    "wordruntime": lambda text: RuntimeError(f"boom {HIDDEN} {text}"),
    "wordchain": _chain,
    "wordgroup": lambda text: ExceptionGroup(f"{HIDDEN} {text}", [ValueError(text)]),
    "wordexit": lambda text: SystemExit(f"{HIDDEN} {text}"),
    "wordinterrupt": lambda text: KeyboardInterrupt(f"{HIDDEN} {text}"),
    "wordcancelled": lambda text: asyncio.CancelledError(f"{HIDDEN} {text}"),
    "wordpassing": lambda text: RuntimeError(f"CUDA error: invalid argument {HIDDEN} {text}"),
    "wordmemory": lambda text: MemoryError(f"{HIDDEN} {text}"),
    "wordallocator": lambda text: RuntimeError(f"[{HIDDEN}] . {ALLOCATOR}. {text}"),
    "wordassert": lambda text: RuntimeError(f"CUDA error: device-side assert {HIDDEN} {text}"),
}
"""By the word that asks for it: what the model raises."""

ANSWERS: dict[str, Callable[[list[Any]], Any]] = {
    "wordfew": lambda answers: answers[:-1],
    "wordmany": lambda answers: [*answers, *answers[-1:]],
    "wordnone": lambda answers: [],
    "worddict": lambda answers: dict(enumerate(answers)),
}
"""By the word that asks for it: what the model answers in place of one answer for each input."""

CRASH = "wordsegfault"
"""The model reads at address 0: what a crash in native code is."""


HOARD = "wordhoard"
"""The model takes all the memory that there is."""

HOARD_BYTES = 8 * 2**20

HELD = "wordheld"
"""The model waits while the file ``held`` is there: a batch that ends when a test wants it to."""

LOOK_S = 0.005


@dataclass(frozen=True, slots=True)
class Marked:
    """A payload with the text that it was made of."""

    payload: Any
    text: str


class Faulty:
    """A pipeline that fails as asked."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self._pipeline = pipeline
        self._folder = folder
        self._loading = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    def prepare(self, inputs: str, media: bytes, parameters: Mapping[str, Any]) -> PreparedInput:
        """As the pipeline, and keep the text."""
        prepared = self._pipeline.prepare(inputs, media, parameters)
        return replace(prepared, payload=Marked(prepared.payload, inputs))

    def run(self, items: Sequence[PreparedInput]) -> Any:
        """As the pipeline, unless something is asked for."""
        marks: list[Marked] = [item.payload for item in items]
        self._check(" ".join(mark.text for mark in marks))
        self._check_memory(len(items) * max(item.units for item in items))
        plain = [
            replace(item, payload=mark.payload) for item, mark in zip(items, marks, strict=True)
        ]
        answers: Any = self._pipeline.run(plain)
        for word, change in ANSWERS.items():
            if any(word in mark.text for mark in marks):
                answers = change(answers)
        return answers

    def canary(self) -> Any:
        """As the pipeline; while loading it is good."""
        if not self._loading:
            self._check("the canary")
        self._loading = False
        return self._pipeline.canary()

    def _check(self, text: str) -> None:
        while HELD in text and (self._folder / "held").exists():
            time.sleep(LOOK_S)
        if (self._folder / "broken").exists():
            raise RuntimeError(f"broken {HIDDEN} {text}")
        if CRASH in text:
            ctypes.string_at(0)
        hoard: list[bytes] = []
        while HOARD in text:
            hoard.append(os.urandom(HOARD_BYTES))
        for word, error in ERRORS.items():
            if word in text:
                raise error(text)

    def _check_memory(self, padded: int) -> None:
        ceiling = self._folder / "ceiling"
        if ceiling.exists() and padded > int(ceiling.read_text()):
            raise RuntimeError(f"[{HIDDEN}] . {ALLOCATOR}")


def run(folder: Path, arguments: list[str]) -> int:
    """Be a worker; returns its exit code."""

    def load(frame: Load) -> Any:
        return Faulty(load_pipeline(frame), folder)

    setattr(Runner, "__init__", partialmethod(Runner.__init__, load=load))  # noqa: B010
    return main(arguments)


if __name__ == "__main__":
    code = run(Path(sys.argv[1]), sys.argv[2:])
    sys.stdout.flush()
    os._exit(code)
