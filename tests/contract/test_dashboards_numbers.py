"""What the panels show for known series: several replicas, restarts, what falls between scrapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.grafana_board import EXPRESSIONS, MARKS, filled
from tests.promtool import promtool

SCRAPES = 40
"""Of 15 seconds each; the numbers are read between two of them, after the last but one."""

AT = "9m37s"


@dataclass(frozen=True)
class Case:
    """Series by ``name{labels}`` without the job, as promtool writes values; what a panel shows."""

    panel: str
    series: dict[str, str]
    shown: dict[str, float]


A, B = 'instance="a:1"', 'instance="b:1"'
BUILD = 'version="1", task="t", model="m", device="d"'
ENDS = "seawall_request_duration_seconds_count"
CLASSES = ("ok", "client", "shed", "late", "gone", "server")
STEADY = f"x{SCRAPES}"

CASES = {
    "the fullest of two queues is the one that is shown": Case(
        "Queue fill/A",
        {
            f"seawall_queue_fill_seconds_total{{{A}}}": f"0+3{STEADY}",
            f"seawall_queue_fill_seconds_total{{{B}}}": f"0+12{STEADY}",
        },
        {"{}": 0.8},
    ),
    "a restart is no dip and no peak": Case(
        "Good answers/A",
        {
            f'seawall_requests_total{{{A}, outcome="ok"}}': "1000+30x36 30+30x4",
            f'seawall_requests_total{{{B}, outcome="ok"}}': f"0+30{STEADY}",
        },
        {"{}": 4},
    ),
    "what answers without being Seawall is unreachable, and so is what does not answer": Case(
        "Replicas/C",
        {
            f"up{{{A}}}": f"1{STEADY}",
            f"up{{{B}}}": f"1{STEADY}",
            'up{instance="c:1"}': f"0{STEADY}",
            f"seawall_ready{{{A}}}": f"1{STEADY}",
        },
        {"{}": 2},
    ),
    "one replica in trouble is not diluted by another that is idle": Case(
        "Event loop lag/B",
        {
            f'seawall_event_loop_lag_seconds_bucket{{{A}, le="0.1"}}': f"0+1000{STEADY}",
            f'seawall_event_loop_lag_seconds_bucket{{{A}, le="0.2"}}': f"0+1000{STEADY}",
            f'seawall_event_loop_lag_seconds_bucket{{{A}, le="+Inf"}}': f"0+1000{STEADY}",
            f'seawall_event_loop_lag_seconds_bucket{{{B}, le="0.1"}}': f"0x{SCRAPES}",
            f'seawall_event_loop_lag_seconds_bucket{{{B}, le="0.2"}}': f"0+1{STEADY}",
            f'seawall_event_loop_lag_seconds_bucket{{{B}, le="+Inf"}}': f"0+1{STEADY}",
        },
        {"{}": 0.199},
    ),
    "every replica is held to its own limit": Case(
        "Memory against its limit/A",
        {
            f"seawall_memory_usage_bytes{{{A}}}": f"300{STEADY}",
            f"seawall_memory_limit_bytes{{{A}}}": f"400{STEADY}",
            f"seawall_memory_usage_bytes{{{B}}}": f"300{STEADY}",
            f"seawall_memory_limit_bytes{{{B}}}": f"1000{STEADY}",
        },
        {f"{{{A}}}": 0.75, f"{{{B}}}": 0.3},
    ),
    "an accelerator is found beside a replica without one": Case(
        "Memory against its limit/D",
        {
            f'seawall_device_memory_bytes{{{A}, kind="reserved"}}': f"60{STEADY}",
            f'seawall_device_memory_bytes{{{A}, kind="total"}}': f"80{STEADY}",
            f'seawall_device_memory_bytes{{{B}, kind="reserved"}}': f"0{STEADY}",
            f'seawall_device_memory_bytes{{{B}, kind="total"}}': f"0{STEADY}",
        },
        {"{}": 0.75},
    ),
    "the server and its workers share the cores that there are": Case(
        "CPU against its limit/A",
        {
            f"process_cpu_seconds_total{{{A}}}": f"0+3{STEADY}",
            f"seawall_worker_cpu_seconds_total{{{A}}}": f"0+27{STEADY}",
            f"seawall_cpu_limit_cores{{{A}}}": f"4{STEADY}",
        },
        {f"{{{A}}}": 0.5},
    ),
    "the workers of all replicas are one whole": Case(
        "What the workers do/A",
        {
            f'seawall_inference_seconds_total{{{A}, use="useful"}}': f"0+15{STEADY}",
            f'seawall_inference_seconds_total{{{A}, use="wasted"}}': f"0+3{STEADY}",
            f'seawall_inference_seconds_total{{{B}, use="useful"}}': f"0+30{STEADY}",
            f'seawall_inference_seconds_total{{{B}, use="wasted"}}': f"0{STEADY}",
            f"seawall_workers{{{A}}}": f"2{STEADY}",
            f"seawall_workers{{{B}}}": f"3{STEADY}",
        },
        {'{use="useful"}': 0.6, '{use="wasted"}': 0.04},
    ),
    "a breaker that opens and closes between two scrapes was open": Case(
        "Breaker/A",
        {
            f'seawall_breaker_transitions_total{{{A}, to="open"}}': "0x37 1x3",
            f'seawall_breaker_state{{{A}, state="open"}}': f"0{STEADY}",
            f'seawall_breaker_state{{{A}, state="half_open"}}': f"0{STEADY}",
            f'seawall_breaker_transitions_total{{{B}, to="open"}}': f"0{STEADY}",
            f'seawall_breaker_state{{{B}, state="open"}}': f"0{STEADY}",
            f'seawall_breaker_state{{{B}, state="half_open"}}': f"1{STEADY}",
        },
        {f"{{{A}}}": 2, f"{{{B}}}": 1},
    ),
    "clients' faults and clients that left are no bad answers, and not in the whole": Case(
        "Answered badly/A",
        {
            f'{ENDS}{{{A}, outcome_class="{one}"}}': f"0+{n}{STEADY}"
            for one, n in zip(CLASSES, (90, 50, 6, 3, 50, 1), strict=True)
        },
        {"{}": 0.1},
    ),
    "a limit that is not known yet is no limit": Case(
        "Waiting/E",
        {
            f"seawall_wait_cap_seconds{{{A}}}": f"0{STEADY}",
            f"seawall_wait_cap_seconds{{{B}}}": f"3{STEADY}",
        },
        {"{}": 3},
    ),
    "a start is marked at its moment, and shown with what was started": Case(
        "What runs where/A",
        {
            f"process_start_time_seconds{{{A}}}": f"100{STEADY}",
            f"seawall_build_info{{{A}, {BUILD}}}": f"1{STEADY}",
        },
        {f'{{{A}, version="1", model="m", device="d"}}': 100_000},
    ),
    "a lost worker is marked on its replica": Case(
        "Worker lost",
        {
            f'seawall_worker_restarts_total{{{A}, reason="hung"}}': f"0{STEADY}",
            f'seawall_worker_restarts_total{{{A}, reason="crashed"}}': "0x36 1x3",
        },
        {f'{{{A}, reason="crashed"}}': 1.156},
    ),
}
"""``increase`` reaches a little past the samples that it has: a lost worker counts 1.156."""


def written(case: Case) -> dict[str, Any]:
    """A case for promtool."""
    expr = {**EXPRESSIONS, **MARKS}[case.panel]
    return {
        "interval": "15s",
        "input_series": [
            {"series": name.replace("{", '{job="seawall", ', 1), "values": values}
            for name, values in case.series.items()
        ],
        "promql_expr_test": [
            {
                "expr": f"round({filled(expr)}, 0.001)",
                "eval_time": AT,
                "exp_samples": [
                    {"labels": labels, "value": value} for labels, value in case.shown.items()
                ],
            }
        ],
    }


@pytest.mark.parametrize("law", CASES)
def test_a_panel_shows(law: str, tmp_path: Path) -> None:
    """For series that are known, each of these panels shows the number that is right."""
    content = {"rule_files": [], "evaluation_interval": "15s", "tests": [written(CASES[law])]}
    (tmp_path / "numbers.yaml").write_text(yaml.safe_dump(content))
    tested = promtool("test", "rules", "numbers.yaml", cwd=tmp_path)
    assert tested.returncode == 0, (tested.stdout + tested.stderr).decode()
