"""A client names an address or a file in every way there is: nobody connects, nothing is opened."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import Server
from tests.trap import Trap

pytestmark = pytest.mark.e2e

ANSWERS = {200, 400, 404, 413, 415, 422}


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
