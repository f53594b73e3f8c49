"""Row *Replicas and process*: is one of them different, and what does it lack?"""

from __future__ import annotations

from dashboards.model import Column, Kind, Look, Panel, Query, Row, Unit
from dashboards.promql import worst_quantile

LIMIT = "(seawall_memory_limit_bytes > 0)"
RESERVED = 'seawall_device_memory_bytes{kind="reserved"}'
TOTAL = 'seawall_device_memory_bytes{kind="total"}'
LABELS = "version, model, device"
YES_NO: dict[float, str] = {0: "no", 1: "yes"}

REPLICAS = Row(
    id=50,
    title="Replicas and process",
    height=8,
    panels=(
        Panel(
            id=51,
            title="Workers",
            question="Are all workers up, and why was one lost?",
            moves=(
                "Restarting or loading: nothing is served by it. Lost: crashed, hung, killed for "
                "memory, the device gone, or ten self-tests failed."
            ),
            first=(
                "`worker.lost` in the log. `oom_killed`: more memory, or fewer workers. hung: a "
                "batch took longer than `watchdog_ms` allows."
            ),
            runbook="seawallcrashloop",
            queries=(
                Query("sum by (state) (seawall_worker_state) > 0", "{{state}}", Look.STACK),
                Query(
                    "sum by (reason) (increase(seawall_worker_restarts_total[R])) > 0",
                    "lost: {{reason}}",
                    Look.BARS,
                ),
            ),
            colors={
                "ready": "green",
                "loading": "blue",
                "starting": "light-blue",
                "restarting": "orange",
                "failed": "red",
                "stopped": "text",
            },
            families={"/^lost: /": "red"},
            interval="1m",
        ),
        Panel(
            id=52,
            title="Memory against its limit",
            question="Will the kernel kill it, or the accelerator run out?",
            moves=(
                "At 100 % the kernel kills, most often a worker. A slow climb over days is a leak."
            ),
            first=(
                "Which part is it? Workers: fewer of them, or shorter inputs. Server: "
                "`queue_bytes` and `max_receiving_bytes`."
            ),
            runbook="seawallmemorynearlimit",
            queries=(
                Query(
                    f"max by (instance) (seawall_memory_usage_bytes / {LIMIT})", "used {{instance}}"
                ),
                Query(f"max(seawall_worker_rss_bytes / {LIMIT})", "of it workers, most"),
                Query(f"max(process_resident_memory_bytes / {LIMIT})", "of it server, most"),
                Query(
                    f"max({RESERVED} / ignoring (kind) ({TOTAL} > 0)) or max({RESERVED}) * 0",
                    "accelerator, most",
                ),
            ),
            unit=Unit.SHARE,
            steps=((0.8, "orange"), (0.9, "red")),
            most=1,
        ),
        Panel(
            id=53,
            title="CPU against its limit",
            question="Are there too few cores?",
            moves=(
                "Used near 100 % under load is normal for a model on the CPU. Throttled above 10 "
                "%: the quota holds it back, everything becomes slower."
            ),
            first="Throttled: more CPU, or `torch_threads` down to what there is.",
            runbook="seawallqueuefilling",
            queries=(
                Query(
                    """
                    (
                        sum by (instance) (rate(process_cpu_seconds_total[R]))
                        + sum by (instance) (rate(seawall_worker_cpu_seconds_total[R]))
                    ) / (max by (instance) (seawall_cpu_limit_cores) > 0)
                    """,
                    "used {{instance}}",
                ),
                Query("max(rate(process_cpu_seconds_total[R]))", "server, of one core, most"),
                Query(
                    "max(rate(seawall_cpu_throttled_seconds_total[R]))",
                    "throttled, most",
                    color="red",
                ),
            ),
            unit=Unit.SHARE,
            most=1,
        ),
        Panel(
            id=54,
            title="Event loop lag",
            question="Does the server's own process keep up?",
            moves=(
                "Late timers mean late answers, time-outs and probes. Bearable is a tenth of the "
                "deadline, and what a probe with a time-out of a second bears."
            ),
            first=(
                "*CPU against its limit*: is the server starved of its core? If not: report it, "
                "nothing in it should block."
            ),
            runbook="seawalleventlooplag",
            queries=(
                Query(worst_quantile(0.5, "seawall_event_loop_lag_seconds"), "p50, worst replica"),
                Query(worst_quantile(0.99, "seawall_event_loop_lag_seconds"), "p99, worst replica"),
                Query(
                    "min(clamp_max((seawall_deadline_seconds > 0) / 10, 0.25))",
                    "bearable",
                    Look.LIMIT,
                ),
            ),
            unit=Unit.SECONDS,
        ),
        Panel(
            id=55,
            title="What runs where",
            question="Which version and model runs on which replica, and since when?",
            moves=(
                "Two versions outside a rollout, or a start that nobody ordered. Lost log lines: "
                "nobody reads the log fast enough."
            ),
            first=(
                "A start that nobody ordered: the exit code of the one before, in its last log "
                "line."
            ),
            runbook="seawallversionskew",
            queries=(
                Query(
                    f"""
                    max by (instance, {LABELS}) (
                        process_start_time_seconds * 1000
                        * on (job, instance) group_left ({LABELS}) seawall_build_info
                    )
                    """,
                    "",
                ),
                Query("max by (instance) (seawall_ready)", ""),
                Query("max by (instance) (seawall_draining)", ""),
                Query("max by (instance) (seawall_workers)", ""),
                Query("max by (instance) (seawall_model_load_seconds)", ""),
                Query(
                    "sum by (instance) (increase(seawall_log_lines_dropped_total[$__range]))", ""
                ),
            ),
            width=16,
            kind=Kind.TABLE,
            columns=(
                Column("instance", "replica"),
                Column("version", "version", width=80),
                Column("model", "model"),
                Column("device", "device", width=90),
                Column("Value #A", "started", Unit.SINCE, width=120),
                Column("Value #B", "ready", words=YES_NO, width=65),
                Column("Value #C", "draining", words=YES_NO, width=80),
                Column("Value #D", "workers", Unit.COUNT, width=80),
                Column("Value #E", "last load", Unit.SECONDS, width=85),
                Column("Value #F", "log lines lost", Unit.COUNT, width=110),
            ),
        ),
    ),
)
