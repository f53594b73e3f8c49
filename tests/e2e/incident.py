"""A short incident on a real server under a real Prometheus, with what each panel showed in it.

Nothing here depends on how fast the machine is. The model is synthetic and takes the time that a
request names, whoever else computes; more clients ask than places and a batch can hold, so that the
queue is full however slowly they ask; a phase lasts until all that it must show is shown by the
answers of one moment, and those answers are what the tests look at.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.grafana_board import EXPRESSIONS, MARKS, filled
from tests.e2e.faulty import broken, faulty
from tests.e2e.load import Call, crowd
from tests.e2e.prometheus import Prometheus, Series, free_port
from tests.e2e.server import LONG_S, Server, wait_for

WINDOW = "4s"
"""What Grafana makes of ``$__rate_interval`` with a scrape each second."""

SEEN_S = 6.0
"""So long what was done can be seen: the window, and two scrapes. Then it is done again."""

LOOK_S = 0.25
"""Between two looks, which cost Prometheus some sixty queries each."""

EVERYTHING = {**EXPRESSIONS, **MARKS}

LIMIT = 20
"""Items that may wait."""

BATCH_MS = 500
CROWD = 40
"""Clients of the overload: more than wait, and five of 100 ms in a batch."""

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACED = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
USUAL = [Call("one two three", TRACED), Call("word " * 12, TRACED)]
"""Of different lengths, so that a batch has padding."""


def slow(milliseconds: int, **headers: str) -> Call:
    """A request that keeps the worker busy for so long."""
    return Call("a b", {"X-Rehearse-Fault": f"slow={milliseconds}", **headers})


def fault(name: str) -> Call:
    """A request that fails in a way of its own."""
    return Call(f"culprit {name}", {"X-Rehearse-Fault": name})


HOLD = slow(2000)
"""Time for others to arrive behind it."""


@dataclass(frozen=True)
class Look:
    """What every panel shows at one moment: by panel and letter, label values and value."""

    shown: dict[str, dict[tuple[str, ...], float]]

    def __getitem__(self, name: str) -> dict[tuple[str, ...], float]:
        return self.shown[name]

    def one(self, name: str) -> float:
        """The value of what has one series without labels."""
        [(labels, value)] = self.shown[name].items()
        assert labels == ()
        return value

    def empty(self) -> set[str]:
        """What shows nothing."""
        return {name for name, shown in self.shown.items() if not shown}


Must = Callable[["Incident", Look], None]
"""What a phase must show; raises where it does not, or not yet."""


def _shown(series: list[Series]) -> dict[tuple[str, ...], float]:
    return {
        tuple(value for _, value in sorted(labels.items())): samples[-1][1]
        for labels, samples in series
    }


@dataclass
class Incident:
    """The servers, their Prometheus, and what was seen.

    Attributes:
        busy: the server that has the incident.
        idle: one that has no traffic at all.
        dead: the address of one that is not there.
        must: by phase, what it must show.
        looks: what was shown at the end of each phase.
        start: when it began.
    """

    prometheus: Prometheus
    busy: Server
    idle: Server
    dead: str
    folder: Path
    must: Mapping[str, Must]
    looks: dict[str, Look] = field(default_factory=dict)
    start: float = field(default_factory=time.time)

    @property
    def places(self) -> tuple[str, str]:
        """The addresses of the busy and of the idle one."""
        return f"127.0.0.1:{self.busy.port}", f"127.0.0.1:{self.idle.port}"

    def look(self, *, instance: str = ".+") -> Look:
        """What all of them give at this one moment."""
        now = time.time()

        def ask(expr: str) -> dict[tuple[str, ...], float]:
            asked = filled(expr, window=WINDOW, span="5m")
            chosen = asked.replace('instance=~".+"', f'instance=~"{instance}"')
            return _shown(self.prometheus.at(now, chosen))

        return Look({name: ask(expr) for name, expr in EVERYTHING.items()})

    def phase(
        self, name: str, doing: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        """Wait until a phase shows what it must, and keep what is shown then.

        In vain, the last look is kept: the phase's own test says what it lacks.

        Args:
            name: of the phase.
            doing: what brings it about, and lasts while it is looked at; done again where it was
                not seen.
        """
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            with doing():
                again = time.monotonic() + SEEN_S
                while time.monotonic() < again:
                    self.looks[name] = self.look()
                    if self.shows(name):
                        return
                    time.sleep(LOOK_S)

    def shows(self, name: str) -> bool:
        """Whether a phase's look has all that it must have."""
        try:
            self.must[name](self, self.looks[name])
        except (AssertionError, KeyError, ValueError):
            return False
        return True

    def throughout(self, name: str) -> list[Series]:
        """What an expression of the dashboard gave, second for second."""
        expr = filled(EVERYTHING[name], window=WINDOW, span="5m")
        return self.prometheus.between(expr, self.start, time.time())

    def run(self) -> None:
        """Let it happen, one phase after another."""
        scrapes = "min(count_over_time(seawall_ready[1m])) >= 4"
        wait_for(lambda: self.prometheus.value(scrapes), "the first scrapes")
        self.phase("nothing")
        self.phase("late", self._hurry)
        self.phase("too large", lambda: self._culprit("oom-always"))
        self.phase("culprit", lambda: self._culprit("raise"))
        with crowd(self.busy.port, USUAL, clients=4, pause_s=0.2):
            self.phase("steady")
            with crowd(self.busy.port, [slow(100)], clients=CROWD, pause_s=0.3):
                self.phase("overload")
            self.phase("killed", self._kill)
            self.phase("broken", self._break)
            self.phase("over")

    @contextmanager
    def _hurry(self) -> Iterator[None]:
        """One is late in the model, and behind it one in the queue; a third does not wait.

        And one speaks no HTTP.
        """
        for _ in range(3):
            self.busy.predict("a usual one, so that the next are not refused")
        held = self.busy.send(slow(2500, **{"X-Request-Timeout-Ms": "2000"}))
        self.busy.wait_running()
        late = self.busy.send(Call("a b", {"X-Request-Timeout-Ms": "1200"}))
        with socket.create_connection(("127.0.0.1", self.busy.port)) as client:
            client.sendall(b"this is no HTTP\r\n\r\n")
            while client.recv(4096):
                pass
        with socket.create_connection(("127.0.0.1", self.busy.port)) as client:
            client.sendall(Call("a b").wire(f"127.0.0.1:{self.busy.port}"))
            wait_for(lambda: self.busy.status()["queue"]["depth"] or held.done(), "those behind it")
        late.result()
        held.result()
        yield

    @contextmanager
    def _culprit(self, name: str) -> Iterator[None]:
        """A batch with one that fails: what arrives while the worker is held becomes one batch."""
        held = self.busy.send(HOLD)
        self.busy.wait_running()
        self.busy.send(fault(name), *USUAL).result()
        held.result()
        yield

    @contextmanager
    def _kill(self) -> Iterator[None]:
        os.kill(self.busy.worker_pid, signal.SIGKILL)
        yield
        self.busy.wait_ready()

    @contextmanager
    def _break(self) -> Iterator[None]:
        with broken(self.folder):
            wait_for(lambda: self.busy.breaker == "open", "the breaker to open")
            yield
        self.busy.wait_ready()


@contextmanager
def incident(folder: Path, must: Mapping[str, Must]) -> Iterator[Incident]:
    """The whole incident, when it is over and everything still runs."""
    faults, data = folder / "faults", folder / "prometheus"
    for one in (faults, data):
        one.mkdir()
    flags: Sequence[str] = (
        "--model", "synthetic:cpu", "--rehearsal", "--queue-limit", str(LIMIT),
        "--batch-ms", str(BATCH_MS), "--deadline-ms", "20000", "--max-wait-ms", "20000",
        "--breaker-failures", "3", "--breaker-probe-ms", "300", "--restart-limit", "100",
    )  # fmt: skip
    dead = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        busy = stack.enter_context(Server(command=faulty(faults, *flags)))
        idle = stack.enter_context(Server("--model", "synthetic:cpu"))
        places = [f"127.0.0.1:{server.port}" for server in (busy, idle)]
        prometheus = stack.enter_context(Prometheus(data, [*places, dead]))
        found = Incident(prometheus, busy, idle, dead, faults, must)
        found.run()
        yield found
