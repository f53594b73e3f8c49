"""The HTTP room over the real dispatcher, in virtual time: what a client sees of the service."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import structlog
from structlog.testing import LogCapture

from service.core.errors import problem
from service.http import HttpContext, build_app
from service.tasks import TASKS
from tests.front.http_stage import Answer, Client
from tests.front.scripted import House, Script, batch_s, text, virtual

JSON = ("Content-Type", "application/json")


class Front(House):
    """A service with its HTTP room."""

    def __init__(self, script: Script | None = None, **given: Any) -> None:
        super().__init__(script, **given)
        self.seen = LogCapture()
        self.app = build_app(
            HttpContext(
                settings=self.settings,
                metrics=self.metrics,
                dispatcher=self.dispatcher,
                task=TASKS["synthetic"],
                log=structlog.wrap_logger(None, processors=[self.seen]),
                clock=self.loop.time,
            )
        )

    def client(self, *inputs: str, **headers: str) -> Client:
        """A client that has sent its body; a list for more than one input."""
        names = [(name.replace("_", "-"), value) for name, value in headers.items()]
        client = Client(self.app, headers=[JSON, *names])
        given = list(inputs) if len(inputs) > 1 else inputs[0]
        client.send(json.dumps({"inputs": given}).encode())
        return client

    def asked(self, *inputs: str, **headers: str) -> asyncio.Task[Answer]:
        """The same, already waiting for its answer."""
        return self.loop.create_task(self.client(*inputs, **headers).run())

    async def get(self, path: str) -> Answer:
        """A page."""
        return await Client(self.app, "GET", path).run()

    def outcomes(self) -> dict[str, int]:
        """How predictions ended, by the log; the metrics must say the same."""
        lines = [line for line in self.seen.entries if line["event"] == "request.done"]
        found = dict(Counter(line["outcome"] for line in lines))
        for code, count in found.items():
            assert self.metric("requests_total", outcome=code) == count
        return found

    async def close(self) -> None:
        """End the service; nothing may be left of anybody."""
        await self.dispatcher.stop()
        await asyncio.wait_for(self.dispatcher.drained(), 60.0)
        assert self.in_flight() == (0, 0)
        assert self.metric("queue_depth") == 0
        assert self.metric("requests_in_flight", stage="receiving") == 0


@virtual
async def test_answers() -> None:
    """One input and a list get the worker's bytes, with the times they took."""
    async with Front() as front:
        answer = await front.asked("1")
        assert (answer.status, answer.body) == (200, b"1")
        assert answer.headers["server-timing"] == (
            f"queue;dur=0.000, infer;dur={1000 * batch_s(1):.3f}, total;dur={1000 * batch_s(1):.3f}"
        )
        answer = await front.asked("1", "[2]", "3")
        assert answer.json == [1, [2], 3]
        assert front.outcomes() == {"ok": 2}


@virtual
async def test_before_the_model_is_ready() -> None:
    """While the model loads the server is alive, not ready, and says when to come back."""
    async with Front(Script(load_s=30.0), wait=False) as front:
        answer = await front.asked("1")
        assert (answer.status, answer.json["code"]) == (503, "model_loading")
        assert int(answer.headers["retry-after"]) >= 1
        statuses = {
            path: (await front.get(path)).status for path in ("/livez", "/readyz", "/startupz")
        }
        assert statuses == {"/livez": 200, "/readyz": 503, "/startupz": 503}
        await front.ready()
        statuses = {
            path: (await front.get(path)).status for path in ("/livez", "/readyz", "/startupz")
        }
        assert set(statuses.values()) == {200}
        assert (await front.asked("1")).status == 200
        assert (await front.get("/status")).json["ready"]


@virtual
async def test_deadline_in_the_model() -> None:
    """A client's deadline is kept while the model runs: it is told then."""
    async with Front(Script(marks={"slow": "slow=2"})) as front:
        answer = await front.asked(text("slow"), X_Request_Timeout_Ms="500")
        assert (answer.status, answer.json["code"], front.now) == (504, "deadline_exceeded", 0.5)
        assert front.metric("deadline_exceeded_total", stage="running") == 1


@virtual
async def test_deadline_in_the_queue() -> None:
    """A request that waits is told at its deadline, not when the batch before it ends."""
    async with Front(Script(marks={"slow": "slow=3"})) as front:
        running = front.asked(text("slow"))
        await front.step()
        began = front.now
        waiting = front.asked(text("next"), x_envoy_expected_rq_timeout_ms="1000")
        assert (await waiting).json["code"] == "deadline_exceeded"
        assert front.now == began + 1.0
        assert (await running).status == 200
        assert front.metric("deadline_exceeded_total", stage="queued") == 1
        assert front.outcomes() == {"deadline_exceeded": 1, "ok": 1}


@virtual
async def test_clients_that_leave() -> None:
    """A client that leaves gives its place back at once, whether it waits or runs."""
    async with Front(Script(marks={"slow": "slow=1"})) as front:
        clients = [front.client(text(name)) for name in ("slow", "one", "two", "three")]
        tasks = []
        for client in clients:
            tasks.append(front.loop.create_task(client.run()))
            await front.step()
        assert front.metric("queue_depth") == 3
        clients[0].leave()
        clients[1].leave()
        await front.turn()
        assert front.metric("queue_depth") == 2
        assert [task.done() for task in tasks] == [True, True, False, False]
        assert [(await task).status for task in tasks] == [0, 0, 200, 200]
        assert front.metric("client_gone_total", stage="running") == 1
        assert front.metric("client_gone_total", stage="queued") == 1
        assert [name for batch in front.batches for name in batch] == ["slow", "two", "three"]
        assert front.outcomes() == {"client_gone": 2, "ok": 2}


@virtual
async def test_burst() -> None:
    """Of a burst over the queue exactly what is too much is refused, at once and with a hint."""
    async with Front(Script(marks={"slow": "slow=1"}), queue_limit=4, max_wait_ms=3000) as front:
        first = front.asked(text("slow"))
        await front.step()
        began = front.now
        burst = [front.asked(text(f"r{i}")) for i in range(10)]
        await front.turn()
        refused = [task.result() for task in burst if task.done()]
        assert (len(refused), front.now) == (6, began)
        assert {answer.json["code"] for answer in refused} == {"queue_full"}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert (await first).status == 200
        assert [(await task).status for task in burst].count(200) == 4
        assert front.outcomes() == {"ok": 5, "queue_full": 6}


@virtual
async def test_drain() -> None:
    """While draining what is inside is answered, the rest is 503, and every connection closes."""
    async with Front(Script(marks={"slow": "slow=1"})) as front:
        inside = front.asked(text("slow"))
        await front.step()
        front.dispatcher.start_drain()
        assert (await front.get("/readyz")).status == 503
        served = front.asked(text("served"))
        await front.step()
        front.dispatcher.stop_admitting()
        late = await front.asked(text("late"))
        assert (late.status, late.json["code"]) == (503, "draining")
        assert late.headers["retry-after"] == "1"
        answers = [await inside, await served, late, await front.get("/livez")]
        assert [answer.status for answer in answers] == [200, 200, 503, 200]
        assert {answer.headers["connection"] for answer in answers} == {"close"}


@virtual
async def test_end_with_requests_inside() -> None:
    """What is still inside at the very end gets its 503, never silence."""
    async with Front(Script(marks={"stuck": "hang"})) as front:
        stuck = front.asked(text("stuck"))
        await front.step()
        front.dispatcher.refuse_all(problem("draining", retry_after_s=1.0))
        assert (await stuck).json["code"] == "draining"
