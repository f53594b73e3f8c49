"""Keeps a worker's libraries quiet (loggers, warnings, tracebacks quote inputs) and polite.

Laws
- No logger, no warning, no progress bar writes anything.
- An exception that nobody caught is printed as its class and frames; its message is not.
- A crash prints the frames of the thread that crashed (faulthandler), never a value: those of the
  others would push them out of the few lines that the front logs.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import warnings
from types import TracebackType

from service.worker.faults import frames_of

ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "critical",
}
"""Read by the libraries when they are imported. The prepare thread is the only one that
tokenises, one text at a time: threads of the tokenizer's own would take the model's cores."""

DEFAULTS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Kept if set. OpenMP's threads spin while they wait for each other; where the cores are shared,
with the front for one, a batch of 20 ms then took 500 ms now and again, passive ones never did."""


def silence() -> None:
    """Take effect for the whole process; before torch and transformers are imported."""
    os.environ.update(ENVIRONMENT)
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    logging.disable(logging.CRITICAL)
    warnings.showwarning = _show_nothing
    sys.excepthook = _print_frames
    sys.unraisablehook = _print_unraisable
    threading.excepthook = _print_thread
    faulthandler.enable(all_threads=False)


def _show_nothing(*args: object, **kwargs: object) -> None:
    del args, kwargs


def _print_frames(
    error_type: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    del error
    lines = [f"uncaught {error_type.__name__}", *(f"  {frame}" for frame in frames_of(traceback))]
    sys.stderr.write("\n".join(lines) + "\n")


def _print_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    error = unraisable.exc_value
    if error is not None:
        _print_frames(unraisable.exc_type, error, unraisable.exc_traceback)


def _print_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None:
        _print_frames(args.exc_type, args.exc_value, args.exc_traceback)
