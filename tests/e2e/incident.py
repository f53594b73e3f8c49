"""A short incident on a real server under a real Prometheus, with what each panel showed in it."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.grafana_board import EXPRESSIONS, MARKS, filled
from tests.e2e.faulty import broken, faulty
from tests.e2e.load import Answer, Call, in_background
from tests.e2e.prometheus import Prometheus, Series, free_port
from tests.e2e.server import PAUSE_S, Server, wait_for

WINDOW = "4s"
"""What Grafana makes of ``$__rate_interval`` with a scrape each second."""

SEEN_S = 3.0
"""So long after it has happened a thing is seen: two scrapes, and well inside the window."""

EVERYTHING = {**EXPRESSIONS, **MARKS}

LIMIT = 20
"""Items that may wait."""

USUAL = [Call("one two three"), Call("word " * 12)]
"""Of different lengths, so that a batch has padding."""


def slow(milliseconds: int, **headers: str) -> Call:
    """A request that keeps the worker busy for so long."""
    return Call("a b", {"X-Rehearse-Fault": f"slow={milliseconds}", **headers})


def fault(name: str) -> Call:
    """A request that fails in a way of its own."""
    return Call(f"culprit {name}", {"X-Rehearse-Fault": name})


CROWD = [slow(100)] * LIMIT
HASTY = {"X-Request-Timeout-Ms": "700"}


@contextmanager
def traffic(port: int, calls: Sequence[Call], pause_s: float) -> Iterator[None]:
    """The same requests again and again meanwhile, whether the last ones have ended or not."""
    over = threading.Event()
    sent: list[Future[list[Answer]]] = []

    def send() -> None:
        while not over.wait(pause_s):
            sent.append(in_background(port, calls))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for one in sent:
            one.result()


def leave(port: int) -> None:
    """Ask for something and do not wait for it."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(slow(300).wire(f"127.0.0.1:{port}"))


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
        looks: what was shown at the end of each phase.
        start: when it began.
    """

    prometheus: Prometheus
    busy: Server
    idle: Server
    dead: str
    folder: Path
    looks: dict[str, Look] = field(default_factory=dict)
    start: float = field(default_factory=time.time)

    def ask(
        self, name: str, *, instance: str = ".+", at: float | None = None
    ) -> dict[tuple[str, ...], float]:
        """What an expression of the dashboard gives, now or at a moment."""
        expr = filled(EVERYTHING[name], window=WINDOW, span="5m")
        chosen = expr.replace('instance=~".+"', f'instance=~"{instance}"')
        return _shown(self.prometheus.at(at or time.time(), chosen))

    def look(self, *, instance: str = ".+") -> Look:
        """What all of them give at this one moment."""
        now = time.time()
        return Look({name: self.ask(name, instance=instance, at=now) for name in EVERYTHING})

    def phase(
        self, name: str, reached: Callable[[], object], doing: Callable[[], object] | None = None
    ) -> None:
        """Wait until a phase shows, and keep what is shown then.

        Args:
            name: of the phase.
            reached: whether it shows.
            doing: what brings it about; done again where it was not seen together.
        """

        def shows() -> bool:
            end = time.monotonic() + SEEN_S
            if doing:
                doing()
            while not reached():
                if time.monotonic() > end:
                    return False
                time.sleep(PAUSE_S)
            return True

        wait_for(shows, f"the phase {name}")
        self.looks[name] = self.look()

    def throughout(self, name: str) -> list[Series]:
        """What an expression of the dashboard gave, second for second."""
        expr = filled(EVERYTHING[name], window=WINDOW, span="5m")
        return self.prometheus.between(expr, self.start, time.time())

    def run(self) -> None:
        """Let it happen, one phase after another."""
        scrapes = "min(count_over_time(seawall_ready[1m])) >= 4"
        self.phase("nothing", lambda: self.prometheus.value(scrapes))
        self._late()
        self._faults()
        with traffic(self.busy.port, USUAL, 0.2):
            self.phase("steady", lambda: self.ask("Good answers/A")[()] > 2)
            self._overload()
            self._kill()
            self._break()
            self.phase("over", self._is_quiet)

    def _late(self) -> None:
        def hurry() -> None:
            in_the_model = self.busy.send(slow(1200, **HASTY))
            self.busy.wait_running()
            in_the_queue = self.busy.send(*[Call("a b", HASTY)] * 3)
            in_the_model.result()
            in_the_queue.result()

        stages = {("queued",), ("running",)}
        self.phase("late", lambda: stages <= set(self.ask("Why requests fail/B")), hurry)

    def _faults(self) -> None:
        def fail() -> None:
            for name in ("oom-always", "raise"):
                # What comes while the first one runs becomes one batch.
                self.busy.send(slow(300), fault(name), *USUAL).result()

        def seen() -> bool:
            found = self.ask("Memory of a batch/A") | self.ask("Memory of a batch/B")
            return all(found[name,] > 0 for name in ("failed", "split", "oom", "isolate"))

        self.phase("faults", seen, fail)

    def _overload(self) -> None:
        with traffic(self.busy.port, CROWD, 0.3):

            def full() -> bool:
                leave(self.busy.port)
                refusing = self.ask("What refuses/B")["items",]
                return self.ask("Queue fill/A")[()] > 0.7 and refusing > 0.2

            self.phase("overload", full)

    def _kill(self) -> None:
        os.kill(self.busy.worker_pid, signal.SIGKILL)
        self.phase("killed", lambda: self.ask("Workers/B")["crashed",] > 0)
        self.busy.wait_ready()

    def _break(self) -> None:
        with broken(self.folder):
            self.phase("broken", lambda: 2 in self.ask("Breaker/A").values())
        self.busy.wait_ready()

    def _is_quiet(self) -> bool:
        bad, good = (self.ask(f"{name}/A")[()] for name in ("Answered badly", "Good answers"))
        return bad == 0 and good > 1 and not any(self.ask("Breaker/A").values())


@contextmanager
def incident(folder: Path) -> Iterator[Incident]:
    """The whole incident, when it is over and everything still runs."""
    faults, data = folder / "faults", folder / "prometheus"
    for one in (faults, data):
        one.mkdir()
    flags = ("--rehearsal", "--queue-limit", str(LIMIT), "--breaker-failures", "3")
    times = ("--deadline-ms", "20000", "--max-wait-ms", "10000", "--breaker-probe-ms", "300")
    model = ("--model", "synthetic:cpu")
    dead = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        busy = stack.enter_context(Server(command=faulty(faults, *model, *flags, *times)))
        idle = stack.enter_context(Server(*model))
        places = [f"127.0.0.1:{server.port}" for server in (busy, idle)]
        prometheus = stack.enter_context(Prometheus(data, [*places, dead]))
        found = Incident(prometheus, busy, idle, dead, faults)
        found.run()
        yield found
