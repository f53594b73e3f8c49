"""The compose file, read without a container runtime: what it names is there, and fits together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings, load_settings
from tests.contract.tree import files
from tests.tools import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]

GRACE_MORE_S = 5
"""What a stop takes beyond the drain (the operations paper, "Stop")."""


def load(path: str) -> Any:
    """A file under ``deploy/`` as data."""
    return yaml.safe_load((DEPLOY / path).read_text())


def mounts(name: str) -> list[tuple[str, str, bool]]:
    """Source, target and whether it is read only, of each mount of a service."""
    parts = [one.split(":") for one in SERVICES[name]["volumes"]]
    return [(source, target, mode == ["ro"]) for source, target, *mode in parts]


def inside(name: str, path: str) -> Path:
    """The file of this tree that a service sees under ``path``."""
    for source, target, _ in mounts(name):
        if path.startswith(f"{target}/") and source.startswith("."):
            return DEPLOY / source / path.removeprefix(f"{target}/")
    raise AssertionError(f"{name} sees nothing of this tree under {path}")


def port(name: str) -> tuple[str, str, str]:
    """Address, port outside and port inside of a service."""
    [text] = SERVICES[name]["ports"]
    host, outer, inner = text.split(":")
    return host, outer, inner


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_fixed_versions_without_a_host(name: str) -> None:
    """Every image is named by its version; whose registry it comes from is the user's choice."""
    image = SERVICES[name]["image"]
    assert re.fullmatch(r"([a-z]+/)?[a-z]+:v?\d+\.\d+(\.\d+)?(-slim)?", image)


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_on_this_machine_alone(name: str) -> None:
    """Nothing is open to the network by itself, and no two services take one port."""
    host, outer, _ = port(name)
    assert host == "127.0.0.1"
    assert sum(port(other)[1] == outer for other in SERVICES) == 1


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_has_more_rights_or_memory_than_it_needs(name: str) -> None:
    """No service keeps a capability, can gain rights, or can take the machine's memory."""
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "user"} & set(service)
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])


@pytest.mark.parametrize("name", SERVICES)
def test_every_mount_is_there(name: str) -> None:
    """Whatever is mounted is in the tree and read only, or is a volume that is declared."""
    tracked = {str(path) for path in files()}
    for source, target, read_only in mounts(name):
        assert target.startswith("/")
        if source.startswith("."):
            path = (DEPLOY / source).resolve().relative_to(ROOT)
            assert any(one == str(path) or one.startswith(f"{path}/") for one in tracked), source
            assert read_only, source
        else:
            assert source in COMPOSE["volumes"]
    used = {source for one in SERVICES for source, _, _ in mounts(one)}
    assert set(COMPOSE["volumes"]) <= used


def test_every_setting_of_the_server_exists() -> None:
    """The server's variables are settings, they go together, and it listens where others look."""
    variables = SERVICES["seawall"]["environment"]
    settings = load_settings([], variables)
    assert settings.address.port == int(port("seawall")[2])
    assert not settings.address.is_loopback
    assert {one.removeprefix("SEAWALL_").lower() for one in variables} <= {*Settings.model_fields}


def test_the_grace_period_covers_the_drain() -> None:
    """A stop leaves time for the delay, the drain and what comes after it."""
    settings = load_settings([], SERVICES["seawall"]["environment"])
    needed = (settings.drain_delay_ms + settings.drain_timeout_ms) / 1000 + GRACE_MORE_S
    grace = SERVICES["seawall"]["stop_grace_period"]
    assert re.fullmatch(r"\d+s", grace)
    assert int(grace[:-1]) >= needed


def test_the_server_is_installed_from_what_is_mounted() -> None:
    """The command's files are mounted, and the folder that it installs into can be written."""
    script = SERVICES["seawall"]["command"][-1]
    (installer,) = re.findall(r"python (\S+)", script)
    assert inside("seawall", f"/seawall/{installer}").is_file()
    (venv,) = re.findall(r"exec (\S+)/bin/seawall serve", script)
    assert (venv, f"/seawall/{venv}") == (".venv", "/seawall/.venv")
    assert ("seawall-venv", "/seawall/.venv", False) in mounts("seawall")
    # What the build reads besides the package itself.
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        assert (f"../{name}", f"/seawall/{name}", True) in mounts("seawall")


def test_health_is_liveness() -> None:
    """The container's health is ``/livez``: a loading or overloaded server is not restarted."""
    assert "/livez" in SERVICES["seawall"]["healthcheck"]["test"][-1]


def test_prometheus_differs_from_the_plain_one_in_addresses_only() -> None:
    """The compose file's Prometheus does what the documented one does, at other addresses."""
    (option,) = (one for one in SERVICES["prometheus"]["command"] if "config.file" in one)
    path = inside("prometheus", option.partition("=")[2])
    text = path.read_text().partition("global:")[2]
    plain = (DEPLOY / "prometheus/prometheus.yml").read_text().partition("global:")[2]
    there = text.replace("alertmanager:9093", "127.0.0.1:9093")
    assert there.replace("seawall:8000", "127.0.0.1:8000") == plain
    for name in load("prometheus/prometheus.compose.yml")["rule_files"]:
        assert (path.parent / name).is_file()


def test_every_address_is_a_service_and_its_port() -> None:
    """Prometheus, Alertmanager and Grafana look for each other where they are."""
    config = load("prometheus/prometheus.compose.yml")
    [scrape], [alerting] = config["scrape_configs"], config["alerting"]["alertmanagers"]
    asked = [*scrape["static_configs"], *alerting["static_configs"]]
    addresses = [target for one in asked for target in one["targets"]]
    [source] = load("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    addresses.append(source["url"].removeprefix("http://"))
    assert sorted(addresses) == ["alertmanager:9093", "prometheus:9090", "seawall:8000"]
    for address in addresses:
        name, _, inner = address.partition(":")
        assert port(name)[2] == inner


def test_prometheus_keeps_what_the_rules_look_at() -> None:
    """Thirty days are kept, or the service level would say less than it claims."""
    command = SERVICES["prometheus"]["command"]
    (kept,) = (one.partition("=")[2] for one in command if "retention.time" in one)
    windows = re.findall(r"\[(\d+)d\]", (DEPLOY / "prometheus/rules.yaml").read_text())
    assert int(kept.removesuffix("d")) > max(map(int, windows))
    assert "--enable-feature=exemplar-storage" in command


def test_alertmanager_reads_the_shipped_configuration() -> None:
    """The compose file's Alertmanager has the routing that is tested."""
    (option,) = (one for one in SERVICES["alertmanager"]["command"] if "config.file" in one)
    assert inside("alertmanager", option.partition("=")[2]).is_file()


def test_grafana_shows_the_dashboards_of_the_tree() -> None:
    """Grafana's provider looks where ``dashboards/`` is mounted."""
    [provider] = load("grafana/provisioning/dashboards/seawall.yaml")["providers"]
    sources = {target: source for source, target, _ in mounts("grafana")}
    assert sources[provider["options"]["path"]] == "../dashboards"
    assert sources["/etc/grafana/provisioning"] == "./grafana/provisioning"
    provisioned = {path.name for path in (DEPLOY / "grafana/provisioning").iterdir()}
    assert provisioned == {"datasources", "dashboards"}


def test_nothing_is_taken_from_whoever_starts_it() -> None:
    """The file means the same everywhere: no value comes from a variable."""
    assert "$" not in (DEPLOY / "compose.yaml").read_text()
