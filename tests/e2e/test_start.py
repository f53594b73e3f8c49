"""Starting: what goes wrong is one line and the right exit code, before anything is slow."""

from __future__ import annotations

import pickle
import shutil
import socket
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest

from service import ENV_PREFIX
from service.settings import Settings
from tests.e2e.prometheus import free_port
from tests.e2e.server import (
    GOOD_TEXT,
    LONG_S,
    Ended,
    Server,
    clean_environment,
    run_to_end,
    wait_for,
)

pytestmark = pytest.mark.e2e

SYNTHETIC = ("--model", "synthetic:cpu")
FREE = ("--bind", "127.0.0.1:0")
WEIGHTS = "model.safetensors"

PATIENCE = {"X-Request-Timeout-Ms": "60000"}
"""The default deadline of a fast model is a second, and a busy machine may stand still as long."""

HEAVY = ("torch", "transformers", "numpy", "tokenizers", "safetensors", "huggingface_hub")


def check_bad_configuration(ended: Ended, *words: str) -> None:
    """Exit code 2, one line on standard error with those words, and nothing else anywhere."""
    assert (ended.code, ended.out) == (2, ""), ended
    [line] = ended.err.splitlines()
    assert line.startswith("seawall: ")
    for word in words:
        assert word in line


# ---------------------------------------------------------------- what the front is made of


def test_the_app_is_made_without_torch() -> None:
    """Making the app and the server imports nothing of the model's libraries."""
    program = (
        "import sys, service.server\n"
        "from service.app import create_app\n"
        "create_app()\n"
        f"print(sorted(set({HEAVY}) & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG_S,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_a_serving_front_holds_no_torch(model: Server) -> None:
    """With the real model served, the front's process has none of its libraries mapped."""
    assert model.predict(GOOD_TEXT).status_code == 200
    front = Path(f"/proc/{model.pid}/maps").read_text()
    worker = Path(f"/proc/{model.worker_pid}/maps").read_text()
    assert "/torch/" in worker
    for name in ("torch", "numpy", "tokenizers", "safetensors"):
        assert f"/{name}/" not in front


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize("setting", ["--bind", "--metrics-bind"])
def test_an_address_in_use_shows_before_anything_is_loaded(setting: str) -> None:
    """A taken port is exit 2 with a line that names it; no worker was started for it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        other = () if setting == "--bind" else FREE
        ended = run_to_end(*other, setting, address)  # the real model: nothing of it is loaded
    check_bad_configuration(ended, address, "in use", "--bind")


def test_a_unix_socket_is_for_owner_and_group_and_goes_with_the_server(tmp_path: Path) -> None:
    """``unix:PATH`` serves with mode 0660; one left behind is replaced, a living one is not."""
    path = tmp_path / "seawall.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))  # as a killed server leaves it
    command = (sys.executable, "-m", "service", "--bind", f"unix:{path}", "--log-format", "json")
    server = Server(command=(*command, *SYNTHETIC))
    try:
        wait_for(lambda: server.dead or server.event("worker.ready"), "readiness")
        started = server.event("server.started")
        assert started is not None, server.text
        assert started["address"] == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, timeout=LONG_S) as client:
            answer = client.post("http://localhost/", content=b"one two", headers=PATIENCE)
            assert answer.json()["tokens"] == 2
        check_bad_configuration(run_to_end("--bind", f"unix:{path}", *SYNTHETIC), str(path))
        server.process.terminate()
        assert server.wait() == 0
        assert not path.exists()
    finally:
        server.kill()


def test_metrics_may_have_an_address_of_their_own() -> None:
    """With ``metrics_bind`` metrics and status move there, and predictions are not served there."""
    port = free_port()
    with Server(*SYNTHETIC, "--metrics-bind", f"127.0.0.1:{port}") as server:
        assert server.get("/metrics").status_code == 404
        assert server.get("/status").status_code == 404
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONG_S) as other:
            assert other.get("/metrics").status_code == 200
            assert other.get("/status").json()["ready"] is True
            assert other.get("/livez").status_code == 200
            assert other.post("/", content=b"one two").status_code == 404
        assert server.predict("one two", **PATIENCE).status_code == 200
        server.terminate()
        assert server.wait() == 0


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "variables, flags, words",
    [
        ({"QUEUE_LIMIT": "many"}, (), ("SEAWALL_QUEUE_LIMIT", "whole number from 1 to 100000")),
        ({"QUEUE_LIMT": "4"}, (), ("SEAWALL_QUEUE_LIMT", "did you mean SEAWALL_QUEUE_LIMIT?")),
        ({}, ("--queue-limt", "4"), ("--queue-limt", "did you mean --queue-limit?")),
        ({}, ("--deadline-ms", "0"), ("--deadline-ms", "whole number")),
        ({}, ("--task", "fill-musk"), ("--task", "fill-mask")),
        ({"REHEARSAL": "true", "BIND": "0.0.0.0:0"}, (), ("SEAWALL_REHEARSAL", "loopback")),
        ({"CONFIG": "/no/such/file.toml"}, (), ("SEAWALL_CONFIG", "TOML")),
    ],
)
def test_a_wrong_setting_is_one_line(
    variables: dict[str, str], flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """A value out of range, a typo, two that conflict: exit 2, named as given, nearest name."""
    env = {ENV_PREFIX + name: value for name, value in variables.items()}
    bind = () if "BIND" in variables else FREE
    check_bad_configuration(run_to_end(*bind, *flags, env=env), *words)


def test_what_a_platform_injects_and_empty_variables_change_nothing() -> None:
    """Service variables of Kubernetes and Docker, and every setting as an empty one: it starts."""
    injected = {
        "SEAWALL_PORT": "tcp://10.0.0.1:8000",
        "SEAWALL_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "SEAWALL_PORT_8000_TCP_ADDR": "10.0.0.1",
        "SEAWALL_PORT_8000_TCP_PORT": "8000",
        "SEAWALL_PORT_8000_TCP_PROTO": "tcp",
        "SEAWALL_SERVICE_HOST": "10.0.0.1",
        "SEAWALL_SERVICE_PORT": "8000",
        "SEAWALL_SERVICE_PORT_HTTP": "8000",
        "SEAWALL_BLUE_SERVICE_HOST": "10.0.0.1",
    }
    empty = {ENV_PREFIX + name.upper(): "" for name in Settings.model_fields}
    with Server(*SYNTHETIC, "--workers", "auto", env=injected | empty) as server:
        assert server.predict(GOOD_TEXT, **PATIENCE).status_code == 200
        shown = server.status()["settings"]
    defaults = Settings(model="synthetic:cpu", bind=shown["bind"], log_format="json")
    assert shown == defaults.public()


# ---------------------------------------------------------------- models


class MarkerPickle:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self._marker,)


def no_folder(folder: Path) -> None:
    """A model that is not there."""
    shutil.rmtree(folder)


def no_config(folder: Path) -> None:
    """A folder without its configuration."""
    (folder / "config.json").unlink()


def broken_config(folder: Path) -> None:
    """A configuration that is no JSON."""
    (folder / "config.json").write_text("{")


def cut_weights(folder: Path) -> None:
    """Weights of which only the first part was copied."""
    with (folder / WEIGHTS).open("r+b") as file:
        file.truncate(1_000_000)


def pickle_only(folder: Path) -> None:
    """Weights that run code when they are unpickled."""
    (folder / WEIGHTS).unlink()
    marker = folder / "marker"
    code = pickle.dumps(MarkerPickle(marker))
    pickle.loads(code)  # noqa: S301 - to be sure that it would
    marker.unlink()
    (folder / "pytorch_model.bin").write_bytes(code)


@pytest.mark.parametrize(
    "spoil, words",
    [
        (no_folder, "does not exist"),
        (no_config, "config.json"),
        (broken_config, "config.json"),
        (cut_weights, "cut off"),
        (pickle_only, "safetensors"),
    ],
)
def test_a_model_that_cannot_be_loaded(tmp_path: Path, spoil: object, words: str) -> None:
    """Exit 3 and exactly one error line that names model and cause; a pickle is never opened."""
    assert callable(spoil)
    folder = tmp_path / "mine"
    shutil.copytree(Settings().model_path, folder)
    spoil(folder)
    ended = run_to_end(*FREE, "--model", str(folder))
    assert (ended.code, ended.err) == (3, "")
    [line] = ended.errors
    assert line["event"] == "worker.failed"
    assert line["model"] == "mine"
    assert words in line["message"]
    assert "worker.ready" not in ended.events()
    assert ended.lines[-1]["event"] == "server.stopped"
    assert ended.lines[-1]["exit_code"] == 3
    assert not (folder / "marker").exists()
    assert str(tmp_path) not in ended.out


def test_a_hub_model_that_is_not_cached_offline() -> None:
    """Without the network, a hub id that is not in the cache is exit 3 with that sentence."""
    ended = run_to_end(*FREE, "--model", "nobody/no-such-model")
    assert (ended.code, ended.err) == (3, "")
    [line] = ended.errors
    assert line["model"] == "no-such-model"
    assert "HF_HUB_OFFLINE" in line["message"]


def test_a_device_that_is_not_there_is_a_wrong_setting() -> None:
    """A missing device is found out by the worker, and still is exit 2 with one error line."""
    ended = run_to_end(*FREE, "--device", "cuda:63")
    assert (ended.code, ended.err) == (2, "")
    [line] = ended.errors
    assert "device" in line["message"]


# ---------------------------------------------------------------- what it prints


def test_every_line_is_one_event_and_every_request_is_told_once() -> None:
    """From start to stop each line is JSON; a prediction has one line, a probe none at INFO."""
    with Server(*SYNTHETIC) as server:
        server.predict(GOOD_TEXT, X_Request_Id="the-only-one", **PATIENCE)
        server.get("/no/such/page")
        server.predict_json({"inputs": 5})
        server.terminate()
        assert server.wait() == 0
    assert len(server.raw) == len(server.lines)
    events = Counter(line["event"] for line in server.lines)
    assert events["request.done"] == 2
    assert not events["http.done"]
    assert server.event("request.done", id="the-only-one", outcome="ok", status=200) is not None
    for line in server.lines:
        assert {"timestamp", "level", "event"} <= set(line)
    assert server.lines[0]["event"] == "server.started"
    assert server.lines[-1]["event"] == "server.stopped"


def test_debug_tells_pages_with_their_route() -> None:
    """At debug every page has a line too, with its template and never its path."""
    with Server(*SYNTHETIC, "--log-level", "debug") as server:
        server.get("/no/such/page")
        server.get("/errors/queue_full")
        line = server.wait_event("http.done", route="other")
        assert (line["method"], line["status"]) == ("GET", 404)
        assert server.wait_event("http.done", route="/errors/{code}")["status"] == 200
    assert "/no/such/page" not in server.text


def test_the_port_answers_from_the_first_second() -> None:
    """Long before the model is there, probes and metrics answer and predictions get 503."""
    with Server(ready=False) as server:
        assert server.get("/livez").status_code == 200
        assert server.get("/metrics").status_code == 200
        assert server.get("/startupz").status_code == 503
        refusal = server.get("/readyz")
        assert refusal.status_code == 503
        assert refusal.json()["ready"] is False
        answer = server.predict(GOOD_TEXT)
        assert answer.json()["code"] == "model_loading"
        assert int(answer.headers["retry-after"]) >= 1
        assert server.event("worker.ready") is None
