"""A real nginx with the shipped configuration, pointed at servers of a test."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import httpx

from tests.e2e.program import Program
from tests.e2e.prometheus import free_port
from tests.e2e.server import wait_for
from tests.tools import ROOT, require_tool

SHIPPED = ROOT / "deploy/nginx/seawall.conf"

AROUND = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
{site}
}}
"""
"""What the system's own configuration does, kept in one folder."""


def pointed_at(replicas: Sequence[int], port: int) -> str:
    """The shipped site at another port, with other replicas."""
    text = SHIPPED.read_text().replace("listen 127.0.0.1:8080;", f"listen 127.0.0.1:{port};")
    line = "    server 127.0.0.1:{} max_fails=3 fail_timeout=5s;\n"
    servers = "".join(line.format(one) for one in replicas)
    text, found = re.subn(r"(    server 127\.0\.0\.1:.*\n)+", servers, text, count=1)
    assert found == 1
    assert f":{port};" in text
    return text


def write(folder: Path, replicas: Sequence[int], port: int) -> Path:
    """A whole configuration in ``folder``."""
    path = folder / "nginx.conf"
    path.write_text(AROUND.format(folder=folder, site=pointed_at(replicas, port)))
    return path


class Nginx(Program):
    """nginx with its own port and the test's replicas; all else is as shipped.

    Args:
        folder: an empty folder for its files.
        replicas: the ports of the replicas on this machine.
    """

    def __init__(self, folder: Path, replicas: Sequence[int]) -> None:
        self.port = free_port()
        path = write(folder, replicas, self.port)
        command = [require_tool("nginx"), "-c", str(path), "-p", str(folder), "-e", "stderr"]
        super().__init__(command, f"http://127.0.0.1:{self.port}")

    def wait_up(self) -> None:
        """Wait until it answers."""

        def up() -> bool:
            try:
                return self.client.get("/livez").status_code == 200
            except httpx.TransportError:
                return False

        wait_for(up, "nginx")
