"""The main job, as whoever clones the repository meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.e2e.server import LONG_S, Server, clean_environment, wait_for
from tests.tools import ROOT, require_tool

pytestmark = pytest.mark.e2e

PATIENCE = {"X-Request-Timeout-Ms": "60000"}
ENTRY = {"score", "token", "token_str", "sequence"}


def skip(reason: str) -> None:
    """Skip the test, or fail it where everything must be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def check_capital(answer: Any) -> None:
    """The pipeline's answer for one text with one mask: five alternatives, ``capital`` first."""
    assert isinstance(answer, list)
    assert [set(entry) for entry in answer] == [ENTRY] * 5
    assert answer[0]["token_str"] == "capital"
    assert answer[0]["sequence"] == "paris is the capital of france."
    scores = [entry["score"] for entry in answer]
    assert scores == sorted(scores, reverse=True)
    assert 0.5 < scores[0] <= 1.0


def test_without_any_network_the_curl_of_the_readme_is_answered() -> None:
    """With loopback alone: alive at once, 503 until the model is there, then ``capital``."""
    require_tool("curl")
    unshare = [require_tool("unshare"), "--net"]
    if os.geteuid() != 0:
        unshare.append("--map-root-user")
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        skip("this machine lets nobody make a network namespace")
    done = subprocess.run(
        [*unshare, sys.executable, "-m", "tests.e2e.alone"],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * LONG_S,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["interfaces"] == ["lo"]
    assert seen["reaches_elsewhere"] is False
    assert len(seen["refusals"]) > 1  # the port was open long before the model was there
    for status, code, retry_after in seen["refusals"]:
        assert (status, code) == (503, "model_loading")
        assert int(retry_after) >= 1
    assert set(seen["lives"]) == {200}
    check_capital(seen["answer"])
    assert seen["exit_code"] == 0
    assert seen["every_line_is_json"]
    assert [line for line in seen["log"] if line["level"] not in {"info", "debug"}] == []


class MakeServe(Server):
    """``make serve`` in the source tree itself."""

    def __init__(self) -> None:
        arguments = "ARGS=--bind 127.0.0.1:0 --log-format json"
        super().__init__(command=("make", "serve", arguments))


def test_make_serve_serves_again_and_again() -> None:
    """``make serve`` answers, a second time within seconds; SIGTERM and Ctrl-C end it cleanly."""
    require_tool("make")
    if not (ROOT / ".venv" / "bin" / "seawall").exists():
        skip("there is no .venv/: make serve would install everything first")

    with MakeServe() as server:
        answer = server.predict("Paris is the [MASK] of France.", **PATIENCE)
        check_capital(answer.json())
        os.kill(server.process.pid, signal.SIGTERM)  # make passes it on
        server.wait()
        assert server.event("server.stopped", exit_code=0) is not None, server.text
        assert "Traceback" not in server.text

    before = time.monotonic()
    with MakeServe() as server:
        assert server.get("/livez").status_code == 200
        check_capital(server.predict("Paris is the [MASK] of France.", **PATIENCE).json())
        assert time.monotonic() - before < LONG_S / 2
        workers = server.children()
        assert workers
        os.killpg(server.process.pid, signal.SIGINT)  # as a terminal does
        server.wait()
        assert server.event("server.stopped", exit_code=0) is not None, server.text
        assert "Traceback" not in server.text
        wait_for(lambda: not any(worker.is_running() for worker in workers), "the workers' end")
