"""What the server says of itself: what it serves, its limits, and its metrics round each phase."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from service import METRIC_PREFIX, NAME
from service.bench.client import Answer, Client
from service.bench.texts import Texts

LOOK_S = 10.0
"""A server that lives answers these pages in milliseconds, whatever its load."""

IDLE_S = 60.0
PAUSE_S = 0.05
_OK, _NOT_FOUND = 200, 404


class BenchError(Exception):
    """The benchmark cannot be run; the message is one line for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the server serves, and the limits in force.

    Seconds and items; 0 where ``/status`` cannot be read.
    """

    version: str
    task: str
    model: str
    device: str = ""
    mask: str = ""
    max_tokens: int = 0
    deadline_s: float = 0.0
    max_deadline_s: float = 0.0
    wait_cap_s: float = 0.0
    batch_s: float = 0.0
    batch_units: float = 0.0
    queue_limit: int = 0


class Target:
    """The server under load.

    Args:
        client: for predictions and pages.
        watching: for ``/metrics`` and ``/status``, where they have an address of their own.
    """

    def __init__(self, client: Client, watching: Client) -> None:
        self._client = client
        self._watching = watching

    async def look(self) -> Facts:
        """Ask what is served and whether it is ready.

        Raises:
            BenchError: it cannot be reached, is not ready, or is something else.
        """
        readiness = await self._page(self._client, "/readyz")
        if readiness.status != _OK:
            reason = _object(readiness).get("reason")
            raise BenchError(f"the server is not ready: {_word(reason) or readiness.status}")
        root = _object(await self._page(self._client, "/"))
        if root.get("name") != NAME:
            raise BenchError(f"what answers there is not {NAME}")
        facts = Facts(_word(root.get("version")), _word(root.get("task")), _word(root.get("model")))
        status = await self._page(self._watching, "/status")
        if status.status == _OK:
            return _facts(_object(status), facts)
        if facts.task == "fill-mask":
            why = {401: "it needs an API key", 404: "say where it is with --metrics-url"}
            said = why.get(status.status, f"it answers {status.status}")
            raise BenchError(f"/status, where the mask token stands, cannot be read: {said}")
        return facts

    async def try_one(self, texts: Texts) -> None:
        """Ask for one short prediction.

        Raises:
            BenchError: it is not answered.
        """
        answer = await self._within(self._client.send(self._client.prediction(texts.cut(5), None)))
        if not answer.ok:
            raise BenchError(f"a first, single prediction is not answered: {answer.code}")

    async def metrics(self) -> dict[str, float]:
        """Every series of ``/metrics`` by name and labels; empty where there are none."""
        answer = await self._within(self._watching.get("/metrics"))
        if answer.status != _OK:
            return {}
        return parse_metrics(answer.body.decode("utf-8", "replace"))

    async def idle(self) -> dict[str, float]:
        """Wait until nothing is inside any more; the metrics then.

        Raises:
            BenchError: something stays inside.
        """
        end = time.monotonic() + IDLE_S
        while time.monotonic() < end:
            values = await self.metrics()
            if not any(values.get(name, 0.0) for name in _INSIDE):
                return values
            await asyncio.sleep(PAUSE_S)
        raise BenchError(f"the server still works on something after {IDLE_S:.0f} s without load")

    async def _page(self, client: Client, path: str) -> Answer:
        answer = await self._within(client.get(path))
        if answer.status == 0:
            raise BenchError("nothing answers there; is the server running?")
        return answer

    async def _within(self, asking: Awaitable[Answer]) -> Answer:
        try:
            async with asyncio.timeout(LOOK_S):
                return await asking
        except TimeoutError:
            raise BenchError(f"the server does not answer within {LOOK_S:.0f} s") from None


_INSIDE = (
    f"{METRIC_PREFIX}queue_depth",
    *(
        f'{METRIC_PREFIX}requests_in_flight{{stage="{stage}"}}'
        for stage in ("receiving", "queued", "running")
    ),
)


def parse_metrics(text: str) -> dict[str, float]:
    """The Prometheus text format, series by series."""
    pairs = (line.rpartition(" ") for line in text.splitlines() if line and line[0] != "#")
    return {series: float(value) for series, _, value in pairs}


def _facts(status: dict[str, Any], known: Facts) -> Facts:
    model, limits = status.get("model") or {}, status.get("limits") or {}
    queue = status.get("queue") or {}
    return Facts(
        version=known.version,
        task=known.task,
        model=known.model,
        device=_word(model.get("device")),
        mask=_word(model.get("mask_token")),
        max_tokens=int(_number(model.get("max_tokens"))),
        deadline_s=_number(limits.get("deadline_s")),
        max_deadline_s=_number(limits.get("max_deadline_s")),
        wait_cap_s=_number(limits.get("wait_cap_s")),
        batch_s=_number(limits.get("batch_s")),
        batch_units=_number(limits.get("batch_units")),
        queue_limit=int(_number(queue.get("limit"))),
    )


def _object(answer: Answer) -> dict[str, Any]:
    try:
        value = json.loads(answer.body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _word(value: object) -> str:
    """A text that a terminal can be trusted with."""
    text = value if isinstance(value, str) else ""
    return text if text.isprintable() else ascii(text)
