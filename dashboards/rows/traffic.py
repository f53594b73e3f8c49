"""Row *Traffic and latency*: what clients get, and how soon."""

from __future__ import annotations

from dashboards.model import Look, Panel, Query, Row, Unit
from dashboards.promql import mean, quantile, unless_all_zero

CLASS_COLORS = {
    "ok": "green",
    "client": "blue",
    "shed": "orange",
    "late": "purple",
    "gone": "text",
    "server": "red",
}
"""The same colour for a class wherever it is drawn."""

STAGE_COLORS = {
    "receive": "light-blue",
    "prepare": "purple",
    "queue": "orange",
    "infer": "green",
    "respond": "blue",
}
"""Waiting has the colour of what comes of it, and the model that of good answers."""

CODES = {
    "client": (
        "malformed_request", "unauthorized", "not_found", "method_not_allowed", "request_timeout",
        "payload_too_large", "unsupported_media_type", "invalid_input", "poisoned_input",
        "deadline_too_short",
    ),
    "shed": ("queue_full", "overloaded", "draining"),
    "server": (
        "model_error", "internal_error", "circuit_open", "model_loading", "out_of_memory",
        "worker_lost",
    ),
}  # fmt: skip
"""The codes of each class; those of late and gone are shown by their stage."""

FAMILIES = {
    **{f"/^({'|'.join(codes)})$/": CLASS_COLORS[one] for one, codes in CODES.items()},
    "/^late: /": CLASS_COLORS["late"],
    "/^gone: /": CLASS_COLORS["gone"],
}
"""What belongs to a class has shades of its colour."""

SHED_COLORS = {"queue_full": "dark-orange", "overloaded": "orange", "draining": "light-orange"}
"""Those of an overload are known at a glance, whatever else fails beside them."""

LATENCY = "seawall_request_duration_seconds"
OTHER_CODES = 'outcome!~"ok|deadline_exceeded|client_gone"'
BY_CODE = f"sum by (outcome) (rate(seawall_requests_total{{{OTHER_CODES}}}[R]))"
ARRIVALS = "sum(rate(seawall_requests_total[R]))"

TRAFFIC = Row(
    id=20,
    title="Traffic and latency",
    height=8,
    panels=(
        Panel(
            id=21,
            title="How requests end",
            question="How many requests are there, and how do they end?",
            moves=(
                "Shed: more work than can be done in time. Late: it was let in and not done in "
                "time. Server: the model, a worker or we failed. Client and gone: nothing wrong "
                "here."
            ),
            first="Shed: the runbook. Anything else that is not ok: *Why requests fail*.",
            runbook="seawallbudgetburningfast",
            queries=(
                # Two, so that what is good lies at the bottom, whatever is on it.
                Query(
                    f'sum(rate({LATENCY}_count{{outcome_class="ok"}}[R]))',
                    "ok",
                    Look.STACK,
                ),
                Query(
                    f'sum by (outcome_class) (rate({LATENCY}_count{{outcome_class!="ok"}}[R]))',
                    "{{outcome_class}}",
                    Look.STACK,
                ),
            ),
            unit=Unit.REQUESTS,
            width=12,
            colors=CLASS_COLORS,
        ),
        Panel(
            id=22,
            title="Why requests fail",
            question="By which code, and for the late and the gone at which stage?",
            moves=(
                "Late in the queue: too much load. Late while running: the model became slower. "
                "Gone: clients give up before they are answered."
            ),
            first="Ask the server: `/errors/CODE` says what the caller and what you can do.",
            runbook="seawallbudgetburningfast",
            queries=(
                Query(unless_all_zero(BY_CODE, "outcome", ARRIVALS), "{{outcome}}"),
                Query(
                    "sum by (stage) (rate(seawall_deadline_exceeded_total[R])) > 0",
                    "late: {{stage}}",
                ),
                Query("sum by (stage) (rate(seawall_client_gone_total[R])) > 0", "gone: {{stage}}"),
            ),
            unit=Unit.REQUESTS,
            width=12,
            colors={"none": "text", **SHED_COLORS},
            families=FAMILIES,
        ),
        Panel(
            id=23,
            title="Latency of good answers",
            question="How long do good answers take, against the default deadline?",
            moves=(
                "All three rise together: waiting or a slower model. Only p99: single long "
                "inputs, or a worker that was lost."
            ),
            first="*Where the time goes*, then *Waiting* or *Time of a batch*.",
            runbook="seawalldeadlinemisses",
            queries=(
                Query(quantile(0.5, LATENCY, 'outcome_class="ok"'), "p50"),
                Query(quantile(0.95, LATENCY, 'outcome_class="ok"'), "p95"),
                Query(quantile(0.99, LATENCY, 'outcome_class="ok"'), "p99", exemplars=True),
                Query("min(seawall_deadline_seconds > 0)", "deadline", Look.LIMIT),
            ),
            unit=Unit.SECONDS,
        ),
        Panel(
            id=24,
            title="Where the time goes",
            question="Which stage takes a request's time?",
            moves=(
                "Receive: slow clients. Prepare: long inputs or a starved process. Queue: load. "
                "Infer: the model. Respond: clients that read slowly."
            ),
            first="Queue: the runbook. Infer: *Time of a batch*. Prepare: *CPU against its limit*.",
            runbook="seawalldeadlinemisses",
            queries=(
                Query(mean("seawall_stage_duration_seconds", "stage"), "{{stage}}", Look.STACK),
            ),
            unit=Unit.SECONDS,
            colors=STAGE_COLORS,
            empty="No traffic",
        ),
        Panel(
            id=25,
            title="At the door",
            question="Does anything pile up inside, or is it turned away before it is read?",
            moves=(
                "Receiving rises alone: slow clients. Queued and running never fall to 0 in a "
                "quiet hour: a bug. Dropped: no request was read, so no outcome counts them."
            ),
            first=(
                "`header_timeout` and `bad_http`: look at the proxy. `too_many`: raise the "
                "proxy's reuse of connections, or `max_connections`."
            ),
            runbook="metrics",
            queries=(
                Query("sum by (stage) (seawall_requests_in_flight)", "{{stage}}"),
                Query("sum(seawall_connections)", "connections", color="text"),
                Query(
                    "sum by (reason) (rate(seawall_connections_dropped_total[R])) > 0",
                    "dropped: {{reason}}",
                    right=Unit.PER_SECOND,
                ),
            ),
        ),
    ),
)
