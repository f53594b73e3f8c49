"""Ray Serve in front of Seawall: the same app, worker, limits and metrics as a Serve deployment.

::

    pip install 'seawall[ray]'                      # on every node
    serve run --route-prefix / service.ray_serve:build model=fill-mask-small replicas=2

Every argument but those of :class:`Placement` is a setting; ``SEAWALL_*`` variables hold too.

Laws
- One queue: ours. Serve may send a replica more than that could ever hold, so that nothing waits
  before it, and what is too much is refused by us, with our words.
- A replica is there for Serve when its model is; it is replaced when it gave up, or when it has not
  been ready for longer than it heals itself in. Load never makes it ill.
- What a request waited before it came here is taken off its deadline, if the proxies say it
  (``ray_proxy``).
- Serve scales on what arrives, refused requests included, by the model time that they take.
- Ray is imported where a deployment is made, nowhere else: the rest is an ASGI application.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import uvicorn

from service import ENV_PREFIX, __version__
from service.app import App, create_app
from service.core.errors import ERRORS, OutcomeClass
from service.core.lifecycle import ServiceState
from service.http.context import WAITED_S
from service.logs import configure, get_log
from service.metrics.totals import Totals
from service.ray_proxy import waited_s
from service.server import bind, printed
from service.settings import Settings, load_settings

TARGET_BUSY = 0.7
"""How busy a replica's workers should be: the rest is for what comes at once."""

LOOK_S = 0.1
"""How often a start looks whether the model is there: once in a replica's life."""

OPEN_S = 60.0
"""Longest that a breaker may be open: ten failed self-tests have restarted the worker long ago."""

STOP_MORE_S = 5.0
"""What a stop takes beyond the drain."""

BACKSTOP_S = 1.0
"""What Serve's own time-out is told to be longer than any deadline (docs/operations.md)."""

LEAST_ONGOING = 1024
QUEUED = 64
"""Serve's own queue, which ours leaves empty; with less Serve refuses at a light load already."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Placement:
    """What Serve is told of the replicas.

    Attributes:
        replicas: how many at least, and at the start.
        most_replicas: how many at most; the least means that nothing scales.
        cpus: logical CPUs of each, for Ray's placement.
        gpus: the same for accelerators.
        per_node: most replicas on one node; 0 for any number.
    """

    replicas: int = 1
    most_replicas: int = 0
    cpus: float = 2.0
    gpus: float = 0.0
    per_node: int = 0


class Load:
    """How many replicas the load that arrives at one of them needs.

    Args:
        workers: of the replica.
        now: seconds of a monotonic clock.
    """

    def __init__(self, workers: int, now: float) -> None:
        self._workers = workers
        self._at, self._arrived, self._inside, self._busy_s = now, 0, 0, 0.0

    def needed(self, totals: Totals, now: float) -> float:
        """Replicas needed, by what has ended since the last call."""
        counts = dict.fromkeys(OutcomeClass, 0)
        for outcome, count in totals.outcomes.items():
            counts[ERRORS[outcome].outcome_class if outcome in ERRORS else OutcomeClass.OK] += count
        arrived = sum(counts.values()) - counts[OutcomeClass.CLIENT]
        inside = arrived - counts[OutcomeClass.SHED]
        new, into = arrived - self._arrived, inside - self._inside
        busy = (totals.batch_s - self._busy_s) / max(now - self._at, LOOK_S) / self._workers
        self._at, self._arrived, self._inside, self._busy_s = now, arrived, inside, totals.batch_s
        if new and not into:
            return 1 / TARGET_BUSY  # all refused: as full as can be told
        return busy * (new / into if into else 1.0) / TARGET_BUSY


class Entry:
    """A replica's door for Serve, which tells an ASGI application by its ``__call__``.

    Args:
        replica: what answers.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI call."""
        await self._replica.serve(scope, receive, send)


class Replica:
    """One server as Serve holds it.

    Args:
        variables: the settings, as environment variables.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.settings: Settings = load_settings([], variables)
        self.server: App = create_app(self.settings)
        self.server.on_fatal = self._give_up
        self._most_s = self.settings.max_deadline_ms / 1000 + BACKSTOP_S
        self._code: int | None = None
        self._unready_since: float | None = None
        self._load: Load | None = None
        self._metrics: tuple[uvicorn.Server, asyncio.Task[None]] | None = None

    def __serve_build_asgi_app__(self) -> Entry:
        """What Serve sends requests to."""
        return Entry(self)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI call; a start is over when the model is there."""
        if scope["type"] != "lifespan":
            if scope["type"] == "http":
                scope[WAITED_S] = waited_s(scope["headers"], time.time(), self._most_s)
            await self.server(scope, receive, send)
            return
        await receive()
        await self._start()  # an exception tells Serve that the start has failed
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stop()
        await send({"type": "lifespan.shutdown.complete"})

    def check_health(self) -> None:
        """Asked by Serve every few seconds; an exception means: replace me.

        Raises:
            RuntimeError: it gave up, or has not been ready for too long.
        """
        if self._code is not None:
            raise RuntimeError(f"the server gave up with exit code {self._code}")
        ready, reason = self.server.dispatcher.ready()
        now = time.monotonic()
        if ready:
            self._unready_since = None
            return
        if self._unready_since is None:
            self._unready_since = now
        is_open = self.server.dispatcher.state is ServiceState.OPEN
        patience_s = OPEN_S if is_open else self.settings.load_timeout_s + OPEN_S
        if now - self._unready_since > patience_s:
            raise RuntimeError(f"not ready for {patience_s:.0f} s: {reason}")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What :func:`wanted_replicas` goes by; asked by Serve every few seconds."""
        now = time.monotonic()
        if self._load is None:
            self._load = Load(len(self.server.dispatcher.pool.slots), now)
        return {"needed": self._load.needed(self.server.metrics.totals(), now)}

    async def _start(self) -> None:
        configure(self.settings, self.server.metrics.log_lines_dropped)
        address = self.settings.metrics_address
        if address is not None:
            listener = bind(address)
            config = uvicorn.Config(
                self.server.metrics_app, loop="none", lifespan="off", ws="none",
                log_config=None, access_log=False, server_header=False,
            )  # fmt: skip
            server = uvicorn.Server(config)
            self._metrics = server, asyncio.create_task(server.serve([listener]))
        get_log().info(
            "server.started",
            address="ray" if address is None else printed(listener),
            pid=os.getpid(),
            version=__version__,
            model=self.settings.model_name,
            task=self.settings.task,
        )
        await self.server.start()
        while not self.server.dispatcher.ever_ready:
            if self._code is not None:
                raise RuntimeError(f"the model cannot be loaded: exit code {self._code}")
            await asyncio.sleep(LOOK_S)

    async def _stop(self) -> None:
        await self.server.stop()
        if self._metrics is not None:
            server, task = self._metrics
            server.should_exit = True
            await task
        get_log().info("server.stopped", exit_code=self._code or 0)

    def _give_up(self, code: int) -> None:
        self._code = code


def wanted_replicas(context: Any) -> tuple[int, dict[str, Any]]:  # noqa: ANN401 - of Ray, which has no types here
    """Serve's policy: as many replicas as all that arrives needs together."""
    needed = context.aggregated_metrics.get("needed", {})
    if not needed:
        return context.target_num_replicas, context.policy_state
    return max(1, math.ceil(sum(needed.values()))), context.policy_state


def variables_of(arguments: Mapping[str, str]) -> tuple[Placement, dict[str, str]]:
    """The arguments of ``serve run``, parted into Serve's and the settings.

    Raises:
        ValueError: a number of :class:`Placement` is none.
        SettingsError: a setting that cannot be used.
    """
    kinds = get_type_hints(Placement)
    ours = {name: kinds[name](value) for name, value in arguments.items() if name in kinds}
    variables = {name: value for name, value in os.environ.items() if name.startswith(ENV_PREFIX)}
    for name, value in arguments.items():
        if name not in kinds:
            variables[ENV_PREFIX + name.upper()] = str(value)
    load_settings([], variables)  # what is wrong shows here, not on every node
    return Placement(**ours), variables


def options_of(placement: Placement, settings: Settings) -> dict[str, Any]:
    """What Serve is told of the deployment."""
    stop_s = settings.drain_timeout_ms / 1000 + STOP_MORE_S
    options: dict[str, Any] = {
        "name": "seawall",
        "max_ongoing_requests": max(LEAST_ONGOING, 4 * settings.queue_limit),
        "max_queued_requests": QUEUED,
        "backpressure_config": {"status_code": 503, "retry_after_s": 1},
        "graceful_shutdown_timeout_s": stop_s,
        "graceful_shutdown_wait_loop_s": 1.0,
        "health_check_period_s": 5.0,
        "health_check_timeout_s": 10.0,
        "ray_actor_options": {"num_cpus": placement.cpus, "num_gpus": placement.gpus},
    }
    if placement.per_node:
        options["max_replicas_per_node"] = placement.per_node
    if placement.most_replicas <= placement.replicas:
        return {**options, "num_replicas": placement.replicas}
    options["autoscaling_config"] = {
        "min_replicas": placement.replicas,
        "max_replicas": placement.most_replicas,
        "upscale_delay_s": 10.0,
        "downscale_delay_s": 300.0,
        "policy": {"policy_function": f"{__name__}:{wanted_replicas.__name__}"},
    }
    return options


def build(arguments: Mapping[str, str]) -> Any:  # noqa: ANN401 - an application of Serve's
    """The Serve application: for ``serve run service.ray_serve:build name=value ...``.

    Raises:
        ValueError, SettingsError: an argument that cannot be used.
    """
    from ray import serve

    placement, variables = variables_of(arguments)
    options = options_of(placement, load_settings([], variables))
    return serve.deployment(**options)(serve.ingress()(Replica)).bind(variables)
