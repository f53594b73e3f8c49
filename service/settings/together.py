"""Which settings cannot hold together (refused) and which are unwise (a warning of ``check``).

A rule looks at numbers only where they are known: an ``auto`` is derived to fit the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from service.core.limits import derive
from service.settings.values import number
from service.worker.wire import Facts

if TYPE_CHECKING:  # the model asks this module about itself
    from service.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Conflict:
    """One setting at fault, and what to do, to be read after its name."""

    setting: str
    message: str


def conflicts(settings: Settings) -> tuple[Conflict, ...]:
    """Everything that cannot hold together, in the order of the table."""
    return tuple(_conflicts(settings))


def _conflicts(s: Settings) -> Iterator[Conflict]:
    if s.metrics_address == s.address and (s.address.port or s.address.is_unix):
        yield Conflict("metrics_bind", "must differ from bind: choose another port or leave it out")
    if s.task == "synthetic" and not s.synthetic:
        yield Conflict("model", "must be synthetic:cpu or synthetic:gpu with the task synthetic")
    if s.synthetic and s.task != "synthetic":
        yield Conflict("task", "must be synthetic with a synthetic: model: leave it out")
    deadline = s.limit_settings.deadline_ms
    if deadline is not None and deadline > s.max_deadline_ms:
        yield Conflict("deadline_ms", "must be at most max_deadline_ms: lower it or raise that one")
    name, most = (
        ("max_deadline_ms", s.max_deadline_ms) if deadline is None else ("deadline_ms", deadline)
    )
    for setting in ("max_wait_ms", "batch_ms"):
        value = getattr(s.limit_settings, setting)
        if value is not None and value > most:
            yield Conflict(setting, f"must be at most {name}: lower it or raise that one")
    batch, watchdog = s.limit_settings.batch_ms, s.limit_settings.watchdog_ms
    if batch is not None and watchdog is not None and watchdog <= batch:
        yield Conflict(
            "watchdog_ms", "must be more than batch_ms, or it ends good batches: raise it"
        )
    if s.rehearsal and not s.address.is_loopback:
        yield Conflict(
            "rehearsal", "must be off unless bound to loopback: leave it out or bind 127.0.0.1:8000"
        )


def is_open(s: Settings) -> bool:
    """Whether anybody on another machine can ask for predictions: said at every start."""
    return not s.address.is_loopback and not s.api_keys_file


def warnings(s: Settings) -> list[str]:
    """Whatever is legal but unwise, one sentence each, beginning with the setting's name."""
    return list(_warnings(s))


def _warnings(s: Settings) -> Iterator[str]:
    deadline = s.limit_settings.deadline_ms
    if s.rehearsal:
        yield "rehearsal: faults are acted out on demand; never on a server that people use."
    yield from _of_clients(s)
    if s.trust_remote_code:
        yield "trust_remote_code: a worker runs code that comes with the model."
    if s.model_is_folder and not Path(s.model_path).is_dir():
        yield "model: there is no such folder."
    if s.revision and (s.packaged_model or s.synthetic or s.model_is_folder):
        yield "revision: has no effect: the model is not from the hub."
    yield from _of_times(s, deadline)
    if s.max_items > s.queue_limit:
        yield "max_items: more than queue_limit; a list longer than the queue is refused."
    if s.max_body_bytes > s.max_receiving_bytes:
        yield "max_body_bytes: more than max_receiving_bytes; so large a body is never received."
    if s.max_body_bytes > s.queue_bytes:
        yield "max_body_bytes: more than queue_bytes; so large a body never fits the queue."


def _of_clients(s: Settings) -> Iterator[str]:
    if is_open(s):
        yield (
            "bind: other machines can connect and api_keys_file is not set: "
            "anyone who reaches the port can ask for predictions."
        )
    if s.metrics_address is not None and not s.metrics_address.is_loopback:
        yield "metrics_bind: other machines can connect; /metrics needs no key."
    per_client = number(s.max_connections_per_client)
    if s.behind_proxy and per_client is not None:
        yield "max_connections_per_client: has no effect with behind_proxy."
    elif per_client is not None and per_client > (number(s.max_connections) or per_client):
        yield "max_connections_per_client: more than max_connections; it bounds nothing."


def _of_times(s: Settings, deadline: int | None) -> Iterator[str]:
    wait, batch = s.limit_settings.max_wait_ms, s.limit_settings.batch_ms
    if deadline is not None and s.drain_timeout_ms < deadline:
        yield "drain_timeout_ms: less than deadline_ms; a rollout cuts accepted requests off."
    most = s.max_deadline_ms if deadline is None else deadline  # auto is at most the maximum
    if wait is not None and wait >= most:
        yield "max_wait_ms: not less than the deadline; who waits so long is answered too late."
    if batch is not None and batch > most / 2:
        yield "batch_ms: more than half the deadline; one batch can make all that wait late."
    if s.slo_latency_ms > most:
        yield "slo_latency_ms: more than the deadline; an answer is never that late."


def loaded_warnings(s: Settings, facts: Facts) -> list[str]:
    """What can be said only with the costs that the warm-up measured."""
    limits = derive(
        s.limit_settings,
        fixed_s=facts.cost_fixed_s,
        unit_s=facts.cost_unit_s,
        typical_units=facts.typical_units,
        max_tokens=facts.max_tokens,
    )
    item_s = facts.cost_unit_s * facts.typical_units
    room_s = limits.batch_s - facts.cost_fixed_s
    together = max(1, int(room_s / item_s)) if facts.batchable and item_s > 0 else 1
    workers = number(s.workers) or 1
    queue_s = s.queue_limit * (facts.cost_fixed_s / together + item_s) / workers
    found = []
    if queue_s > limits.deadline_s:
        found.append(
            f"queue_limit: a queue full of typical items takes {queue_s:.1f} s, the deadline is"
            f" {limits.deadline_s:g} s; the predicted wait refuses before the queue is full."
        )
    if s.slo_latency_ms < 1000 * (facts.cost_fixed_s + item_s):
        found.append("slo_latency_ms: less than one typical input takes alone; it cannot be met.")
    return found
