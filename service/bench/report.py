"""The report as types: what ``--json`` writes, field by field.

Laws
- Units stand in the names; a share is from 0 to 1; a figure that cannot be had is null.
- ``format`` changes when a field goes or changes its meaning, not when one is added.
"""

from __future__ import annotations

import msgspec

FORMAT = 1

KNEE_SHARE = 0.99
"""Success that counts as good at the knee."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the report."""


class Latency(_Part, frozen=True):
    """Latencies of one kind of answer, from the scheduled send time; null where there was none."""

    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None


class Fairness(_Part, frozen=True):
    """Success of short and long inputs.

    Attributes:
        shortest_quarter: share of the shortest quarter that succeeded.
        longest_tenth: share of the longest tenth that did.
        ratio: the second by the first.
    """

    shortest_quarter: float | None
    longest_tenth: float | None
    ratio: float | None


class ServerSide(_Part, frozen=True):
    """What the server counted during the phase, its warm-up included.

    Attributes:
        outcomes: prediction requests by how they ended.
        wasted_share: of the model's time, for requests that were late, gone or failed.
        batch_items: mean size of a batch.
        padding_share: of the tokens that went through the model.
        gap_share: time in which a worker was idle although work waited, by the batches' time.
        full_items_share: of the wall time in which the queue had no room.
        full_wait_share: of the wall time in which the predicted wait was over its cap.
        front_cpu_share: CPU of the server's front process, in cores.
    """

    outcomes: dict[str, int]
    wasted_share: float | None
    batch_items: float | None
    padding_share: float | None
    gap_share: float | None
    full_items_share: float | None
    full_wait_share: float | None
    front_cpu_share: float | None


class GeneratorSide(_Part, frozen=True):
    """What the generator itself cost, and how late it was.

    Attributes:
        cpu_share: its CPU, in cores.
        cpu_us_per_request: its CPU for each request.
        lag_p50_ms: how late requests were sent; counted in every latency.
        lag_p99_ms: the same.
    """

    cpu_share: float
    cpu_us_per_request: float
    lag_p50_ms: float | None
    lag_p99_ms: float | None


class Point(_Part, frozen=True):
    """One rate.

    Attributes:
        label: as asked for, ``2x`` or ``120/s``.
        rate_rps: what that is in requests a second.
        seconds: measured time, without warm-up.
        offered_rps: new requests a second in that time.
        goodput_rps: good answers within the deadline that came in that time, a second.
        goodput_of_capacity: the same by the capacity, where that is known.
        goodput_words_rps: their words a second.
        goodput_words_of_capacity: the same by the capacity in words.
        success_share: of new requests, good answers within the deadline.
        attempts: every request sent, warm-up and retries included.
        outcomes: how every one of them ended, as the client saw it.
        latency: of the successes.
        refusal: of answers 503.
        late_share: of all answers, those later than the deadline by more than 20 ms.
    """

    label: str
    rate_rps: float
    seconds: float
    offered_rps: float
    goodput_rps: float
    goodput_of_capacity: float | None
    goodput_words_rps: float
    goodput_words_of_capacity: float | None
    success_share: float
    attempts: int
    outcomes: dict[str, int]
    latency: Latency
    refusal: Latency
    late_share: float
    fairness: Fairness
    server: ServerSide | None
    generator: GeneratorSide


class Capacity(_Part, frozen=True):
    """What the server can do when it is kept busy.

    Attributes:
        rps: good answers a second.
        words_rps: their words a second; null where it was not measured.
        how: how it was found.
    """

    rps: float
    words_rps: float | None
    how: str


class Limits(_Part, frozen=True):
    """The server's limits in force."""

    deadline_ms: float
    wait_cap_ms: float
    batch_ms: float
    batch_tokens: float
    queue_limit: int


class Server(_Part, frozen=True):
    """What was measured."""

    version: str
    task: str
    model: str
    device: str
    limits: Limits | None


class Load(_Part, frozen=True):
    """What was offered."""

    arrivals: str
    retries: str
    words_median: float
    words_sigma: float
    words_min: int
    words_max: int
    deadline_ms: float | None
    deadline_spread: float
    seconds: float
    warmup_seconds: float
    seed: int


class Machine(_Part, frozen=True):
    """Where the generator ran."""

    cpus: int
    cpu_limit_cores: float
    python: str


class Knee(_Part, frozen=True):
    """The largest rate at which at least ``needed_share`` of the requests succeeded."""

    needed_share: float
    label: str
    rate_rps: float


class Report(_Part, frozen=True):
    """One benchmark."""

    format: int
    version: str
    started: str
    server: Server
    load: Load
    machine: Machine
    capacity: Capacity | None
    points: list[Point]
    knee: Knee | None
    notes: list[str]


def to_json(report: Report) -> bytes:
    """The report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
