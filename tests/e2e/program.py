"""A program of the system that runs beside a test, and ends with it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import httpx

END_S = 60.0
ANSWER_S = 60.0
"""Generous: the machine may be busy."""


class Program:
    """A running program with an HTTP API.

    Args:
        command: what to run.
        api: address of its API.
    """

    def __init__(self, command: Sequence[str], api: str) -> None:
        self.client = httpx.Client(base_url=api, timeout=ANSWER_S)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(END_S)
