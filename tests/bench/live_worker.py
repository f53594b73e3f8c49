"""A real worker process whose synthetic device can become slower, and its usual self again.

``python -P live_worker.py FD PARENT_PID``, as a supervisor starts a worker. SIGUSR1 makes every
later batch take three times as long, SIGUSR2 ends that. Only the sleep that stands for the device
changes; everything round it is the product's.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

from service.worker.__main__ import main
from service.worker.synthetic import MODELS, SyntheticPipeline
from service.worker.wire import Load

SLOWER = 3.0

_factor = 1.0


def _switch(number: int, _frame: FrameType | None) -> None:
    global _factor  # noqa: PLW0603 - what a signal handler can reach
    _factor = SLOWER if number == signal.SIGUSR1 else 1.0


def _sleep(seconds: float) -> None:
    time.sleep(seconds * _factor)


def _from_load(load: Load) -> SyntheticPipeline:
    return SyntheticPipeline(load.model, MODELS[load.model], seed=os.getpid(), sleep=_sleep)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _switch)
    signal.signal(signal.SIGUSR2, _switch)
    setattr(SyntheticPipeline, "from_load", _from_load)  # noqa: B010 - a class method's place
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
