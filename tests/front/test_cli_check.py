"""``seawall check``: what it says before and after a model is loaded, and how it ends."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from service import cli
from service.core.limits import DEADLINE_LADDER_S
from service.settings import Settings
from service.tasks import TASKS, task_named
from service.worker.wire import Facts
from tests.front.test_cli import SECRET, seawall

PICKLE_ONLY = (
    "The model has its weights only as a pickle, which can run code when it is loaded; "
    "convert them to safetensors."
)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("SEAWALL_"):
            monkeypatch.delenv(name)


def test_check_prints_what_is_in_force(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every setting in force with where it came from, no secret, then every warning; exit 0."""
    keys = tmp_path / SECRET
    keys.write_text(SECRET)
    config = tmp_path / "s.toml"
    config.write_text("max_items = 5\n")
    monkeypatch.setenv("SEAWALL_QUEUE_LIMIT", "9")
    argv = ["check", "--rehearsal", "--api-keys-file", str(keys), "--config", str(config)]
    folder = tmp_path / "model"
    folder.mkdir()
    assert cli.main([*argv, "--model", str(folder)]) == 0
    output = capsys.readouterr()
    assert SECRET not in output.out + output.err
    in_force = output.out.partition("Warning: ")[0]
    rows = {line.split()[0]: line.split()[1:] for line in in_force.splitlines()[1:]}
    assert list(Settings.model_fields) == list(rows)
    assert rows["bind"] == ["127.0.0.1:8000", "default"]
    assert rows["queue_limit"] == ["9", "SEAWALL_QUEUE_LIMIT"]
    assert rows["max_items"] == ["5", "max_items", "in", "s.toml"]
    assert rows["rehearsal"] == ["true", "--rehearsal"]
    assert rows["api_keys_file"] == ["set", "--api-keys-file"]
    assert rows["metrics_bind"] == ["none", "default"]
    assert rows["model"] == [str(folder), "--model"]
    assert [line for line in output.out.splitlines() if line.startswith("Warning: ")] == [
        "Warning: rehearsal: faults are acted out on demand; never on a server that people use."
    ]


def tables(output: str) -> dict[str, dict[str, str]]:
    """The tables that were printed, by their title: sentences by name."""
    found: dict[str, dict[str, str]] = {}
    for line in output.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            found[line[:-1]] = {}
        elif line.startswith("  ") and found:
            name, text = line[2:22].strip(), line[23:]
            found[list(found)[-1]][name] = text
    return found


@pytest.mark.parametrize("task", [*TASKS, "generic:newer-task"])
def test_check_says_what_would_be_served(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without loading anything: the model, the task, how it runs, and the limits that are known."""
    model = "synthetic:cpu" if task == "synthetic" else "fill-mask-small"
    assert cli.main(["check", "--task", task, "--model", model, "--max-items", "300"]) == 0
    found = tables(capsys.readouterr().out)
    served, limits = found["Would be served"], found["Limits"]
    entry = task_named(task)
    assert served["task"].startswith(task)
    assert served["model"].startswith(f"{model}, ")
    assert served["runs"].startswith(f"{entry.way}: ")
    for name, parameter in entry.parameters.items():
        assert name + (" (required)" if parameter.required else "") in served["parameters"]
    assert ("needs" in served) == bool(entry.needs)
    assert limits["inputs"] == "256 in a request"  # the queue holds no more
    assert limits["body"] == f"{2**20 if entry.media == 'text' else 16 * 2**20} bytes"
    assert "--load" in limits["deadline"]
    assert "Cost" not in found


@pytest.mark.parametrize(
    "model, where",
    [("fill-mask-small", "inside the package"), ("synthetic:cpu", "no model"),
     ("./here", "a folder"), ("org/name", "from the hub (main), unless it is cached")],
)  # fmt: skip
def test_check_says_where_the_model_is(
    model: str, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inside the package, a folder, the hub, or none at all."""
    assert cli.main(["check", "--model", model]) == 0
    assert where in tables(capsys.readouterr().out)["Would be served"]["model"]


def test_check_loads() -> None:
    """``check --load`` starts a real worker and prints cost and limits as a server has them."""
    result = seawall("check", "--model", "synthetic:cpu", "--load", "--queue-limit", "9")
    assert (result.returncode, result.stderr) == (0, "")
    found = tables(result.stdout)
    assert found["The model works"]["device"] == "synthetic, none"
    fixed, unit, _ = found["Cost"]["a batch"].split(" ms", 2)
    assert float(fixed) > 0
    assert float(unit.removeprefix(" + ")) > 0
    assert "words" in found["Cost"]["one typical input"]
    limits = found["Limits"]
    deadline = limits["deadline"].split(" s, ")[0]
    assert float(deadline) in DEADLINE_LADDER_S
    assert "a client may name up to 60 s" in limits["deadline"]
    assert limits["predicted wait"].endswith("then 503 overloaded")
    assert limits["tokens"] == "512 in one input"
    assert limits["characters"].startswith("16384 in a request of one input, ")
    assert limits["queue"].startswith("9 inputs")
    assert "Warning: max_items: more than queue_limit" in result.stdout


def test_check_names_what_was_found() -> None:
    """A model that cannot be batched, a faster way and generated tokens are said."""
    from service.check import words

    facts = Facts(
        task="text-generation", model="m", device="cuda", dtype="bfloat16", mask_token="",
        max_tokens=100, vocab_size=50, batchable=False, cost_fixed_s=0.002, cost_unit_s=0.001,
        typical_units=10, units_per_char=0.2, prepare_s_per_char=0.0, load_s=3.0,
        torch_threads=4, workers=3, path="gathered", step_units=2.0,
    )  # fmt: skip
    settings = Settings(deadline_ms=7000, max_chars=500)
    found = dict(words.found(settings, facts))
    assert found["device"] == "cuda, bfloat16, 4 threads a worker"
    assert found["workers"].startswith("3,")
    assert "one input after the other" in found["runs"]
    assert found["path"].startswith("gathered")
    costs = dict(words.costs(facts, "tokens"))
    assert costs["one typical input"] == "10 tokens: 12 ms alone"
    assert costs["the longest input"] == "100 tokens: 102 ms alone"
    assert costs["a generated token"] == "2 ms"
    limits = dict(words.limits(settings, facts))
    assert limits["deadline"] == "7 s; a client may name up to 60 s"
    assert limits["characters"] == "500 in a request of one input, 500 in one of 64"
    before = dict(words.limits_before(settings))
    assert (before["deadline"], before["characters"]) == ("7 s", "500 in a request")


def weights(folder: Path, **config: object) -> Path:
    """A folder that looks like a model, with a word more in its configuration."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def pickle_only(folder: Path) -> list[str]:
    """Weights only as a pickle."""
    (weights(folder, model_type="bert") / "pytorch_model.bin").write_bytes(b"x")
    return ["--model", str(folder)]


def own_code(folder: Path) -> list[str]:
    """A model that brings its own code."""
    weights(folder, model_type="own", auto_map={"AutoConfig": "own.C"})
    header = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    size = len(header).to_bytes(8, "little")
    (folder / "model.safetensors").write_bytes(size + header + bytes(4))
    return ["--model", str(folder)]


@pytest.mark.parametrize(
    "given, code, says",
    [
        (["--model", "./no-such-folder"], 3, "The model folder does not exist."),
        (["--device", "cuda:77"], 2, "This machine has no such device."),
        (["--task", "text-generation"], 3,
         "The model was made for another task. It fits the task fill-mask."),
        (["--model", "nobody/no-such-model"], 3,
         "The model is no folder and not in the local cache, and HF_HUB_OFFLINE is set."),
        (pickle_only, 3, PICKLE_ONLY),
        (own_code, 3, "The model brings its own code; set trust_remote_code if you trust it."),
    ],
)  # fmt: skip
def test_check_cannot_load(given: Any, code: int, says: str, tmp_path: Path) -> None:
    """A model that cannot be loaded is one sentence and the code that serve would end with."""
    argv = given if isinstance(given, list) else given(tmp_path / "model")
    result = seawall("check", "--load", *argv, HF_HUB_OFFLINE="1")
    assert (result.returncode, result.stderr) == (code, f"seawall: {says}\n")
    assert "The model works" not in result.stdout


@pytest.mark.parametrize(
    "code, limit_s, says",
    [
        ("raise SystemExit(1)", 60, "the worker process ended while loading (crashed)"),
        ("import sys; sys.stdin.read(); import signal; signal.pause()", 1,
         "the model was not ready in time: raise load_timeout_s"),
    ],
)  # fmt: skip
def test_check_of_a_silent_worker(
    code: str,
    limit_s: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A worker process that ends or hangs before it says anything is a sentence too."""
    from service.supervisor import supervisor

    monkeypatch.setattr(
        "service.supervisor.worker_factory",
        lambda settings: supervisor.worker_factory(settings, (sys.executable, "-c", code)),
    )
    argv = ["check", "--load", "--model", "synthetic:cpu", "--load-timeout-s", str(limit_s)]
    assert cli.main(argv) == 3
    assert capfd.readouterr().err == f"seawall: {says}\n"
