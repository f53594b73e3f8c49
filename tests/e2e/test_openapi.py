"""A fuzzer reads what the server says of itself, asks it accordingly, and finds it true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import PATIENT
from tests.e2e.fuzzer import ALL, CHECKS, fuzz
from tests.e2e.server import Server

pytestmark = pytest.mark.e2e

KEY = "a-key-of-this-test"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without a model, that asks for a key."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"{KEY}\n")
    flags = ("--model", "synthetic:cpu", "--api-keys-file", str(keys))
    with Server(*PATIENT, *flags) as found:
        found.client.headers["Authorization"] = f"Bearer {KEY}"
        yield found


def tried(report: str) -> int:
    """How many requests it has made."""
    found = re.search(r"(\d+) generated, \1 passed", report)
    assert found, report
    return int(found[1])


def test_everything_that_is_described(server: Server, tmp_path: Path) -> None:
    """Every route answers as it says, with a key and without."""
    report = fuzz(
        server, tmp_path, "--phases", "examples,coverage,fuzzing", "--max-examples", "10",
        "-H", f"Authorization: Bearer {KEY}", checks=",".join((*CHECKS, "ignored_auth")),
    )  # fmt: skip
    paths = server.get("/openapi.json").json()["paths"]
    operations = sum(len(methods) for methods in paths.values())
    assert f"{operations} selected / {operations} total" in report
    assert tried(report) > 300
    outcomes = server.outcomes()
    assert not outcomes.keys() & {"internal_error", "model_error", "worker_lost"}
    assert {"ok", "invalid_input", "malformed_request", "unauthorized"} <= outcomes.keys()
    server.healthy()


def test_what_fits_is_taken(server: Server, tmp_path: Path) -> None:
    """Where no model counts tokens, whatever fits the description of a prediction is answered."""
    key = ("-H", f"Authorization: Bearer {KEY}")
    fuzz(server, tmp_path, "--phases", "coverage", "--include-path", "/", *key, checks=ALL)


def test_a_real_model(model: Server, tmp_path: Path) -> None:
    """The packaged model behind it: no 500, and nothing that is not described."""
    report = fuzz(
        model, tmp_path, "--phases", "examples,coverage,fuzzing", "--max-examples", "10",
        "--include-path", "/",
    )  # fmt: skip
    assert tried(report) > 100


def test_it_can_fail(server: Server, tmp_path: Path) -> None:
    """Without a key a server that answers nothing but 401 is not taken for one that works."""
    with pytest.raises(AssertionError, match=r"Schema-valid"):
        fuzz(server, tmp_path, "--phases", "examples", "--include-path", "/", checks=ALL)
