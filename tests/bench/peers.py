"""Peers side by side: other servers with the same model and the same load, as ratios of one run.

``python -m tests.bench.peers [--quick] [--rounds N] [--only PEER,...] [--cache FOLDER]
[--paper FILE]``

=========  ===========================================================================
part       what runs
=========  ===========================================================================
offline    the model in a perfect loop without a server: stock, and gathered
servers    one after the other, in each round anew: Seawall with its defaults, every peer
           as its own papers show it, and the best of those whose queue can be bounded
           once more, tuned by hand for this machine
=========  ===========================================================================

Each is saturated by 64 clients in a closed loop, then gets twice that in an open loop, with
Seawall's own default deadline for all. The tuned one has a worker of one thread for each core,
batches of four, and of some queue caps round "what waits longest just makes the deadline" the one
with the most goodput. What does not install is named with its reason.

The model is a BERT of six layers with random weights (``peers_model``). It, the environments of
the peers and their logs lie in the cache folder. A full run wants the machine for itself.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from service.bench.command import raise_file_limit
from service.bench.run import machine
from tests.bench.live import write_between
from tests.bench.peers_install import NotInstalled, python_of
from tests.bench.peers_list import PEERS
from tests.bench.peers_measure import Bench, Installed, Measured
from tests.bench.peers_model import built
from tests.bench.peers_process import NotReady, say
from tests.bench.peers_table import Found, text_of
from tests.bench.speed_offline import limits
from tests.tools import ROOT

PROGRAM = "python -m tests.bench.peers"
PAPER = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
CACHE = Path(tempfile.gettempdir()) / "seawall-peers"


@dataclass(frozen=True, slots=True)
class Pace:
    """How long everything takes: seconds of each measurement, rounds, caps that are tried."""

    seconds: float
    rounds: int
    caps: tuple[float, ...]


FULL = Pace(seconds=20.0, rounds=3, caps=(0.7, 0.85, 1.0, 1.2))
QUICK = Pace(seconds=4.0, rounds=1, caps=(0.85,))


def main(arguments: list[str]) -> int:
    """Measure everything; returns 0 if every target is met, else 1."""
    given = _parse(arguments)
    pace = QUICK if given.quick else replace(FULL, rounds=given.rounds)
    raise_file_limit()
    started = time.monotonic()
    model = built(given.cache / "model")
    found = Found()
    installed = _installed(given.cache, given.only, found)
    found.limits = limits(pace.seconds / 2, str(model))
    for one in found.limits:
        say(f"{one.what}: {one.rate:.1f} /s")
    bench = Bench(model, given.cache / "run", pace.seconds)
    for number in range(pace.rounds):
        _round(number, bench, installed, pace, found)
    here = machine()
    how = (
        f"Measured with `{' '.join((PROGRAM, *arguments))}` in"
        f" {(time.monotonic() - started) / 60:.0f} minutes on {here.cpus} CPUs that server and"
        f" generator share, Python {here.python}; medians of {pace.rounds} rounds of"
        f" {pace.seconds:g} s for each figure; deadline {1000 * bench.deadline_s:.0f} ms."
    )
    text, good = text_of(found, how)
    sys.stdout.write(text + "\n")
    if given.paper is not None:
        write_between(given.paper, BEGIN, END, text)
    return 0 if good else 1


def _installed(cache: Path, only: list[str], found: Found) -> list[Installed]:
    there = []
    for peer in PEERS:
        if peer.name not in only:
            continue
        try:
            python = python_of((peer.requirement, *peer.besides), cache / "envs" / peer.name)
        except NotInstalled as reason:
            found.missing[peer.requirement] = str(reason)
        else:
            there.append(Installed(peer, python))
    return there


def _round(number: int, bench: Bench, installed: list[Installed], pace: Pace, found: Found) -> None:
    seed = number + 1
    _note(found, bench.seawall(seed))
    for one in installed:
        if one.peer.requirement in found.missing:
            continue
        try:
            _note(found, bench.peer(one, bench.usual(), seed))
        except (NotReady, ValueError) as reason:
            found.missing[one.peer.requirement] = str(reason)
    if bench.tuned is None:
        capped = {one.peer.requirement: one for one in installed if one.peer.cap}
        found_of = {name: rates[0].own.rps for name, rates in found.measured.items()}
        candidates = [name for name in capped if name in found_of]
        if not candidates:
            return
        best = max(candidates, key=lambda name: found_of[name])
        bench.tune(capped[best], pace.caps, cores=len(os.sched_getaffinity(0)))
    _note(found, bench.peer_tuned(seed))


def _note(found: Found, measured: Measured) -> None:
    found.measured.setdefault(measured.name, []).append(measured)
    say(
        f"{measured.name}: {measured.own.rps:.1f} /s; of twice that"
        f" {measured.point.goodput_rps:.1f} /s in time"
    )


def _parse(arguments: list[str]) -> argparse.Namespace:
    names = [peer.name for peer in PEERS]
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a look at everything")
    parser.add_argument("--rounds", type=int, default=FULL.rounds, help="of all servers (3)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=names,
                        help=f"some of {','.join(names)}")  # fmt: skip
    parser.add_argument("--cache", type=Path, default=CACHE,
                        help="for model, environments and logs")  # fmt: skip
    parser.add_argument("--paper", type=Path, help="the paper to write into")
    given = parser.parse_args(arguments)
    given.cache = given.cache.resolve()
    if given.paper is None and not given.quick and given.only == names:
        given.paper = PAPER
    return given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
