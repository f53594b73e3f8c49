"""What the picture of the dashboard shows: two replicas through ten minutes of trouble.

==========  =======  ========================================================================
phase       seconds  what happens
==========  =======  ========================================================================
steady      110      two fifths of what both can do
worker      70       one of the two workers of replica b is killed, and comes back
inputs      40       more comes in, and of it some does not fit the memory or makes the model raise
breaker     75       the model of replica b is broken for half of the time
steady      75       as before
busy        60       nine tenths of what both can do
overload    130      two and a half times of what they can do; still so when the picture is taken
==========  =======  ========================================================================

All the time a few clients ask for what cannot be, name short deadlines, or leave.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.faulty import broken, faulty
from tests.e2e.load import Call, send
from tests.e2e.prometheus import Prometheus, shipped
from tests.e2e.server import Server, wait_for

SCRAPE_S = 2
"""Often, so that ten minutes show what an hour would at every 15 s."""

CAPACITY = 70.0
"""Inputs per second that two workers on each of two replicas do: texts of 80 words take about 45 ms
of a worker."""

FLAGS = (
    "--model", "synthetic:cpu", "--workers", "2", "--rehearsal", "--breaker-failures", "3",
)  # fmt: skip

WORDS = 80
SEED = 6

Sometimes = Sequence[tuple[float, Call]]
"""Calls in the place of the usual one, each with its share."""

LEFT_OUT = Call("a client that does not wait")

ALWAYS: Sometimes = (
    (0.02, Call({"inputs": "a text", "parameters": {"unknown": 1}})),
    (0.02, LEFT_OUT),
    (0.03, Call("a text in a hurry " * 12, {"X-Request-Timeout-Ms": "120"})),
)
FAULTS: Sometimes = (
    (0.03, Call("too large", {"X-Rehearse-Fault": "oom"})),
    (0.01, Call("far too large", {"X-Rehearse-Fault": "oom-always"})),
    (0.02, Call("a culprit", {"X-Rehearse-Fault": "raise"})),
)


@dataclass
class Crowd:
    """Clients that arrive at random at a rate, whatever became of those before them.

    Attributes:
        rate: requests per second at present, over all ports.
        special: what some of them send at present.
    """

    ports: Sequence[int]
    rate: float = 0.0
    special: Sometimes = ALWAYS
    _over: threading.Event = field(default_factory=threading.Event)
    _chance: random.Random = field(default_factory=lambda: random.Random(SEED))

    @contextmanager
    def here(self) -> Iterator[None]:
        """They come while the block runs."""
        thread = threading.Thread(target=asyncio.run, args=(self._come(),), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    async def _come(self) -> None:
        inside: set[asyncio.Task[None]] = set()
        due = time.monotonic()
        while not self._over.is_set():
            due += self._chance.expovariate(self.rate) if self.rate else 0.1
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if self.rate:
                one = asyncio.create_task(self._ask(self._chance.choice(self.ports), self._call()))
                inside.add(one)
                one.add_done_callback(inside.discard)
        await asyncio.gather(*inside)

    def _call(self) -> Call:
        draw = self._chance.random()
        for share, call in self.special:
            draw -= share
            if draw < 0:
                return call
        words = min(400, max(4, round(self._chance.lognormvariate(0.0, 0.5) * WORDS)))
        trace = f"00-{self._chance.getrandbits(128):032x}-{self._chance.getrandbits(64):016x}-01"
        return Call("word " * words, {"traceparent": trace})

    async def _ask(self, port: int, call: Call) -> None:
        if call is not LEFT_OUT:
            await send(port, call)
            return
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(call.wire(f"127.0.0.1:{port}"))
        writer.close()


class Watching(Prometheus):
    """A Prometheus that knows its replicas by names."""

    def files(self, targets: Sequence[str]) -> dict[str, Any]:
        """The shipped configuration with these targets, scraped more often."""
        config = shipped("prometheus.yml")
        config["global"] = dict.fromkeys(config["global"], f"{SCRAPE_S}s")
        del config["alerting"], config["rule_files"]
        [job] = config["scrape_configs"]
        job["static_configs"] = [
            {"targets": [target], "labels": {"instance": f"seawall-{name}"}}
            for name, target in zip("abc", targets, strict=False)
        ]
        return {"prometheus.yml": config}


@dataclass
class Scene:
    """The replicas under their crowd."""

    replicas: Sequence[Server]
    crowd: Crowd
    faults: Sequence[Path]
    prometheus: Prometheus
    say: Callable[[str], None]
    start: float = field(default_factory=time.time)

    @property
    def address(self) -> str:
        """Of Prometheus."""
        return str(self.prometheus.client.base_url).rstrip("/")

    def phase(self, name: str, seconds: float, load: float, special: Sometimes = ()) -> None:
        """Let so much happen for so long."""
        self.say(f"{name}: {seconds:.0f} s at {load:.1f} of what they can do")
        self.crowd.rate, self.crowd.special = load * CAPACITY, (*special, *ALWAYS)
        time.sleep(seconds)

    def play(self) -> None:
        """All of it."""
        steady = 0.4
        self.phase("steady", 110, steady)
        [victim, _] = self.replicas[1].status()["workers"]
        os.kill(victim["pid"], signal.SIGKILL)
        self.phase("a worker is lost", 70, steady)
        self.phase("bad inputs", 40, 0.9, FAULTS)
        with broken(self.faults[1]):
            self.phase("a broken model", 40, steady)
        self.phase("it works again", 35, steady)
        self.phase("steady", 75, steady)
        self.phase("busy", 60, 0.9)
        self.phase("overload", 130, 2.5)


@contextmanager
def played(folder: Path, say: Callable[[str], None]) -> Iterator[Scene]:
    """The scene when all has happened, its overload still going on."""
    faults = [folder / f"faults-{name}" for name in "ab"]
    data = folder / "prometheus"
    for one in (*faults, data):
        one.mkdir()
    with ExitStack() as stack:
        replicas = [stack.enter_context(Server(command=faulty(one, *FLAGS))) for one in faults]
        ports = [server.port for server in replicas]
        targets = [f"127.0.0.1:{port}" for port in ports]
        prometheus = stack.enter_context(Watching(data, targets))
        wait_for(lambda: prometheus.value("sum(up) == 2"), "the first scrapes")
        crowd = Crowd(ports)
        stack.enter_context(crowd.here())
        scene = Scene(replicas, crowd, faults, prometheus, say)
        scene.play()
        yield scene
