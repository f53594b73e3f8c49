"""A server in trouble, a real Prometheus and Alertmanager that watch it, and whom they tell.

Rules and routing are the shipped ones with every duration divided by :data:`FACTOR` (``faster``).
The trouble is real and in real time: requests take what they take.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.alertmanager import Alertmanager, Inbox, Told
from tests.e2e.conftest import PATIENT
from tests.e2e.faster import faster
from tests.e2e.faulty import broken
from tests.e2e.load import Call, crowd
from tests.e2e.prometheus import Prometheus, pointed_at, rule_files, shipped
from tests.e2e.server import Server, wait_for

FACTOR = 60
SCRAPE = {"scrape_interval": "500ms", "evaluation_interval": "250ms"}
"""A scrape has its interval as its time-out, and a busy machine needs half a second at times."""

DRAIN_DELAY_MS = 4000
"""Longer than nobody may be ready: four minutes of the shipped rules."""

CROWD, PAUSE_S = 64, 0.3
"""Clients of the overload: more than wait (16), run (5) and rest after an answer (15 at 50 answers
a second), so that the queue is full however slowly they ask."""

STEADY = Call("one two three")
SLOW = Call("one two", {"X-Rehearse-Fault": "slow=40"})


class Watching(Prometheus):
    """A Prometheus with the shipped rules, sped up, that tells an Alertmanager.

    It takes seconds to find its targets, which are minutes of these rules: :meth:`begin` loads them
    once it has.
    """

    def __init__(self, folder: Path, targets: Sequence[str], alertmanager: str) -> None:
        self._alertmanager = alertmanager
        self._folder = folder
        super().__init__(folder, targets)

    def begin(self) -> None:
        """Load the rules."""
        for name, content in faster(rule_files(shipped("prometheus.yml")), FACTOR).items():
            (self._folder / name).write_text(yaml.safe_dump(content, sort_keys=False))
        self.process.send_signal(signal.SIGHUP)

    def files(self, targets: Sequence[str]) -> dict[str, Any]:
        """The shipped configuration with these addresses and times, its rules not there yet."""
        config = pointed_at(shipped("prometheus.yml"), targets)
        [whom] = config["alerting"]["alertmanagers"]
        [place] = whom["static_configs"]
        place["targets"] = [self._alertmanager]
        config["global"] = SCRAPE
        return {"prometheus.yml": config}

    def firing(self) -> set[str]:
        """The names of what fires."""
        data = self.get("query", query='ALERTS{alertstate="firing"}')
        return {one["metric"]["alertname"] for one in data["result"]} if data else set()


@dataclass
class Incident:
    """What happens, in phases, and who was told of what began in each.

    Attributes:
        told: by phase: receiver and alert, of alerts that were told for the first time in it.
        silent: what another alert kept silent at the height of the overload.
        known: what Alertmanager knew to fire when it was over.
    """

    server: Server
    prometheus: Watching
    alertmanager: Alertmanager
    inbox: Inbox
    folder: Path
    told: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    _known: set[Told] = field(default_factory=set)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note what is told for the first time in the block."""
        yield
        new = self.inbox.told() - self._known
        self._known |= new
        self.told[name] = sorted((one.receiver, one.alert) for one in new)

    def reached(self, *alerts: str) -> Callable[[], bool]:
        """Whether each of them has reached somebody since the phase began."""
        return lambda: set(alerts) <= {one.alert for one in self.inbox.told() - self._known}

    def over(self, *alerts: str) -> Callable[[], bool]:
        """Whether none of them fires any more."""
        return lambda: self.prometheus.firing().isdisjoint(alerts)

    def quiet(self, seconds: int, before: float) -> Callable[[], bool]:
        """Whether for so long one more than before has been lost, and both are ready."""
        span = f"[{seconds}s:500ms]"
        lost = f"min_over_time(sum(seawall_worker_restarts_total){span}) > {before}"
        ready = f'min_over_time(sum(seawall_worker_state{{state="ready"}}){span}) == 2'
        return lambda: self.prometheus.value(f"{lost} and {ready}") is not None

    def run(self) -> None:
        """Let it happen."""
        with crowd(self.server.port, [STEADY], clients=8, pause_s=0.08):
            self._steady()
            self._overload()
            self._calm()
            self._kill()
            self._break()
        self._drain()

    def _steady(self) -> None:
        with self.phase("steady"):
            wait_for(lambda: self.prometheus.value("up == 1"), "the first scrape")
            self.prometheus.begin()
            wait_for(self.reached("SeawallWatchdog"), "the watchdog")
            watched = "sum(count_over_time(seawall_ready[6s])) > 8"
            wait_for(lambda: self.prometheus.value(watched), "six minutes of the rules")

    def _overload(self) -> None:
        with (
            self.phase("overload"),
            crowd(self.server.port, [SLOW], clients=CROWD, pause_s=PAUSE_S),
        ):
            wait_for(self.reached("SeawallShedding", "SeawallBudgetBurningFast"), "the pages")
            kept = {"SeawallQueueFilling"}
            wait_for(lambda: kept <= self.alertmanager.silenced(), "what the page keeps silent")
            self.silent = self.alertmanager.silenced()

    def _calm(self) -> None:
        with self.phase("calm"):
            wait_for(self.over("SeawallShedding", "SeawallQueueFilling"), "the overload to be over")
            slow = {"SeawallBudgetBurningSlow"}
            wait_for(lambda: slow <= self.alertmanager.known(), "what it cost")
            self.known = self.alertmanager.known()

    def _kill(self) -> None:
        with self.phase("killed"):
            before = sum(self.server.status()["restarts"].values())
            [one, _] = self.server.status()["workers"]
            os.kill(one["pid"], signal.SIGKILL)
            wait_for(self.quiet(3, before), "three minutes of the rules with both workers again")

    def _break(self) -> None:
        with self.phase("broken"):
            with broken(self.folder):
                both = ("SeawallNoReadyReplica", "SeawallBreakerOpen")
                wait_for(self.reached(*both), "the breaker's alerts")
            self.server.wait_ready()
            wait_for(self.over(*both), "the breaker's alerts to be over")

    def _drain(self) -> None:
        with self.phase("drained"):
            self.server.terminate()
            wait_for(self.reached("SeawallNoReadyReplica"), "the page for nobody ready")
            wait_for(self.reached("SeawallTargetDown"), "the ticket for the target")
            assert self.server.wait() == 0


@contextmanager
def incident(folder: Path) -> Iterator[Incident]:
    """The whole of it, when it is over."""
    places = [folder / name for name in ("faults", "prometheus", "alertmanager")]
    for place in places:
        place.mkdir()
    faults, prometheus_data, alertmanager_data = places
    command = (
        sys.executable, "-m", "tests.e2e.faulty", str(faults), "--bind", "127.0.0.1:0",
        "--log-format", "json", "--workers", "2", "--model", "synthetic:cpu", "--rehearsal",
        *PATIENT, "--queue-limit", "16", "--batch-ms", "100", "--restart-limit", "100",
        "--drain-delay-ms", str(DRAIN_DELAY_MS),
    )  # fmt: skip
    with ExitStack() as stack:
        server = stack.enter_context(Server(command=command))
        inbox = stack.enter_context(Inbox())
        alertmanager = stack.enter_context(Alertmanager(alertmanager_data, inbox.address, FACTOR))
        wait_for(alertmanager.ready, "Alertmanager")
        target = f"127.0.0.1:{server.port}"
        prometheus = stack.enter_context(Watching(prometheus_data, [target], alertmanager.address))
        found = Incident(server, prometheus, alertmanager, inbox, faults)
        found.run()
        yield found
