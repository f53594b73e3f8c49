"""What operators read: monitoring, autoscaling and the route; and the check against definitions."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import manifests
import pytest
import yaml

from tests.contract.expressions import faults
from tests.contract.manifests_rendered import container, only, pod, rendered, seconds, settings
from tests.contract.rules import FILES, FOLDER
from tests.contract.rules import load as load_rules
from tests.promtool import promtool

TRIGGERS: dict[str, dict[str, Any]] = {}
"""The triggers of the autoscaler by name, filled on first use."""


def trigger(name: str) -> dict[str, Any]:
    """One trigger of the autoscaler."""
    if not TRIGGERS:
        for one in only("keda", "ScaledObject")["spec"]["triggers"]:
            TRIGGERS[one["name"]] = one
    return TRIGGERS[name]


# ---------------------------------------------------------------- monitoring


def test_the_rules_are_those_of_prometheus() -> None:
    """The PrometheusRule is fresh, and holds exactly the groups that promtool has tested."""
    assert manifests.main(["--check"]) == 0
    groups = [group for name in FILES for group in load_rules(name)["groups"]]
    assert only("keda", "PrometheusRule")["spec"] == {"groups": groups}
    assert tuple(FILES) == manifests.SOURCES


def test_stale_rules_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that was changed makes ``--check`` fail until the file is written anew."""
    stale = tmp_path / "prometheusrule.yaml"
    stale.write_text(manifests.rules().replace("0.999", "0.99"))
    monkeypatch.setattr(manifests, "RULES", stale)
    assert manifests.main(["--check"]) == 1
    assert manifests.main([]) == 0
    assert manifests.main(["--check"]) == 0


def test_the_monitor_scrapes_the_job_that_rules_ask_for() -> None:
    """Each pod is scraped at its metrics port, under the name that rules and dashboards go by."""
    spec = only("keda", "PodMonitor")["spec"]
    labels = pod("keda")["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    assert labels[spec["jobLabel"]] == job["job_name"]
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["port"] in {one["name"] for one in container("keda")["ports"]}
    assert endpoint["path"] == job["metrics_path"]
    assert seconds(endpoint["scrapeTimeout"]) < seconds(endpoint["interval"]) <= 15


# ---------------------------------------------------------------- autoscaling


@pytest.mark.parametrize("name", ["offered-load", "queue-fill"])
def test_autoscaling_asks_for_what_is_there(name: str) -> None:
    """Each query asks for metrics that exist, and no data never scales in."""
    one = trigger(name)
    assert faults(one["metadata"]["query"]) == []
    assert one["metricType"] == "AverageValue"
    assert one["metadata"]["ignoreNullValues"] == "false"


def test_autoscaling_is_bounded_and_slow_to_leave() -> None:
    """There is a least and a most; up at once, down one by one; the number is nobody else's."""
    spec = only("keda", "ScaledObject")["spec"]
    assert "replicas" not in only("keda", "Deployment")["spec"]
    least, most = spec["minReplicaCount"], spec["maxReplicaCount"]
    assert 2 <= least == only("base", "Deployment")["spec"]["replicas"] < most
    assert least <= spec["fallback"]["replicas"] <= most
    assert spec["fallback"]["behavior"] == "currentReplicasIfHigher"
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 0
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= 300
    assert spec["scaleTargetRef"]["name"] == only("keda", "Deployment")["metadata"]["name"]


def replica(name: str, workers: int = 2, **rates: float) -> list[dict[str, str]]:
    """The series of a replica: per 15 s so many requests by class, and so many model seconds."""
    labels = f'job="seawall",instance="{name}"'
    series = {
        f'seawall_request_duration_seconds_count{{{labels},outcome_class="{kind}"}}': rate
        for kind, rate in rates.items()
        if kind != "busy"
    }
    series[f"seawall_batch_seconds_sum{{{labels}}}"] = rates["busy"]
    counters = [{"series": key, "values": f"0+{rate}x40"} for key, rate in series.items()]
    gauges = {"seawall_workers": workers, "seawall_ready": 1}
    return counters + [
        {"series": f"{key}{{{labels}}}", "values": f"{value}x40"} for key, value in gauges.items()
    ]


@pytest.mark.parametrize(
    "series, needed",
    [
        # 100 requests a second take 0.7 of two workers: one replica is just enough.
        (replica("a", ok=1500, busy=21), 1.0),
        # Two full replicas serve half of what arrives: twice what they can do, over 0.7.
        (
            replica("a", ok=1500, shed=1500, busy=30) + replica("b", ok=1500, shed=1500, busy=30),
            2 * 2 / 0.7,
        ),
        # Clients' own faults need no replica; those who left and those who were late did.
        (replica("a", client=9000, ok=500, late=500, gone=500, busy=21), 1.0),
        # Nobody asks: nothing is needed, and that is a number.
        (replica("a", ok=0, shed=0, busy=0), 0.0),
        # Nothing is known: no number, so that the fallback holds.
        ([], None),
    ],
)
def test_needed_replicas_follow_the_offered_load(
    series: list[dict[str, str]], needed: float | None, tmp_path: Path
) -> None:
    """The query gives the replicas that all that arrives would need, refused requests included."""
    threshold = float(trigger("offered-load")["metadata"]["threshold"])
    query = trigger("offered-load")["metadata"]["query"]
    samples = [] if needed is None else [{"labels": "{}", "value": round(needed * threshold, 6)}]
    test = {
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": series,
                "promql_expr_test": [
                    {"expr": f"round({query}, 0.000001)", "eval_time": "5m", "exp_samples": samples}
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))
    done = promtool("test", "rules", "test.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


# ---------------------------------------------------------------- the route


def test_the_route_waits_longer_than_any_deadline() -> None:
    """The gateway's time-out never comes before ours, and the route leads to a service's port."""
    (rule,) = only("gateway", "HTTPRoute")["spec"]["rules"]
    longest_s = settings("gateway").max_deadline_ms / 1000
    for limit in rule["timeouts"].values():
        assert longest_s < seconds(limit) <= longest_s + 5
    (backend,) = rule["backendRefs"]
    ports = {
        (one["metadata"]["name"], port["port"])
        for one in rendered("gateway")
        if one["kind"] == "Service"
        for port in one["spec"]["ports"]
    }
    assert (backend["name"], backend["port"]) in ports
    assert "retry" not in rule


# ---------------------------------------------------------------- the check against definitions

DEFINITION = {
    "kind": "CustomResourceDefinition",
    "spec": {
        "group": "gateway.networking.k8s.io",
        "names": {"kind": "HTTPRoute"},
        "versions": [
            {
                "name": "v1",
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "apiVersion": {"type": "string"},
                            "kind": {"type": "string"},
                            "metadata": {"type": "object"},
                            "spec": {
                                "type": "object",
                                "required": ["rules"],
                                "properties": {
                                    "hostnames": {"type": "array", "items": {"type": "string"}},
                                    "parentRefs": {"type": "array"},
                                    "rules": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "x-kubernetes-preserve-unknown-fields": True,
                                            "properties": {
                                                "weight": {"x-kubernetes-int-or-string": True}
                                            },
                                        },
                                    },
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}
"""A small definition in the form of a real one."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with that definition, and a file that is none."""
    (tmp_path / "route.yaml").write_text(yaml.safe_dump(DEFINITION))
    (tmp_path / "other.yaml").write_text("kind: List\n")
    return tmp_path


def test_definitions_are_read_strictly(folder: Path) -> None:
    """A field that a definition does not list is a fault, unless it leaves its object open."""
    known = manifests.definitions(folder)
    good = copy.deepcopy(only("gateway", "HTTPRoute"))
    good["spec"]["rules"][0]["weight"] = "2"
    assert list(manifests.faults([good], known)) == []
    bad = copy.deepcopy(good)
    bad["spec"]["hostname"] = bad["spec"].pop("hostnames")
    bad["spec"]["rules"][0]["weight"] = []
    found = list(manifests.faults([bad], known))
    assert len(found) == 2
    assert "hostname" in found[0] + found[1]


def test_the_command_checks_every_overlay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--schemas`` names what it has checked, what is wrong, and fails where it knows nothing."""
    assert manifests.main(["--schemas", str(folder)]) == 0
    assert "HTTPRoute" in capsys.readouterr().out
    text = (folder / "route.yaml").read_text()
    (folder / "route.yaml").write_text(text.replace("hostnames", "hosts"))
    assert manifests.main(["--schemas", str(folder)]) == 1
    assert "gateway: HTTPRoute seawall" in capsys.readouterr().out
    (folder / "route.yaml").unlink()
    assert manifests.main(["--schemas", str(folder)]) == 1
