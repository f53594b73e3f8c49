"""A peer's server while it is measured: started, ready, ended with all its processes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.bench.live_ladder import run
from tests.bench.peers_list import Peer, free_port
from tests.bench.peers_load import probe
from tests.bench.peers_servers.knobs import Knobs
from tests.e2e.server import clean_environment
from tests.tools import ROOT

READY_S, END_S, PAUSE_S = 180.0, 8.0, 0.5
PROBE = b"the people of the town [MASK] some years"


class NotReady(Exception):
    """It does not serve; the message says how that showed."""


class PeerServer:
    """A peer that listens on loopback.

    Args:
        peer: which.
        python: of its environment.
        knobs: its settings; the port is chosen here.
        folder: for its log, and for files that it wants.
    """

    def __init__(self, peer: Peer, python: Path, knobs: Knobs, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.peer = peer
        self.port = knobs.port
        self._log = (folder / "server.log").open("w")
        environment = clean_environment(
            **knobs.variables(),
            PYTHONPATH=str(ROOT),
            PATH=f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
            HOME=str(folder),
            BENTOML_DO_NOT_TRACK="True",
            RAY_USAGE_STATS_ENABLED="0",
        )
        self._process = subprocess.Popen(
            [str(python), *peer.command(knobs, folder)],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=self._log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        try:
            self._wait()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def _wait(self) -> None:
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            code = self._process.poll()
            if code is not None:
                raise NotReady(f"its server ended with code {code}")
            with contextlib.suppress(ValueError):
                if run(lambda: probe(self.port, self.peer.shape, PROBE)):
                    return
            time.sleep(PAUSE_S)
        raise NotReady(f"no answer within {READY_S:.0f} s")

    def end(self) -> None:
        """Ask it to end, and end what is left of its processes."""
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(self._process.pid)
            every = [top, *top.children(recursive=True)]
            top.terminate()
            self._process.poll()
            psutil.wait_procs(every, END_S)
            for one in every:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(every, END_S)
        self._process.wait()
        self._log.close()


def knobs_for(model: Path, *, workers: int = 1, threads: int, **more: int) -> Knobs:
    """Settings on a free port."""
    return Knobs(str(model), free_port(), threads, workers, **more)


def say(line: str) -> None:
    """Show how far it is."""
    sys.stderr.write(f"  {line}\n")
