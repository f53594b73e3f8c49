"""The Kubernetes manifests: valid, hardened, and of one mind with the server."""

from __future__ import annotations

import os
from pathlib import Path

import kubernetes_validate
import manifests
import pytest

from service import __version__
from tests.contract.manifests_rendered import (
    ROOTS,
    components,
    container,
    kinds,
    only,
    pod,
    rendered,
    settings,
    size_bytes,
)
from tests.tools import require_tool

CLUSTERS = ("1.31", kubernetes_validate.latest_version())
"""The oldest release that has every field used here as a stable one, and the newest known."""

CUSTOM = {"HTTPRoute", "PodMonitor", "PrometheusRule", "ScaledObject"}
"""Kinds that a cluster learns from operators."""

CORE = [
    "ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service", "Service",
    "ServiceAccount",
]  # fmt: skip

FRONT_BYTES, WORKER_BYTES = 64 << 20, 512 << 20
"""Measured with the packaged model: 53 MiB, and 445 MiB for each worker."""

STOP_MORE_S = 5
"""What a stop takes beyond the drain (the operations paper, "Stop")."""


@pytest.mark.parametrize("version", CLUSTERS)
@pytest.mark.parametrize("name", ROOTS)
def test_clusters_take_every_object(name: str, version: str) -> None:
    """Every core object is valid for old and new clusters, with no field that they do not know."""
    for one in rendered(name):
        if one["kind"] not in CUSTOM:
            kubernetes_validate.validate(one, version, strict=True)


def test_a_misspelt_field_is_found() -> None:
    """The validation is strict: a field that nobody knows is a fault."""
    one = {**only("base", "ServiceAccount"), "automountToken": False}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(one, CLUSTERS[0], strict=True)


@pytest.mark.parametrize(
    "name, more",
    [
        ("base", []),
        ("gateway", ["HTTPRoute"]),
        ("gpu", []),
        ("keda", ["PodMonitor", "PrometheusRule", "ScaledObject"]),
    ],
)
def test_each_root_adds_what_it_says(name: str, more: list[str]) -> None:
    """The base needs no operator; each overlay adds its own kinds and nothing else."""
    assert kinds(name) == sorted([*CORE, *more])


def test_all_parts_go_together(tmp_path: Path) -> None:
    """Whoever needs all of it lists every component, and no two of them collide."""
    require_tool("kubectl")
    where = os.path.relpath(manifests.FOLDER.resolve(), tmp_path.resolve())
    parts = "\n".join(f"  - {where}/components/{path.name}" for path in components())
    (tmp_path / "kustomization.yaml").write_text(
        f"resources:\n  - {where}/base\ncomponents:\n{parts}\n"
    )
    made = manifests.render(tmp_path)
    assert {one["kind"] for one in made} == {*CORE} | CUSTOM
    names = [(one["kind"], one["metadata"]["name"]) for one in made]
    assert len({*names}) == len(names)


# ---------------------------------------------------------------- rights


@pytest.mark.parametrize("name", ROOTS)
def test_the_pod_has_no_rights(name: str) -> None:
    """No root, no capability, no token, no writable root; the profile of restricted pods holds."""
    spec, inside = pod(name)["spec"], container(name)["securityContext"]
    assert spec["automountServiceAccountToken"] is False
    assert only(name, "ServiceAccount")["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & {*spec}
    outside = spec["securityContext"]
    assert outside["runAsNonRoot"] is True
    assert min(outside[key] for key in ("runAsUser", "runAsGroup", "fsGroup")) >= 10000
    assert outside["seccompProfile"] == {"type": "RuntimeDefault"}
    assert inside == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [one.keys() - {"name"} for one in spec["volumes"]] == [{"emptyDir"}]
    assert [one["mountPath"] for one in container(name)["volumeMounts"]] == ["/tmp"]


@pytest.mark.parametrize("name", ROOTS)
def test_the_network_is_shut(name: str) -> None:
    """Clients reach one port, the monitoring the other, and the pod reaches nobody."""
    spec = only(name, "NetworkPolicy")["spec"]
    assert {*spec["policyTypes"]} == {"Ingress", "Egress"}
    assert spec["egress"] == []
    ports = [port["port"] for rule in spec["ingress"] for port in rule["ports"]]
    assert ports == [one["name"] for one in container(name)["ports"]]
    assert all(rule["from"] for rule in spec["ingress"])


# ---------------------------------------------------------------- of one mind with the server


@pytest.mark.parametrize("name", ROOTS)
def test_settings_are_settings_and_are_read(name: str) -> None:
    """The map holds settings, the pod reads it, and no service link puts others beside them."""
    spec, config = pod(name)["spec"], only(name, "ConfigMap")
    assert container(name)["envFrom"] == [{"configMapRef": {"name": config["metadata"]["name"]}}]
    assert "env" not in container(name)
    assert spec["enableServiceLinks"] is False
    assert settings(name).log_format == "json"


@pytest.mark.parametrize("name", ROOTS)
def test_ports_are_those_of_the_settings(name: str) -> None:
    """The server listens where pod, services and probes look for it."""
    ports = {one["name"]: one["containerPort"] for one in container(name)["ports"]}
    chosen = settings(name)
    assert chosen.metrics_address is not None
    assert ports == {"http": chosen.address.port, "metrics": chosen.metrics_address.port}
    assert not chosen.address.is_loopback
    assert not chosen.metrics_address.is_loopback
    for one in rendered(name):
        if one["kind"] == "Service":
            (port,) = one["spec"]["ports"]
            assert (port["port"], port["targetPort"]) == (ports["http"], "http")


@pytest.mark.parametrize("name", ROOTS)
def test_the_grace_covers_delay_drain_and_deadline(name: str) -> None:
    """A stop ends by itself before the kill, and waits as long as any request may take."""
    chosen = settings(name)
    assert chosen.drain_timeout_ms >= chosen.max_deadline_ms
    needed_s = (chosen.drain_delay_ms + chosen.drain_timeout_ms) / 1000 + STOP_MORE_S
    assert pod(name)["spec"]["terminationGracePeriodSeconds"] >= needed_s


@pytest.mark.parametrize("name", ROOTS)
def test_probes_ask_the_right_question(name: str) -> None:
    """Start waits longer than a load takes, ready is seen within the delay, live asks for life."""
    one, chosen = container(name), settings(name)
    start, ready, live = (one[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness"))
    asked = [probe["httpGet"] for probe in (start, ready, live)]
    assert asked == [{"path": path, "port": "http"} for path in ("/startupz", "/readyz", "/livez")]
    assert start["periodSeconds"] * start["failureThreshold"] > chosen.load_timeout_s
    seen_s = ready["periodSeconds"] * ready["failureThreshold"] + ready["timeoutSeconds"]
    assert seen_s * 1000 < chosen.drain_delay_ms
    assert live["periodSeconds"] * live["failureThreshold"] >= 30
    patience_s = only(name, "Deployment")["spec"]["progressDeadlineSeconds"]
    assert patience_s > chosen.load_timeout_s


@pytest.mark.parametrize("name", ROOTS)
def test_threads_and_memory_fit_the_limits(name: str) -> None:
    """Every thread has a core and the server one more; memory holds all that may be held."""
    chosen, wanted = settings(name), container(name)["resources"]
    assert isinstance(chosen.workers, int)
    assert isinstance(chosen.torch_threads, int)
    assert chosen.workers * chosen.torch_threads + 1 <= float(wanted["limits"]["cpu"])
    for kind in ("cpu", "memory"):  # what is promised is what may be used
        assert wanted["requests"][kind] == wanted["limits"][kind]
    (scratch,) = pod(name)["spec"]["volumes"]
    held = (
        FRONT_BYTES + chosen.workers * WORKER_BYTES + size_bytes(scratch["emptyDir"]["sizeLimit"])
    )
    held += chosen.queue_bytes + chosen.max_receiving_bytes
    assert size_bytes(wanted["limits"]["memory"]) >= held


def test_a_gpu_is_one_of_each() -> None:
    """A GPU's replica has one device, one worker, the CUDA image, and needs no spare device."""
    one, chosen = container("gpu"), settings("gpu")
    assert one["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert (chosen.device, chosen.workers) == ("cuda", 1)
    assert one["image"].endswith(f":{__version__}-cuda")
    assert only("gpu", "Deployment")["spec"]["strategy"]["rollingUpdate"] == {
        "maxSurge": 0,
        "maxUnavailable": 1,
    }
    (toleration,) = pod("gpu")["spec"]["tolerations"]
    assert toleration["key"] == "nvidia.com/gpu"


# ---------------------------------------------------------------- many replicas


@pytest.mark.parametrize("name", ROOTS)
def test_replicas_stand_and_leave_one_by_one(name: str) -> None:
    """They spread over nodes and zones, a node's emptying takes one, and all selectors agree."""
    labels = {"app.kubernetes.io/name": "seawall"}
    assert pod(name)["metadata"]["labels"] == labels
    spread = pod(name)["spec"]["topologySpreadConstraints"]
    assert len({one["topologyKey"] for one in spread}) == 2
    budget = only(name, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    selectors = [
        budget["selector"]["matchLabels"],
        only(name, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        only(name, "Deployment")["spec"]["selector"]["matchLabels"],
        *(one["labelSelector"]["matchLabels"] for one in spread),
        *(one["spec"]["selector"] for one in rendered(name) if one["kind"] == "Service"),
    ]
    assert all(one == labels for one in selectors)


@pytest.mark.parametrize("name", ["base", "keda", "gateway"])
def test_a_rollout_costs_no_capacity(name: str) -> None:
    """The new replica is ready before an old one leaves, and the image is this version's."""
    rollout = only(name, "Deployment")["spec"]["strategy"]["rollingUpdate"]
    assert rollout == {"maxSurge": 1, "maxUnavailable": 0}
    assert container(name)["image"] == f"registry.example.com/seawall:{__version__}"
