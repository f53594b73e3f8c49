"""Proxies and systemd: their files are valid, and their numbers are of one mind with the server."""

from __future__ import annotations

import configparser
import re
import subprocess
from typing import Any

import pytest
import yaml

from service.settings import Settings, load_settings
from tests.tools import ROOT, require_tool

ENVOY: dict[str, Any] = yaml.safe_load((ROOT / "deploy/envoy/envoy.yaml").read_text())
CLUSTER = ENVOY["static_resources"]["clusters"][0]
HTTP = ENVOY["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
ROUTE = HTTP["route_config"]["virtual_hosts"][0]["routes"][0]["route"]
NGINX = (ROOT / "deploy/nginx/seawall.conf").read_text()
UNIT = ROOT / "deploy/systemd/seawall.service"

MOST_EXPOSED = 2.0
"""By the scale of ``systemd-analyze security``: from 0, safe, to 10, unsafe."""


@pytest.fixture(scope="module")
def on_kubernetes() -> Settings:
    """The settings of the manifests, which the proxies' numbers go with."""
    lines = (ROOT / "deploy/kubernetes/base/settings.env").read_text().splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return load_settings([], {name: value for name, _, value in pairs})


def seconds(text: str) -> float:
    """A duration such as ``31s`` or ``45``."""
    return float(text.removesuffix("s"))


def nginx(name: str) -> str:
    """The value of a directive that stands once."""
    (value,) = re.findall(rf"(?m)^\s*{name} ([^;]*);", NGINX)
    return str(value)


# ---------------------------------------------------------------- Envoy


def test_envoy_takes_the_file() -> None:
    """A real Envoy finds the configuration valid."""
    done = subprocess.run(
        [
            require_tool("envoy"), "--mode", "validate", "--log-level", "off",
            "-c", str(ROOT / "deploy/envoy/envoy.yaml"),
        ],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_envoy_goes_by_readiness_and_sees_a_drain_in_time(on_kubernetes: Settings) -> None:
    """Its checks ask ``/readyz``, and a draining replica is out before its delay has passed."""
    (check,) = CLUSTER["health_checks"]
    assert check["http_health_check"]["path"] == "/readyz"
    seen_s = (seconds(check["interval"]) + seconds(check["timeout"])) * check["unhealthy_threshold"]
    assert seen_s * 1000 < on_kubernetes.drain_delay_ms
    assert seconds(check["no_traffic_interval"]) == seconds(check["interval"])


def test_envoy_ejects_for_failures_and_never_for_refusals() -> None:
    """Only 500 and 502 are a replica's failures; a 503, shed or not, ejects nobody."""
    options = CLUSTER["typed_extension_protocol_options"]
    (http,) = options.values()
    rules = http["outlier_detection"]["error_matcher"]["or_match"]["rules"]
    headers = [one for rule in rules for one in rule["http_response_headers_match"]["headers"]]
    assert {one["name"] for one in headers} == {":status"}
    assert {one["string_match"]["exact"] for one in headers} == {"500", "502"}
    assert CLUSTER["outlier_detection"]["max_ejection_percent"] <= 50


def test_envoy_retries_only_what_nobody_has_begun() -> None:
    """No retry on any status; another host; a budget; and no queue in front of the queue."""
    policy = ROUTE["retry_policy"]
    assert {*policy["retry_on"].split(",")} == {
        "connect-failure", "refused-stream", "reset-before-request",
    }  # fmt: skip
    assert "previous_hosts" in policy["retry_host_predicate"][0]["name"]
    (limits,) = CLUSTER["circuit_breakers"]["thresholds"]
    assert limits["retry_budget"]["budget_percent"]["value"] <= 20
    assert limits["max_pending_requests"] == limits["max_connections"]


def test_times_and_sizes_go_with_the_settings(on_kubernetes: Settings) -> None:
    """A proxy's time-out comes after ours, its idle end before ours, and its size is ours."""
    longest_s = on_kubernetes.max_deadline_ms / 1000
    options = CLUSTER["typed_extension_protocol_options"].values()
    (idle,) = (one["common_http_protocol_options"]["idle_timeout"] for one in options)
    sizes = [one["typed_config"].get("max_request_bytes") for one in HTTP["http_filters"]]
    for timeout in (ROUTE["timeout"], nginx("proxy_read_timeout")):
        assert longest_s < seconds(timeout) <= longest_s + 5
    for idle_s in (seconds(idle), seconds(nginx("keepalive_timeout"))):
        assert idle_s < on_kubernetes.keep_alive_s
    assert on_kubernetes.max_body_bytes in sizes
    assert nginx("client_max_body_size") == f"{on_kubernetes.max_body_bytes >> 20}m"
    # Requests are whole before they reach a replica.
    assert HTTP["http_filters"][0]["name"] == "envoy.filters.http.buffer"
    assert nginx("proxy_request_buffering") == "on"
    received_s = on_kubernetes.receive_timeout_ms / 1000
    for name in ("request_timeout", "request_headers_timeout"):
        assert seconds(HTTP[name]) <= received_s
    for name in ("client_header_timeout", "client_body_timeout"):
        assert seconds(nginx(name)) <= received_s


# ---------------------------------------------------------------- nginx


def test_nginx_never_takes_a_refusal_for_a_failure() -> None:
    """No status is tried elsewhere or counted, and no POST is sent twice."""
    assert {*nginx("proxy_next_upstream").split()} == {"error", "timeout"}


# ---------------------------------------------------------------- systemd


def unit() -> configparser.SectionProxy:
    """The unit's service section; of what is given twice the last one."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser["Service"]


def test_systemd_takes_the_unit(tmp_path: Any) -> None:
    """The unit is valid for a real systemd, once its program is on the machine."""
    text = UNIT.read_text().replace("/opt/seawall/bin/seawall", "/bin/true")
    copy = tmp_path / UNIT.name
    copy.write_text(text)
    done = subprocess.run(
        [require_tool("systemd-analyze"), "verify", str(copy)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_is_hardened() -> None:
    """By systemd's own measure little of the machine is exposed."""
    limit = str(int(MOST_EXPOSED * 10))
    done = subprocess.run(
        [
            require_tool("systemd-analyze"), "security", "--offline=true", "--no-pager",
            f"--threshold={limit}", str(UNIT),
        ],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-400:] + done.stderr


def test_the_unit_stops_and_restarts_as_the_server_means_it() -> None:
    """The drain fits before the kill, workers are the server's own, and some ends are final."""
    settings = load_settings([], {})
    needed_s = (settings.drain_delay_ms + settings.drain_timeout_ms) / 1000 + 5
    service = unit()
    assert float(service["TimeoutStopSec"]) >= needed_s
    assert (service["KillMode"], service["KillSignal"]) == ("mixed", "SIGTERM")
    assert service["Restart"] == "on-failure"
    # 2: wrong settings, 3: the model cannot be loaded; 4, a crash loop, is tried again.
    assert service["RestartPreventExitStatus"] == "2 3"
    assert service["ExecStart"].endswith("/seawall serve")
    named = re.findall(r"\bSEAWALL_[A-Z_]+(?==)", UNIT.read_text())
    assert {name.removeprefix("SEAWALL_").lower() for name in named} - {"name"} <= {
        *Settings.model_fields
    }
