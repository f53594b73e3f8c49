"""What was asked for: the flags of ``seawall bench``."""

from __future__ import annotations

import argparse
import ipaddress
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from service import NAME
from service.bench.client import Address
from service.bench.plot import FORMATS
from service.bench.retries import RetryKind
from service.bench.schedule import Arrivals

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_RATES = "0.5x,1x,2x,5x,10x"
MOST_RATE = 1e6
WARMUP_SHARE = 0.5
"""A warm-up longer than this part of a phase would leave too little to measure."""


class BadOption(Exception):
    """A flag cannot be used as given; the message is one line."""


@dataclass(frozen=True, slots=True)
class Rate:
    """An offered rate: requests a second, or a multiple of the capacity C."""

    value: float
    of_capacity: bool

    @property
    def label(self) -> str:
        """As people write it."""
        return f"{self.value:g}x" if self.of_capacity else f"{self.value:g}/s"

    def rps(self, capacity_rps: float) -> float:
        """In requests a second."""
        return self.value * capacity_rps if self.of_capacity else self.value


@dataclass(frozen=True, slots=True)
class Options:
    """One benchmark, as asked for. ``None`` means "as the server says"."""

    address: Address
    metrics_address: Address
    rates: tuple[Rate, ...] = ()
    seconds: float = 30.0
    warmup_s: float = 2.0
    capacity_rps: float | None = None
    capacity_s: float = 20.0
    connections: int = 64
    arrivals: Arrivals = Arrivals.POISSON
    retries: RetryKind = RetryKind.NONE
    words_median: float = 24.0
    words_sigma: float = 0.8
    words_min: int = 4
    words_max: int | None = None
    deadline_ms: float | None = None
    deadline_spread: float = 0.5
    seed: int = 1
    api_key_file: Path | None = None
    json: Path | None = None
    plot: Path | None = None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadOption(message)


_T = TypeVar("_T", int, float)


def _within(read: Callable[[str], _T], least: _T, most: _T) -> Callable[[str], _T]:
    def number(text: str) -> _T:
        try:
            value = read(text)
        except ValueError:
            value = read("-1")
        if not least <= value <= most:  # also "nan"
            raise argparse.ArgumentTypeError(f"must be a number from {least:g} to {most:g}")
        return value

    return number


def _rates(text: str) -> tuple[Rate, ...]:
    found = []
    for word in text.split(","):
        of_capacity = word.strip().endswith("x")
        try:
            value = float(word.strip().removesuffix("x"))
        except ValueError:
            value = math.nan
        if not 0 < value <= MOST_RATE:
            raise argparse.ArgumentTypeError("must be rates such as 0.5x,2x or 100,500")
        found.append(Rate(value, of_capacity))
    return tuple(found)


def _address(name: str, text: str, *, allow_remote: bool) -> Address:
    try:
        address = Address.parse(text)
    except ValueError:
        raise BadOption(f"{name} must be {DEFAULT_URL} or the like, or unix:PATH") from None
    if not allow_remote and not is_loopback(address):
        raise BadOption(
            f"{address.host} is not on this machine: a benchmark floods the server; if you"
            " may do that, say --allow-remote"
        )
    return address


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"{NAME} bench",
        description="Open-loop load on a running server, and a report. Every send time is fixed"
        " beforehand and latency counts from it.",
        epilog="It floods the server: a rate of 10x is ten times what it can do. Addresses other"
        " than loopback need --allow-remote.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "url",
        nargs="?",
        default=DEFAULT_URL,
        metavar="URL",
        help=f"the server, by default {DEFAULT_URL}; unix:PATH works too",
    )
    add(
        "--rates",
        type=_rates,
        default=_rates(DEFAULT_RATES),
        help=f"what to offer, in requests a second or in multiples of C: {DEFAULT_RATES}",
    )
    add(
        "--seconds",
        type=_within(float, 0.5, 86_400),
        default=30.0,
        help="length of each rate, its warm-up included (30)",
    )
    add(
        "--warmup-s",
        type=_within(float, 0, 3600),
        default=2.0,
        help="start of each rate that figures leave out (2)",
    )
    add(
        "--capacity",
        type=_within(float, 0.001, MOST_RATE),
        metavar="RPS",
        help="C, if it is known; else it is measured first, in a closed loop",
    )
    add(
        "--capacity-s",
        type=_within(float, 0.5, 3600),
        default=20.0,
        help="length of that measurement (20)",
    )
    add("--connections", type=_within(int, 1, 10_000), default=64, help="of the closed loop (64)")
    add(
        "--arrivals",
        choices=[*Arrivals],
        default=Arrivals.POISSON,
        help="bursty: three states of 0.5, 1 and 3 times the rate, the mean kept",
    )
    add(
        "--retries",
        choices=[*RetryKind],
        default=RetryKind.NONE,
        help="what clients do when refused",
    )
    add(
        "--words-median",
        type=_within(float, 1, 1e5),
        default=24.0,
        help="lengths are lognormal (24)",
    )
    add("--words-sigma", type=_within(float, 0, 5), default=0.8, help="their spread (0.8)")
    add("--words-min", type=_within(int, 1, 100_000), default=4, help="shortest input (4)")
    add(
        "--words-max",
        type=_within(int, 1, 100_000),
        help="longest input (512, or nine tenths of what the model takes)",
    )
    add(
        "--deadline-ms",
        type=_within(float, 1, 3_600_000),
        help="D; requests name 0.5 to 1.5 D as their deadline (the server's default deadline)",
    )
    add(
        "--deadline-spread",
        type=_within(float, 0, 0.99),
        default=0.5,
        help="another spread than 0.5; 0 names D itself",
    )
    add("--seed", type=_within(int, 0, 2**31), default=1, help="of everything random (1)")
    add("--json", type=Path, metavar="FILE", help="write the report as JSON")
    add("--plot", type=Path, metavar="FILE", help="draw it, as .png or .svg (extra: bench)")
    add(
        "--metrics-url",
        metavar="URL",
        help="where /metrics and /status are, if the server has another address for them",
    )
    add("--api-key-file", type=Path, metavar="FILE", help="file with the API key to send")
    add(
        "--allow-remote",
        action="store_true",
        help="flood a server that is not on this machine: I may do that",
    )
    return parser


def help_text() -> str:
    """Every flag."""
    return _parser().format_help()


def parse(args: Sequence[str]) -> Options:
    """Read the flags.

    Raises:
        BadOption: with one line on the first that cannot be used.
    """
    given = _parser().parse_args(args)
    remote = given.allow_remote
    address = _address("URL", given.url, allow_remote=remote)
    watching = _address("--metrics-url", given.metrics_url or given.url, allow_remote=remote)
    if given.warmup_s > WARMUP_SHARE * given.seconds:
        raise BadOption("--warmup-s must be at most half of --seconds")
    if given.words_max is not None and given.words_max < given.words_min:
        raise BadOption("--words-max must not be less than --words-min")
    if given.plot is not None and given.plot.suffix.lower() not in FORMATS:
        raise BadOption(f"--plot must end with {' or '.join(FORMATS)}")
    return Options(
        address=address,
        metrics_address=watching,
        rates=given.rates,
        seconds=given.seconds,
        warmup_s=given.warmup_s,
        capacity_rps=given.capacity,
        capacity_s=given.capacity_s,
        connections=given.connections,
        arrivals=Arrivals(given.arrivals),
        retries=RetryKind(given.retries),
        words_median=given.words_median,
        words_sigma=given.words_sigma,
        words_min=given.words_min,
        words_max=given.words_max,
        deadline_ms=given.deadline_ms,
        deadline_spread=given.deadline_spread,
        seed=given.seed,
        api_key_file=given.api_key_file,
        json=given.json,
        plot=given.plot,
    )


def is_loopback(address: Address) -> bool:
    """Whether nothing but this machine can be meant; names are not looked up."""
    if address.path or address.host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return False  # any other name may resolve to anything
