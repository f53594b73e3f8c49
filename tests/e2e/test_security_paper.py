"""What docs/security.md shows of nginx and Envoy, taken from the paper and tried."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from service.settings import load_settings
from tests.e2e.conftest import PATIENT
from tests.e2e.envoy import Envoy
from tests.e2e.nginx import AROUND
from tests.e2e.program import Program
from tests.e2e.prometheus import free_port
from tests.e2e.server import Server, wait_for
from tests.tools import ROOT, require_tool

pytestmark = pytest.mark.e2e

NAME = "predict.example.org"
WAITS_MS = 30_000
"""What both proxies wait for an answer."""


def shown(language: str) -> str:
    """The one example of that language in the paper."""
    paper = (ROOT / "docs/security.md").read_text()
    [found] = re.findall(rf"(?ms)^```{language}\n(.*?)^```$", paper)
    return str(found)


@dataclass(frozen=True)
class Proxied:
    """A proxy as the paper shows it, before a server."""

    client: httpx.Client
    server: Server
    secure: bool

    def ask(self, body: str = "one two three", path: str = "/", **headers: str) -> httpx.Response:
        """A prediction of the name that is served; underscores are hyphens."""
        named = {"Host": NAME} | {key.replace("_", "-"): value for key, value in headers.items()}
        server_name = {"sni_hostname": NAME} if self.secure else {}
        return self.client.post(path, content=body, headers=named, extensions=server_name)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """As the paper has it behind a proxy."""
    flags = ("--model", "synthetic:cpu", "--behind-proxy", "--rehearsal")
    with Server(*PATIENT, *flags) as server:
        yield server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a certificate for the name."""
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        [
            require_tool("openssl"), "req", "-x509", "-nodes", "-newkey", "ec",
            "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "30", "-subj", f"/CN={NAME}",
            "-addext", f"subjectAltName=DNS:{NAME}",
            "-keyout", str(folder / "seawall.key"), "-out", str(folder / "seawall.pem"),
        ],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return folder


def trusting(port: int, certificate: Path) -> httpx.Client:
    """A client that takes this certificate and no other."""
    context = ssl.create_default_context(cafile=str(certificate / "seawall.pem"))
    return httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, timeout=60)


class Nginx(Program):
    """nginx with the paper's example: other ports, another certificate."""

    def __init__(self, folder: Path, certificate: Path, replica: int) -> None:
        self.port = free_port()
        site = shown("nginx")
        for old, new in (
            ("/etc/ssl/", f"{certificate}/"),
            ("listen 443 ", f"listen 127.0.0.1:{self.port} "),
            ("127.0.0.1:8000;", f"127.0.0.1:{replica};"),
        ):
            assert old in site
            site = site.replace(old, new)
        path = folder / "nginx.conf"
        path.write_text(AROUND.format(folder=folder, site=site))
        self.command = [require_tool("nginx"), "-c", str(path), "-p", str(folder), "-e", "stderr"]
        super().__init__(self.command, f"http://127.0.0.1:{self.port}")


@pytest.fixture(scope="module")
def nginx(
    server: Server, certificate: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Nginx]:
    """It listens."""
    with Nginx(tmp_path_factory.mktemp("nginx"), certificate, server.port) as nginx:
        wait_for(lambda: _listens(nginx.port), "nginx")
        yield nginx


@pytest.fixture(scope="module", params=["nginx", "envoy"])
def proxied(
    request: pytest.FixtureRequest,
    server: Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Proxied]:
    """Each proxy in turn."""
    if request.param == "nginx":
        port = request.getfixturevalue("nginx").port
        with trusting(port, request.getfixturevalue("certificate")) as client:
            yield Proxied(client, server, secure=True)
        return
    http: dict[str, Any] = yaml.safe_load(shown("yaml"))
    with Envoy(tmp_path_factory.mktemp("envoy"), [server.port], http) as envoy:
        envoy.wait_healthy(1)
        with httpx.Client(base_url=f"http://127.0.0.1:{envoy.port}", timeout=60) as client:
            yield Proxied(client, server, secure=False)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_predictions_pass(proxied: Proxied) -> None:
    """An answer, an error of the client's, and a refusal come as the server gave them."""
    answer = proxied.ask(X_Request_Id="mine-1")
    assert (answer.status_code, answer.json()["tokens"]) == (200, 3)
    assert answer.headers["x-request-id"] == "mine-1"
    fault = proxied.ask("x " * 600)
    assert (fault.status_code, fault.json()["code"]) == (422, "invalid_input")
    failed = proxied.server.outcomes().get("out_of_memory", 0)
    refused = proxied.ask(X_Rehearse_Fault="oom-always")
    assert (refused.status_code, refused.json()["code"]) == (503, "out_of_memory")
    assert int(refused.headers["retry-after"]) >= 1
    assert proxied.server.outcomes()["out_of_memory"] == failed + 1, "it was tried again"


def test_deadlines_are_told(proxied: Proxied) -> None:
    """The client's own deadline passes; what only a proxy may say is the proxy's, not forged."""
    assert proxied.ask(X_Request_Timeout_Ms="never").json()["code"] == "malformed_request"
    assert proxied.ask(x_envoy_expected_rq_timeout_ms="never").status_code == 200
    short = proxied.ask(X_Request_Timeout_Ms="300", X_Rehearse_Fault="slow=2000")
    assert (short.status_code, short.json()["code"]) == (504, "deadline_exceeded")


def test_the_rest_stays_inside(proxied: Proxied) -> None:
    """Probes, figures and pages are not for clients, nor is a body that is too large."""
    for path in ("/metrics", "/status", "/readyz", "/docs", "/v2/models", "/%2e/status"):
        assert proxied.ask(path=path).status_code in {400, 404}, path
    before = proxied.server.outcomes().get("payload_too_large", 0)
    assert proxied.ask("x" * (load_settings([], {}).max_body_bytes + 1)).status_code == 413
    assert proxied.server.outcomes().get("payload_too_large", 0) == before


def test_another_name_is_not_served(proxied: Proxied) -> None:
    """A name that somebody else owns leads nowhere."""
    before = sum(proxied.server.outcomes().values())
    try:
        answer = proxied.ask(Host="evil.example.com")
    except httpx.TransportError:
        assert proxied.secure
    else:
        assert answer.status_code in {404, 421}
    assert sum(proxied.server.outcomes().values()) == before


# ---------------------------------------------------------------- nginx alone


def test_nginx_has_nothing_to_say(nginx: Nginx) -> None:
    """``nginx -t`` warns of nothing, as long as it is a release of before http2 was a directive."""
    done = subprocess.run(
        [*nginx.command, "-t", "-q"], capture_output=True, text=True, timeout=60, check=False
    )
    said = [line for line in done.stderr.splitlines() if "http2" not in line]
    assert (done.returncode, said) == (0, [])


def test_no_handshake_for_another_name(nginx: Nginx, certificate: Path) -> None:
    """Who asks for another name, or for an address, is not even shown a certificate."""
    with trusting(nginx.port, certificate) as client:
        for name in ("evil.example.com", "127.0.0.1"):
            with pytest.raises(httpx.ConnectError, match=r"(?i)unrecognized|alert"):
                client.get("/", headers={"Host": NAME}, extensions={"sni_hostname": name})


def test_one_address_has_a_rate(nginx: Nginx, certificate: Path) -> None:
    """Past the rate and its burst the proxy refuses by itself, with another status than ours."""
    with trusting(nginx.port, certificate) as client:
        statuses: Counter[int] = Counter()
        for _ in range(400):  # a burst of 40, and 20 a second: of these some are too many
            answer = client.head("/", headers={"Host": NAME}, extensions={"sni_hostname": NAME})
            statuses[answer.status_code] += 1
            if statuses[429] >= 5:
                break
    assert {*statuses} == {200, 429}
    assert statuses[200] >= 1
