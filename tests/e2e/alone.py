"""The main job where there is no network: ``unshare --net python -m tests.e2e.alone``.

Raises the loopback interface of the new namespace, starts the server with its defaults (on a free
port), asks it until the model is there, and asks with the real curl. Prints what it saw as JSON.
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
import sys
from typing import Any

from tests.e2e.server import Server, wait_for

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
"""From linux/sockios.h and linux/if.h."""

ELSEWHERE = ("192.0.2.1", 80)
"""An address that is nobody's."""


def raise_loopback() -> None:
    """Switch the namespace's own loopback interface on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        answer = fcntl.ioctl(any_socket, SIOCGIFFLAGS, request)
        flags = struct.unpack("16sh14x", answer)[1] | IFF_UP
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags))


def reaches(address: tuple[str, int]) -> bool:
    """Whether there is a way to ``address`` at all."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            any_socket.connect(address)
        except OSError:
            return False
    return True


def curl(url: str) -> Any:
    """The contract's own request, with the real program."""
    text = "Paris is the [MASK] of France."
    command = ["curl", "-sS", "-X", "POST", "-d", text, url]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main() -> None:
    """Do all of it."""
    raise_loopback()
    seen: dict[str, Any] = {
        "interfaces": [name for _, name in socket.if_nameindex()],
        "reaches_elsewhere": reaches(ELSEWHERE),
        "lives": [],
        "refusals": [],
    }
    with Server(ready=False, env={"HF_HUB_OFFLINE": ""}) as server:

        def answered() -> bool:
            seen["lives"].append(server.get("/livez").status_code)
            patience = {"X-Request-Timeout-Ms": "60000"}  # the first run of a model is slow
            answer = server.predict("The [MASK] is here.", **patience)
            if answer.status_code != 200:
                retry_after = answer.headers.get("retry-after")
                seen["refusals"].append([answer.status_code, answer.json()["code"], retry_after])
            return answer.status_code == 200

        def curled() -> bool:
            """Once more only if it was late: that is the machine's doing."""
            seen["answer"] = answer = curl(server.url + "/")
            return isinstance(answer, list) or answer.get("code") != "deadline_exceeded"

        wait_for(answered, "the first answer")
        wait_for(curled, "an answer in time")
        server.terminate()
        seen["exit_code"] = server.wait()
        seen["log"] = server.lines
        seen["every_line_is_json"] = len(server.lines) == len(server.raw)
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
