"""What Ray Serve is given, without Ray: start, health, load, options."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from service.app import App
from service.core.errors import ERRORS
from service.core.lifecycle import ServiceState
from service.metrics.totals import Totals
from service.ray_proxy import HEADER, Arrival, middlewares, waited_s
from service.ray_serve import Load, Placement, Replica, options_of, variables_of, wanted_replicas
from service.settings import SettingsError, load_settings

SYNTHETIC = {"SEAWALL_MODEL": "synthetic:cpu", "SEAWALL_WORKERS": "1"}


def totals(busy_s: float, **outcomes: int) -> Totals:
    """Counts since the start."""
    counts = {**dict.fromkeys([*ERRORS, "ok"], 0), **outcomes}
    return Totals(
        outcomes=counts, restarts={}, batches=0, batch_items=0, batch_s=busy_s, waits=0, wait_s=0.0
    )


class Lifespan:
    """An ASGI server's side of the lifespan, as Serve plays it."""

    def __init__(self, replica: Replica) -> None:
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        entry = replica.__serve_build_asgi_app__()
        self.task = asyncio.ensure_future(
            entry({"type": "lifespan"}, self.asked.get, self.sent.put)  # type: ignore[arg-type]
        )

    async def ask(self, what: str) -> str:
        """Say startup or shutdown; the type of the answer."""
        await self.asked.put({"type": f"lifespan.{what}"})
        return str((await asyncio.wait_for(self.sent.get(), 60))["type"])


def test_a_replica_serves_from_start_to_stop() -> None:
    """A start is over when the model is there; requests, health and metrics are our own."""

    async def story() -> None:
        replica = Replica({**SYNTHETIC, "SEAWALL_METRICS_BIND": "127.0.0.1:0"})
        lifespan = Lifespan(replica)
        assert await lifespan.ask("startup") == "lifespan.startup.complete"
        transport = httpx.ASGITransport(app=replica.__serve_build_asgi_app__())
        async with httpx.AsyncClient(transport=transport, base_url="http://replica") as client:
            assert (await client.get("/readyz")).status_code == 200
            patience = {"X-Request-Timeout-Ms": "60000"}
            answer = await client.post("/", content=b"one two three", headers=patience)
            assert answer.json() == {"tokens": 3, "batch": 1}
            refused = await client.post("/", content=b"", headers={"X-Request-Timeout-Ms": "x"})
            assert refused.json()["code"] == "malformed_request"
            assert (await client.get("/metrics")).status_code == 404
        replica.check_health()
        replica.record_autoscaling_stats()
        assert replica.record_autoscaling_stats()["needed"] == 0.0
        assert replica._metrics is not None
        (listening,) = replica._metrics[0].servers
        (socket,) = listening.sockets
        async with httpx.AsyncClient(timeout=60) as client:
            page = await client.get(f"http://127.0.0.1:{socket.getsockname()[1]}/metrics")
        assert 'seawall_requests_total{outcome="ok"} 1.0' in page.text
        assert await lifespan.ask("shutdown") == "lifespan.shutdown.complete"
        await lifespan.task

    asyncio.run(story())


def test_a_model_that_cannot_be_loaded_ends_the_start() -> None:
    """Serve is told that the start failed, and health says so ever after."""

    async def story() -> None:
        replica = Replica({"SEAWALL_MODEL": "synthetic:cpu"})
        replica._give_up(3)
        lifespan = Lifespan(replica)
        await lifespan.asked.put({"type": "lifespan.startup"})
        with pytest.raises(RuntimeError, match="exit code 3"):
            await lifespan.task
        with pytest.raises(RuntimeError, match="exit code 3"):
            replica.check_health()
        await replica.server.stop()

    asyncio.run(story())


@pytest.mark.parametrize(
    "state, patience_s", [(ServiceState.OPEN, 60.0), (ServiceState.RESTARTING, 360.0)]
)
def test_a_replica_is_replaced_when_it_does_not_heal(
    state: ServiceState, patience_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not ready is no illness until it lasts longer than the server heals itself in."""
    now, ready = [1000.0], [True]
    monkeypatch.setattr("service.ray_serve.time.monotonic", lambda: now[0])
    replica = Replica.__new__(Replica)
    replica.settings = load_settings([], {})
    replica._code, replica._unready_since = None, None
    dispatcher = SimpleNamespace(ready=lambda: (ready[0], "why"), state=state)
    replica.server = SimpleNamespace(dispatcher=dispatcher)  # type: ignore[assignment]
    replica.check_health()
    ready[0] = False
    replica.check_health()
    now[0] += patience_s
    replica.check_health()
    now[0] += 0.1
    with pytest.raises(RuntimeError, match="not ready for"):
        replica.check_health()
    ready[0] = True
    replica.check_health()
    ready[0] = False
    replica.check_health()


# ---------------------------------------------------------------- a wait before us


@pytest.mark.parametrize(
    "noted, waited",
    [
        ([], 0.0),
        ([b"997500"], 2.5),
        ([b"1000500"], 0.0),  # a clock ahead of ours
        ([b"938999"], 0.0),  # longer than Serve lets anything live: a clock that is wrong
        ([b"939000"], 61.0),
        ([b"997500", b"998000"], 0.0),
        ([b"soon"], 0.0),
        ([b""], 0.0),
        ([b"-5"], 0.0),
        ([b"9" * 5000], 0.0),
    ],
)
def test_a_wait_is_what_the_proxy_noted(noted: list[bytes], waited: float) -> None:
    """The time since the proxy had the headers; whatever cannot be is no wait."""
    headers = [(b"host", b"x"), *((HEADER, value) for value in noted)]
    assert waited_s(headers, 1000.0, 61.0) == pytest.approx(waited)


def test_only_the_proxy_notes() -> None:
    """A proxy notes its own time on requests, in place of whatever a client sent as that."""
    seen: list[dict[str, Any]] = []

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    assert [str(one.cls) for one in middlewares()] == [str(Arrival)]
    app: Any = Arrival(proxy, clock=lambda: 12.3456)
    forged = [(b"X-Seawall-Arrived-Ms", b"1"), (HEADER, b"2"), (b"host", b"x")]

    async def story() -> None:
        for kind in ("http", "websocket"):
            await app({"type": kind, "headers": forged}, None, None)

    asyncio.run(story())
    assert seen[0]["headers"] == [(b"host", b"x"), (HEADER, b"12345")]
    assert seen[1]["headers"] == forged


def test_a_wait_in_the_proxy_is_taken_off_the_deadline() -> None:
    """Who waited in the proxy for longer than their deadline is late; others have what is left."""

    async def story() -> None:
        replica = Replica(SYNTHETIC)
        lifespan = Lifespan(replica)
        await lifespan.ask("startup")
        transport = httpx.ASGITransport(app=replica.__serve_build_asgi_app__())
        async with httpx.AsyncClient(transport=transport, base_url="http://replica") as client:
            for named_ms, status in ((20_000, 504), (59_000, 200)):
                noted = str(int((time.time() - 30) * 1000))
                headers = {HEADER.decode(): noted, "X-Request-Timeout-Ms": str(named_ms)}
                answer = await client.post("/", content=b"one two", headers=headers)
                assert answer.status_code == status
            # the default too: nobody waits for half a minute here
            late = await client.post("/", content=b"one two", headers={HEADER.decode(): noted})
            assert late.json()["code"] == "deadline_exceeded"
        await lifespan.ask("shutdown")
        await lifespan.task

    asyncio.run(story())


# ---------------------------------------------------------------- load


@pytest.mark.parametrize(
    "ended, needed",
    [
        ({"ok": 100}, 1.0),  # 0.7 of two workers for ten seconds
        ({"ok": 50, "queue_full": 30, "overloaded": 20}, 2.0),  # half of it was refused
        ({"ok": 50, "deadline_exceeded": 30, "client_gone": 20}, 1.0),  # all of it was let in
        ({"ok": 100, "invalid_input": 900}, 1.0),  # clients' own faults need nobody
        ({}, 1.0),  # model time for what has not ended yet
    ],
)
def test_load_is_what_arrives_by_the_time_it_takes(ended: dict[str, int], needed: float) -> None:
    """Replicas needed: arrivals, refused ones too, times model time, over workers and 0.7."""
    load = Load(2, 50.0)
    load.needed(totals(100.0, ok=7, queue_full=9), 60.0)
    more = {"ok": 7, "queue_full": 9}
    counts = {name: more.get(name, 0) + ended.get(name, 0) for name in {*more, *ended}}
    assert load.needed(totals(114.0, **counts), 70.0) == pytest.approx(needed)


def test_all_refused_is_full() -> None:
    """Where nothing was let in the replica is as full as can be told; without arrivals, empty."""
    load = Load(1, 0.0)
    assert load.needed(totals(0.0, queue_full=5), 10.0) == pytest.approx(1 / 0.7)
    assert load.needed(totals(0.0, queue_full=5), 20.0) == 0.0


def test_the_policy_sums_and_keeps_what_it_does_not_know() -> None:
    """All replicas' needs together, rounded up; with no figures the number stays."""
    context = SimpleNamespace(
        aggregated_metrics={"needed": {"a": 0.7, "b": 1.6}}, target_num_replicas=5, policy_state={}
    )
    assert wanted_replicas(context) == (3, {})
    context.aggregated_metrics = {"needed": {"a": 0.0}}
    assert wanted_replicas(context) == (1, {})
    context.aggregated_metrics = {}
    assert wanted_replicas(context) == (5, {})


# ---------------------------------------------------------------- what Serve is told


def test_arguments_are_placement_or_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Serve needs is taken out, the rest are settings, over those of the environment."""
    monkeypatch.setenv("SEAWALL_QUEUE_LIMIT", "32")
    monkeypatch.setenv("SEAWALL_LOG_LEVEL", "error")
    given = {"replicas": "2", "cpus": "1.5", "queue_limit": "64", "model": "synthetic:cpu"}
    placement, variables = variables_of(given)
    assert placement == Placement(replicas=2, cpus=1.5)
    settings = load_settings([], variables)
    assert (settings.queue_limit, settings.log_level) == (64, "error")
    with pytest.raises(SettingsError):
        variables_of({"queue_limits": "64"})
    with pytest.raises(ValueError, match="two"):
        variables_of({"replicas": "two"})


def test_the_only_queue_is_ours() -> None:
    """Serve sends more than a replica could hold, waits for a drain, and scales only if asked."""
    settings = load_settings([], {"SEAWALL_QUEUE_LIMIT": "1000"})
    options = options_of(Placement(replicas=3, per_node=1, gpus=1), settings)
    assert options["max_ongoing_requests"] >= 2 * settings.queue_limit
    assert options["max_queued_requests"] >= 64
    assert options["graceful_shutdown_timeout_s"] * 1000 > settings.drain_timeout_ms
    assert (options["num_replicas"], options["max_replicas_per_node"]) == (3, 1)
    assert options["ray_actor_options"] == {"num_cpus": 2.0, "num_gpus": 1}
    assert "autoscaling_config" not in options
    scaling = options_of(Placement(replicas=2, most_replicas=8), settings)
    assert "num_replicas" not in scaling
    assert scaling["autoscaling_config"]["max_replicas"] == 8
    policy = scaling["autoscaling_config"]["policy"]["policy_function"]
    assert policy == "service.ray_serve:wanted_replicas"
    assert isinstance(Replica(SYNTHETIC).server, App)
