"""One server under the common load: what it can do, and what it does with twice that."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from service.bench.report import Capacity, Point
from tests.bench.live_ladder import run
from tests.bench.live_packaged import all_ready
from tests.bench.peers_list import Peer
from tests.bench.peers_load import SEAWALL, Shape, overload, probe, saturate
from tests.bench.peers_process import PROBE, PeerServer, knobs_for, say
from tests.bench.peers_servers.knobs import Knobs
from tests.e2e.server import Server, wait_for

TUNED_BATCH = 4
ALIKE = 1e-3
"""Of a score, relative: what single precision leaves open over so many words."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer that can be started."""

    peer: Peer
    python: Path


@dataclass(frozen=True, slots=True)
class Measured:
    """One server in one round.

    Attributes:
        name: as its row is called.
        settings: what is to be known of it.
        own: answers a second of 64 clients in a closed loop.
        point: twice that in an open loop.
        alike: whether it answers as Seawall does.
    """

    name: str
    settings: str
    own: Capacity
    point: Point
    alike: bool


@dataclass(slots=True)
class Bench:
    """Measures one server after the other.

    Attributes:
        model: folder of the model.
        folder: for the servers' logs.
        seconds: of each measurement.
        deadline_s: Seawall's default one, of its first start; for all, in all rounds.
        tuned: what was tuned by hand, and its settings.
    """

    model: Path
    folder: Path
    seconds: float
    deadline_s: float = 0.0
    tuned: tuple[Installed, Knobs] | None = None
    _answer: list[tuple[str, float]] = field(default_factory=list)

    def seawall(self, seed: int) -> Measured:
        """Ours, with the defaults."""
        given = ("--deadline-ms", str(round(1000 * self.deadline_s))) if self.deadline_s else ()
        with Server("--model", str(self.model), "--workers", "auto", *given) as server:
            wait_for(lambda: all_ready(server), "all workers")
            status = server.status()
            self.deadline_s = status["limits"]["deadline_s"]
            self._answer = run(lambda: probe(server.port, SEAWALL, PROBE))
            settings = f"{len(status['workers'])} x {status['model']['torch_threads']} threads"
            return self._under_load("Seawall", settings, server.port, SEAWALL, seed)

    def usual(self) -> Knobs:
        """A peer's settings as its papers have them: one worker with all cores."""
        return knobs_for(self.model, threads=len(os.sched_getaffinity(0)))

    def peer(self, one: Installed, knobs: Knobs, seed: int, name: str = "") -> Measured:
        """A peer.

        Raises:
            NotReady: it does not serve.
            ValueError: it answers nothing under load.
        """
        split = f"{knobs.workers} x {knobs.threads} threads, batches of {knobs.batch}"
        settings = f"{split}, cap {knobs.cap}" if knobs.cap else split
        with self._started(one, knobs) as server:
            name = name or one.peer.requirement
            return self._under_load(name, settings, server.port, one.peer.shape, seed)

    def peer_tuned(self, seed: int) -> Measured:
        """The one that was tuned.

        Raises:
            ValueError: none was.
        """
        if self.tuned is None:
            raise ValueError("nothing was tuned")
        one, knobs = self.tuned
        fresh = replace(knobs, port=knobs_for(self.model, threads=1).port)
        return self.peer(one, fresh, seed, f"{one.peer.requirement}, tuned by hand")

    def tune(self, one: Installed, shares: tuple[float, ...], cores: int) -> None:
        """Find its queue cap.

        Args:
            one: which peer.
            shares: of what it can answer within the deadline, caps to try.
            cores: workers of one thread each.
        """
        knobs = knobs_for(self.model, workers=cores, threads=1, batch=TUNED_BATCH)
        shape = one.peer.shape
        with self._started(one, knobs) as server:
            own = run(lambda: saturate(server.port, shape, self.seconds, 1))
        best = -1.0
        for share in shares:
            cap = max(1, round(share * own.rps * self.deadline_s))
            tried = knobs_for(self.model, workers=cores, threads=1, batch=TUNED_BATCH, cap=cap)
            with self._started(one, tried) as server:
                point = run(lambda: self._overload(server.port, shape, own, 1))
            say(f"{one.peer.name} with a cap of {cap}: {point.goodput_rps:.1f} /s in time")
            if point.goodput_rps > best:
                best, self.tuned = point.goodput_rps, (one, tried)

    # ------------------------------------------------------------------ inside

    def _started(self, one: Installed, knobs: Knobs) -> PeerServer:
        return PeerServer(one.peer, one.python, knobs, self.folder / one.peer.name)

    def _under_load(self, name: str, settings: str, port: int, shape: Shape, seed: int) -> Measured:
        alike = self._is_alike(run(lambda: probe(port, shape, PROBE)))
        own = run(lambda: saturate(port, shape, self.seconds, seed))
        point = run(lambda: self._overload(port, shape, own, seed))
        return Measured(name, settings, own, point, alike)

    async def _overload(self, port: int, shape: Shape, own: Capacity, seed: int) -> Point:
        return await overload(port, shape, self.seconds, seed, own=own, deadline_s=self.deadline_s)

    def _is_alike(self, answer: list[tuple[str, float]]) -> bool:
        return len(answer) == len(self._answer) and all(
            token == ours and abs(score - wanted) <= ALIKE * wanted
            for (token, score), (ours, wanted) in zip(answer, self._answer, strict=True)
        )
