"""What the service tells of itself: the JSON of ``/status`` and the values of a scrape.

Laws: values only, nothing is decided here; no secret, no input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from service import NAME, __version__
from service.core.errors import OutcomeClass, outcome_class
from service.metrics import Snapshot, Totals

if TYPE_CHECKING:
    from service.dispatcher.dispatcher import Dispatcher


def snapshot(service: Dispatcher) -> Snapshot:
    """The values that gauges and integrals show."""
    now = service.clock()
    limits = service.limits
    oldest = service.queue.oldest()
    running = sum(ticket.running for ticket in service.tickets)
    ready, _ = service.ready()
    return Snapshot(
        queue_depth=len(service.queue),
        queue_depth_peak=service.fill.peak(now),
        queue_limit=service.queue.limit,
        fill_ratio=service.fill.ratio,
        fill_seconds=service.fill.fill_seconds,
        full_items_seconds=service.fill.full_items_seconds,
        full_wait_seconds=service.fill.full_wait_seconds,
        oldest_age_s=now - oldest.arrived if oldest else 0.0,
        predicted_wait_s=service.intake.predicted_wait_s(now),
        wait_cap_s=limits.wait_cap_s if limits else 0.0,
        deadline_s=limits.deadline_s if limits else 0.0,
        in_flight_queued=len(service.tickets) - running,
        in_flight_running=running,
        memory_budget_tokens=service.pool.budget.tokens,
        breaker_state=service.circuit.state.value,
        ready=ready,
        draining=service.draining,
        worker_states=tuple(slot.worker.state.value for slot in service.pool.slots),
    )


def describe(service: Dispatcher, totals: Totals) -> dict[str, Any]:
    """State, queue, counts, breaker, workers, estimator, limits and settings, as JSON values.

    Counts are since the start; ``clock_s`` makes rates of them, whenever the answers arrive.
    """
    now = service.clock()
    values = snapshot(service)
    ready, reason = service.ready()
    facts, limits, plan = service.facts, service.limits, service.pool.plan
    return {
        "name": NAME,
        "version": __version__,
        "clock_s": now,
        "state": service.state.value,
        "ready": ready,
        "reason": reason,
        "model": {
            "name": facts.model,
            "task": facts.task,
            "device": facts.device,
            "dtype": facts.dtype,
            "mask_token": facts.mask_token,
            "max_tokens": facts.max_tokens,
            "batchable": facts.batchable,
            "torch_threads": facts.torch_threads,
            "path": facts.path,
            "load_s": facts.load_s,
        }
        if facts
        else None,
        "queue": {
            "depth": values.queue_depth,
            "peak": values.queue_depth_peak,
            "limit": values.queue_limit,
            "fill_ratio": values.fill_ratio,
            "oldest_age_s": values.oldest_age_s,
            "predicted_wait_s": values.predicted_wait_s,
            "left": totals.waits,
            "waited_s": totals.wait_s,
        },
        "requests": {"queued": values.in_flight_queued, "running": values.in_flight_running},
        "outcomes": _by_class(totals.outcomes),
        "batches": {
            "count": totals.batches,
            "items": totals.batch_items,
            "seconds": totals.batch_s,
        },
        "breaker": {
            "state": values.breaker_state,
            "next_probe_s": service.circuit.retry_after_s(now),
        },
        "workers": [
            {
                "index": slot.worker.index,
                "state": slot.worker.state.value,
                "pid": slot.worker.pid,
                "running_items": len(slot.batch.items) if slot.batch else 0,
                "preparing_items": len(slot.preparing),
            }
            for slot in service.pool.slots
        ],
        "restarts": totals.restarts,
        "estimator": {
            "fixed_s": plan.cost.fixed_s,
            "unit_s": plan.cost.unit_s,
            "speed": plan.cost.speed,
            "padding": plan.cost.padding,
            "batches": plan.cost.batches,
            "reload_s": service.crew.reload_s,
        }
        if plan
        else None,
        "limits": {
            "deadline_s": limits.deadline_s,
            "max_deadline_s": limits.max_deadline_s,
            "wait_cap_s": limits.wait_cap_s,
            "batch_s": limits.batch_time(plan.cost.batch_s(0.0)) if plan else limits.batch_s,
            "batch_units": service.pool.batch_budget(),
            "chars_per_request": limits.max_chars(service.settings.max_items),
        }
        if limits
        else None,
        "rehearsal": service.settings.rehearsal,
        "settings": service.settings.public(),
    }


def _by_class(outcomes: dict[str, int]) -> dict[str, dict[str, int]]:
    shown: dict[str, dict[str, int]] = {one.value: {} for one in OutcomeClass}
    for code, count in outcomes.items():
        shown[outcome_class(code)][code] = count
    return shown
