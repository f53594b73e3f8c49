"""The rules' own tests can fail: each deliberate error in a rule is found by its cases."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.contract.rules import alerts, cases, judged_by, name_of, rules, run_tests, write

SHARE = 'outcome_class!~"client|gone"'
OPENED = 'seawall_breaker_transitions_total{to="open"}'
OBJECTIVE = "scalar(1 - seawall:objective)"
MEAN_OF_SHARES = "avg_over_time(seawall:bad_requests:ratio5m[30d]) + 0 * ("

MUTATIONS = {
    "SeawallNoReadyReplica": [
        ('or sum by (job) (up{job="seawall"}) == 0', ""),
        ("sum by (job) (seawall_ready) == 0\n  or ", ""),
        ("sum by (job) (seawall_ready)", "min by (job) (seawall_ready)"),
        ("sum by (job) (up", "min by (job) (up"),
        ("for: 1m", "for: 0s"),
        ("for: 1m", "for: 15m"),
        ("severity: page", "severity: ticket"),
    ],
    "SeawallBudgetBurningFast": [
        ("ratio1h > 14.4", "ratio1h > 13"),
        ("ratio1h > 14.4", "ratio1h > 17"),
        ("and seawall:bad_requests:ratio5m > 14.4 * " + OBJECTIVE, ""),
        ("and seawall:bad_requests:increase1h > 10", ""),
        ("increase1h > 10", "increase1h > 16"),
        ("ratio6h > 6 ", "ratio6h > 5 "),
        ("ratio6h > 6 ", "ratio6h > 7.2 "),
        ("and seawall:bad_requests:ratio30m > 6 * " + OBJECTIVE, ""),
        ("and seawall:bad_requests:increase6h > 10", ""),
        ("\nor\n", "\nand\n"),
        ("for: 2m", "for: 0s"),
        ("severity: page", "severity: ticket"),
    ],
    "SeawallBudgetBurningSlow": [
        ("ratio3d > ", "ratio3d > 0.7 * "),
        ("ratio3d > ", "ratio3d > 1.6 * "),
        ("and seawall:bad_requests:ratio6h > " + OBJECTIVE, ""),
        ("and seawall:bad_requests:increase3d > 10", ""),
        ("severity: ticket", "severity: page"),
    ],
    "SeawallShedding": [
        ("> 0.05", "> 0.1"),
        ("> 0.05", "> 0.01"),
        ("> 0.05", "> 0.04"),
        ("for: 5m", "for: 4m"),
        ("for: 5m", "for: 15m"),
        ("keep_firing_for: 5m", "keep_firing_for: 1m"),
        ("keep_firing_for: 5m", "keep_firing_for: 15m"),
        ("queue_full|overloaded", "queue_full"),
        ("queue_full|overloaded", "overloaded"),
        ("queue_full|overloaded", "queue_full|overloaded|draining"),
        ("client|gone", "gone"),
        ("client|gone", "client"),
        ("client|gone", "ok"),
        ("severity: page", "severity: ticket"),
    ],
    "SeawallDeadlineMisses": [
        ("> 0.01", "> 0.013"),
        ("> 0.01", "> 0.007"),
        ('outcome_class="late"', 'outcome_class="gone"'),
        (SHARE, 'outcome_class="ok"'),
        ("client|gone", "gone"),
        ("client|gone", "client"),
        ("for: 10m", "for: 5m"),
        ("for: 10m", "for: 20m"),
    ],
    "SeawallQueueFilling": [
        ("> 0.7", "> 0.96"),
        ("> 0.7", "> 0.35"),
        ("> 0.7", "> 0.68"),
        ("for: 5m", "for: 4m"),
        ("for: 5m", "for: 15m"),
        ("keep_firing_for: 5m", "keep_firing_for: 1m"),
        ("keep_firing_for: 5m", "keep_firing_for: 15m"),
        ("rate(seawall_queue_fill_seconds_total[2m])", "seawall_queue_fill_ratio"),
        ("severity: ticket", "severity: page"),
    ],
    "SeawallQueueStalled": [
        ("min_over_time(seawall_queue_depth", "max_over_time(seawall_queue_depth"),
        ("min_over_time(seawall_queue_fill_ratio", "max_over_time(seawall_queue_fill_ratio"),
        ("or min_over_time(seawall_queue_fill_ratio[2m]) > 1", ""),
        ("min_over_time(seawall_queue_depth[2m]) > 0\n    or ", ""),
        ("seawall_inference_seconds_total", 'seawall_inference_seconds_total{use="useful"}'),
        ("(rate(seawall_inference_seconds_total[2m])) == 0", "(seawall_ready) == 1"),
        ("and on (job, instance) min_over_time(seawall_ready[2m]) == 1", ""),
        ("for: 1m", "for: 0s"),
        ("for: 1m", "for: 5m"),
    ],
    "SeawallBreakerOpen": [
        ('max by (job, instance) (seawall_breaker_state{state="open"}) == 1\n  or ', ""),
        ("or sum by (job, instance) (increase(" + OPENED + "[5m])) > 0", ""),
        ('state="open"', 'state="half_open"'),
        ('to="open"', 'to="half_open"'),
        ("increase(", "sum_over_time("),
        ("[5m]", "[15m]"),
        ("[5m]", "[1m]"),
        ("for: 1m", "for: 0s"),
        ("for: 1m", "for: 15m"),
    ],
    "SeawallCrashLoop": [
        (">= 4", ">= 5"),
        (">= 4", ">= 3"),
        (">= 3", ">= 4"),
        (">= 3", ">= 2"),
        ("[30m])) >= 4", "[1h])) >= 4"),
        ("[30m])) >= 3", "[1h])) >= 3"),
        ("sum by (job, instance) (increase(seawall", "max by (job, instance) (increase(seawall"),
        ('or sum by (job, instance) (changes(process_start_time_seconds{job="seawall"}[30m])) >= 3',
         ""),
    ],
    "SeawallMemoryNearLimit": [
        ("> 0.9", "> 0.95"),
        ("> 0.9", "> 0.87"),
        ("/ (seawall_memory_limit_bytes > 0)", "/ 8e9"),
        ("(seawall_memory_limit_bytes > 0)", "seawall_memory_limit_bytes"),
        ("for: 10m", "for: 5m"),
        ("for: 10m", "for: 20m"),
        ("keep_firing_for: 5m", "keep_firing_for: 1m"),
        ("keep_firing_for: 5m", "keep_firing_for: 15m"),
    ],
    "SeawallEventLoopLag": [
        ("/ 10", "/ 5"),
        ("/ 10", "/ 15"),
        ("0.25", "0.5"),
        ("0.25", "0.1"),
        ("(seawall_deadline_seconds > 0)", "seawall_deadline_seconds"),
        ("0.99", "0.999"),
        ("0.99", "0.9"),
        ("for: 10m", "for: 5m"),
        ("for: 10m", "for: 20m"),
    ],
    "SeawallTargetsAbsent": [
        ('absent(up{job="seawall"})', 'absent(up{job="seawall"} == 1)'),
        ('absent(up{job="seawall"})', 'absent(seawall_build_info{job="seawall"})'),
        ("for: 5m", "for: 1m"),
        ("for: 5m", "for: 15m"),
    ],
    "SeawallTargetDown": [
        ("unless on (job, instance) seawall_build_info", "== 0"),
        ("unless on (job, instance) seawall_build_info", "== 1 unless seawall_build_info"),
        ("for: 5m", "for: 0s"),
        ("for: 5m", "for: 15m"),
    ],
    "SeawallVersionSkew": [
        ("(job, version, model)", "(job, version)"),
        ("(job, version, model)", "(job, model)"),
        ("(job, version, model)", "(job, version, model, device)"),
        ("(job, version, model)", "(job, version, model, instance)"),
        ("for: 1h", "for: 20m"),
        ("for: 1h", "for: 3h"),
    ],
    "SeawallWatchdog": [
        ("vector(1)", "vector(1) > 1"),
        ("vector(1)", "absent(up)"),
        ("severity: none", "severity: page"),
    ],
    "seawall:objective": [("0.999", "0.9985"), ("0.999", "0.9992")],
    "seawall:requests:increase1h": [("client|gone", "client"), ("client|gone", "gone")],
    "seawall:requests:increase6h": [("client|gone", "client"), ("client|gone", "gone")],
    "seawall:bad_requests:increase1h": [
        ("shed|late|server", "late|server"),
        ("shed|late|server", "shed|server"),
        ("shed|late|server", "shed|late"),
    ],
    "seawall:bad_requests:increase6h": [
        ("shed|late|server", "late|server"),
        ("shed|late|server", "shed|server"),
        ("shed|late|server", "shed|late"),
    ],
    "seawall:bad_requests:ratio30d": [
        ("sum_over_time(seawall:bad_requests:increase5m[30d])\n  / (", "0 * ("),
        ("sum_over_time(seawall:bad_requests:increase5m[30d])\n  / (", MEAN_OF_SHARES),
        ("> 0", ">= 0"),
    ],
    "seawall:error_budget:left": [("1 - seawall", "2 - seawall"), (" / scalar", " * scalar")],
}  # fmt: skip
"""By rule: what is put in the place of what."""

CHANGES = [(name, old, new) for name, pairs in MUTATIONS.items() for old, new in pairs]


def as_text(name: str) -> str:
    """A rule as it is changed: the expression and the rest, one a line."""
    rule = dict(rules()[name])
    expr = rule.pop("expr").strip()
    return f"{expr}\n---\n{yaml.safe_dump(rule, sort_keys=False)}"


def changed(name: str, old: str, new: str) -> dict[str, object]:
    """The rule with a change."""
    text = as_text(name)
    assert old in text, f"{name} has no {old!r}:\n{text}"
    expr, rest = text.replace(old, new).split("\n---\n")
    return {**yaml.safe_load(rest), "expr": expr}


def test_every_alert_has_mutations() -> None:
    """No alert is without at least two deliberate errors."""
    counted = Counter(name for name, _, _ in CHANGES)
    assert {name_of(alert) for alert in alerts()} <= {name for name, n in counted.items() if n > 1}


@pytest.mark.parametrize("name", MUTATIONS)
def test_an_unchanged_rule_passes_its_cases(name: str, tmp_path: Path) -> None:
    """The cases that judge a rule, alone with what they need, pass: a failure is the change's."""
    code, output = run_tests(tmp_path, write(tmp_path, name))
    assert code == 0, output
    named = [one for _, part in cases(name) for case in part["tests"] for one in
             (*case["alert_rule_test"], *case["promql_expr_test"])]  # fmt: skip
    fires = [one for one in named if one.get("exp_alerts") or one.get("exp_samples")]
    silent = [one for one in named if one.get("exp_alerts") == []]
    assert fires
    assert silent or name == "SeawallWatchdog" or not judged_by(name)


def tried(folder: Path, name: str, old: str, new: str) -> tuple[int, str]:
    """What the cases say of a change."""
    return run_tests(folder, write(folder, name, changed(name, old, new)))


@pytest.fixture(scope="module")
def trials(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str, str], Future[tuple[int, str]]]]:
    """Every change that was chosen, tried on all cores: one alone takes a second."""
    chosen = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.function is test_a_changed_rule_fails_its_cases
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {
            change: pool.submit(tried, tmp_path_factory.mktemp("change"), *change)
            for change in CHANGES
            if dict(zip(("name", "old", "new"), change, strict=True)) in chosen
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name, old, new", CHANGES)
def test_a_changed_rule_fails_its_cases(
    name: str, old: str, new: str, trials: dict[tuple[str, str, str], Future[tuple[int, str]]]
) -> None:
    """The rules' tests notice each threshold, time, matcher and half that is moved or left out."""
    code, output = trials[name, old, new].result()
    assert code != 0, output
    assert "got:" in output, f"the mutation must stay a valid rule: {output}"
