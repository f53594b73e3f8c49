"""A client names an address or a file in every way there is: nobody connects, nothing is opened."""

from __future__ import annotations

import base64
import errno
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import Server

pytestmark = pytest.mark.e2e

ANSWERS = {200, 400, 404, 413, 415, 422}


class Trap:
    """A listener that must never be contacted and a file that must never be opened.

    The file is a pipe: whoever opens it to read waits there, and is seen.
    """

    def __init__(self, folder: Path) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.file = folder / "secret.png"
        os.mkfifo(self.file)

    @property
    def names(self) -> list[str]:
        """Every way of naming either."""
        port = self.listener.getsockname()[1]
        path = str(self.file)
        near = f"127.0.0.1:{port}/x.png"
        dotted = f"/proc/self/root{path}", f"{self.file.parent}/./{self.file.name}"
        return [
            f"http://{near}", f"HTTP://{near}", f"hTTps://{near}", f"//{near}", f"ftp://{near}",
            f" http://{near}", f"http://user:word@{near}", f"http://localhost:{port}/x.wav",
            f"http://2130706433:{port}/x.png", f"http://[::ffff:127.0.0.1]:{port}/x.png",
            f"url:http://{near}", f"hf://{near}", f"s3://{near}", f"http:/{near}",
            f"data:image/png;url=http://{near}", f"data:text/html,<img src=http://{near}>",
            path, f"file://{path}", f"FILE://{path}", f"file:{path}", f"file://localhost{path}",
            f"@{path}", f"<{path}", f"{path}\x00.txt", *dotted, os.path.relpath(path),
            f"|cat {path}", f"$(cat {path})", f"{{{{open('{path}')}}}}", f"%file:{path}%",
            f'<!DOCTYPE x [<!ENTITY y SYSTEM "file://{path}">]>&y;',
            f'!!python/object/apply:open ["{path}"]', f"c__builtin__\nopen\n(V{path}\ntR.",
            f"../../../../../../../../..{path}", path.replace("/", "%2F"),
        ]  # fmt: skip

    def untouched(self) -> bool:
        """Whether nobody has come."""
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return not _somebody_reads(self.file)
        return False

    def close(self) -> None:
        """The listener ends."""
        self.listener.close()


def _somebody_reads(pipe: Path) -> bool:
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return False
    return True


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Trap]:
    """One, untouched so far."""
    trap = Trap(tmp_path)
    yield trap
    trap.close()


def bodies(name: str) -> Iterator[tuple[bytes, dict[str, str]]]:
    """Every place of a request in which a name can stand."""
    shapes: list[Any] = [
        name, f"{name} [MASK]", [name], [f"{name} [MASK]", name], {"image": name}, {"url": name},
        {"audio": name, "raw": name}, {"text": name, "candidate_labels": [name]}, [[name]],
        [{"role": "user", "content": [{"type": "image", "url": name}]}],
        {"path": name, "array": name, "sampling_rate": 1}, {"src": name},
        base64.b64encode(name.encode()).decode(),
    ]  # fmt: skip
    for shape in shapes:
        yield json.dumps({"inputs": shape}).encode(), {"Content-Type": "application/json"}
    for parameters in (
        {"targets": [name]}, {"targets": name}, {"image": name}, {"tokenizer": name},
        {"model": name, "revision": name}, {"timeout": 1, "url": name}, {"cache_dir": name},
    ):  # fmt: skip
        body = {"inputs": "a [MASK]", "parameters": parameters}
        yield json.dumps(body).encode(), {"Content-Type": "application/json"}
    yield json.dumps({"inputs": "a [MASK]", "url": name}).encode(), {}
    for content_type in (
        "text/plain", "application/x-www-form-urlencoded", "image/png", "audio/wav",
        "application/octet-stream", "multipart/form-data; boundary=x", "message/external-body",
        "text/uri-list", "application/xml", "application/yaml",
    ):  # fmt: skip
        yield name.encode(), {"Content-Type": content_type}
    yield f"{name} [MASK]".encode(), {}


FOLLOWED = (
    "X-Forwarded-For", "Referer", "Origin", "X-Original-URL", "traceparent", "X-Sendfile",
    "X-Accel-Redirect", "Content-Location", "Link", "Forwarded",
)  # fmt: skip
"""Headers that other servers follow."""


def test_the_trap_works(trap: Trap) -> None:
    """A connection and an open file are both seen, so the tests below can fail."""
    assert trap.untouched()
    reader = os.open(trap.file, os.O_RDONLY | os.O_NONBLOCK)
    assert not trap.untouched()
    os.close(reader)
    assert trap.untouched()
    with socket.create_connection(trap.listener.getsockname()):
        assert not trap.untouched()


def test_nothing_that_a_client_names_is_fetched_or_opened(model: Server, trap: Trap) -> None:
    """Addresses and paths in inputs, parameters, types and headers are text or a refusal."""
    for name in trap.names:
        for body, head in bodies(name):
            answer = model.client.post("/", content=body, headers=head)
            assert answer.status_code in ANSWERS, (name, body)
        if name.isprintable() and name.strip() == name:
            head = dict.fromkeys(FOLLOWED, name) | {"Content-Type": "text/plain"}
            answer = model.client.post("/", content=b"a [MASK]", headers=head)
            assert answer.status_code == 200, name
        assert trap.untouched(), name


def test_no_path_leads_out_of_the_pages(model: Server, trap: Trap) -> None:
    """No address of the server leads to a file that is not one of its pages."""
    for name in trap.names:
        if not name.isprintable() or " " in name:
            continue
        for page in ("/site/", "/errors/", "/", "/site/../../", "/site/%2e%2e/"):
            target = page + name.lstrip("/")
            answer = model.client.build_request("GET", "/")
            answer.url = answer.url.copy_with(raw_path=target.encode())
            shown = model.client.send(answer)
            assert shown.status_code in {400, 404}, target
        assert trap.untouched(), name
    for path in (
        "/site/page.html",
        "/site/__init__.py",
        "/site/%2e%2e/keys.py",
        "/site/..%2fapi.py",
    ):
        assert model.get(path).status_code == 404
