"""Settings together: what cannot hold at once, what is unwise, and what is derived from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.core.limits import LimitSettings
from service.settings import Settings, SettingsError, load, load_settings
from service.settings.together import loaded_warnings, warnings
from service.worker.wire import Facts

SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    "argv, line",
    [
        (
            ["--rehearsal", "--bind=0.0.0.0:8000"],
            "--rehearsal must be off unless bound to loopback: leave it out or bind 127.0.0.1:8000",
        ),
        (
            ["--metrics-bind=127.0.0.1:8000"],
            "--metrics-bind must differ from bind: choose another port or leave it out",
        ),
        (
            ["--deadline-ms=60001"],
            "--deadline-ms must be at most max_deadline_ms: lower it or raise that one",
        ),
        (
            ["--deadline-ms=500", "--max-wait-ms=501"],
            "--max-wait-ms must be at most deadline_ms: lower it or raise that one",
        ),
        (
            ["--batch-ms=60001"],
            "--batch-ms must be at most max_deadline_ms: lower it or raise that one",
        ),
        (
            ["--batch-ms=5000", "--watchdog-ms=5000"],
            "--watchdog-ms must be more than batch_ms, or it ends good batches: raise it",
        ),
        (
            ["--model=synthetic:cpu", "--task=fill-mask"],
            "--task must be synthetic with a synthetic: model: leave it out",
        ),
        (
            ["--task=synthetic"],
            "model must be synthetic:cpu or synthetic:gpu with the task synthetic",
        ),
    ],
)
def test_what_cannot_hold_together(argv: list[str], line: str) -> None:
    """Settings that contradict each other are refused by the name as given, with the way out."""
    with pytest.raises(SettingsError) as caught:
        load_settings(argv, {})
    assert caught.value.lines == [line]


def test_contradictions_in_python() -> None:
    """Settings made in Python are held to the same rules, by their own names."""
    with pytest.raises(ValidationError, match="max_wait_ms must be at most deadline_ms"):
        Settings(deadline_ms=500, max_wait_ms=501)


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "[::1]:0", "localhost:0", "unix:s", "127.9.9.9:1"])
def test_rehearsal_on_loopback(bind: str) -> None:
    """A rehearsal is allowed wherever no other machine can connect."""
    assert load_settings(["--rehearsal", "--bind", bind], {}).rehearsal


def test_two_picked_ports_differ() -> None:
    """Port 0 twice is two ports that the system picks."""
    assert Settings(bind="127.0.0.1:0", metrics_bind="127.0.0.1:0").metrics_address


@pytest.mark.parametrize("model", ["synthetic:cpu", "synthetic:gpu"])
def test_synthetic_implies_its_task(model: str) -> None:
    """A synthetic model needs no task named, and names where it came from."""
    loaded = load(["--model", model], {})
    assert loaded.settings.task == "synthetic"
    assert loaded.settings.model_path == model
    assert loaded.origins["task"] == "implied by model"


def test_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is the packaged one, a folder (a path, or one that is there), or a hub id."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "org" / "here").mkdir(parents=True)
    packaged = Settings()
    assert packaged.packaged_model
    assert (Path(packaged.model_path) / "model.safetensors").is_file()
    for model, path, name in (
        ("./m", str(tmp_path / "m"), "m"),
        ("~/m", str(tmp_path / "m"), "m"),
        ("/srv/models/m/", "/srv/models/m", "m"),
        ("org/here", str(tmp_path / "org" / "here"), "here"),
        ("org/hub", "org/hub", "hub"),
        ("hub", "hub", "hub"),
    ):
        settings = Settings(model=model)
        assert (settings.model_path, settings.model_name) == (path, name)
        assert not settings.packaged_model


def test_settings_do_not_change() -> None:
    """Settings are read once; nothing can change them afterwards."""
    with pytest.raises(ValidationError):
        Settings().queue_limit = 1
    with pytest.raises(ValidationError):
        Settings.model_validate({"queue_limt": 1})


def test_limit_settings() -> None:
    """What limits derive from: numbers as they are, ``auto`` as nothing."""
    assert Settings().limit_settings == LimitSettings(None, 60_000, None, None, None, None)
    every = Settings(deadline_ms=5, max_wait_ms=4, batch_ms=3, watchdog_ms=20, max_chars=2)
    assert every.limit_settings == LimitSettings(5, 60_000, 4, 3, 20, 2)


def test_public_holds_no_secret(tmp_path: Path) -> None:
    """What ``/status`` shows is JSON of every setting, without key file and folders."""
    keys = tmp_path / SECRET
    keys.write_text(SECRET)
    folder = tmp_path / "model"
    settings = load_settings(["--api-keys-file", str(keys), "--model", str(folder)], {})
    text = json.dumps(settings.public())
    assert str(tmp_path) not in text
    assert SECRET not in text + repr(settings)
    assert list(settings.public()) == list(Settings.model_fields)
    assert settings.public()["api_keys_file"] == "set"
    assert settings.public()["model"] == "model"
    assert Settings().public()["api_keys_file"] == ""


# ---------------------------------------------------------------- what is unwise


@pytest.mark.parametrize(
    "values, said",
    [
        ({"rehearsal": True}, ["rehearsal"]),
        ({"bind": "0.0.0.0:8000"}, ["bind"]),
        ({"bind": "0.0.0.0:8000", "api_keys_file": "keys"}, []),
        ({"metrics_bind": "[::]:9000"}, ["metrics_bind"]),
        ({"trust_remote_code": True}, ["trust_remote_code"]),
        ({"revision": "main"}, ["revision"]),
        ({"revision": "main", "model": "org/name"}, []),
        ({"model": "./not-there"}, ["model"]),
        ({"deadline_ms": 40_000}, ["drain_timeout_ms"]),
        ({"deadline_ms": 2000, "max_wait_ms": 2000}, ["max_wait_ms"]),
        ({"max_wait_ms": 60_000}, ["max_wait_ms"]),
        ({"deadline_ms": 2000, "batch_ms": 1001}, ["batch_ms"]),
        ({"deadline_ms": 999}, ["slo_latency_ms"]),
        ({"queue_limit": 63}, ["max_items"]),
        ({"behind_proxy": True}, []),
        ({"max_connections_per_client": 5, "behind_proxy": True}, ["max_connections_per_client"]),
        ({"max_connections": 9, "max_connections_per_client": 10}, ["max_connections_per_client"]),
        ({"max_connections": 9, "max_connections_per_client": 9}, []),
        ({"max_connections_per_client": 10}, []),
        ({"max_receiving_bytes": 2**20 - 1}, ["max_body_bytes"]),
        ({"queue_bytes": 2**20 - 1}, ["max_body_bytes"]),
        ({}, []),
    ],
)
def test_warnings(values: dict[str, object], said: list[str]) -> None:
    """What is legal but unwise is said once, by the setting's name; the defaults are wise."""
    assert [one.partition(":")[0] for one in warnings(Settings.model_validate(values))] == said


def test_warnings_with_measured_costs() -> None:
    """With the costs of the warm-up it is known what a full queue means."""
    facts = Facts(
        task="fill-mask", model="m", device="cpu", dtype="float32", mask_token="[MASK]",
        max_tokens=128, vocab_size=10, batchable=True, cost_fixed_s=0.005, cost_unit_s=0.0005,
        typical_units=16, units_per_char=0.25, prepare_s_per_char=1e-6, load_s=1.0, torch_threads=1,
    )  # fmt: skip
    # 250 items, the 125 ms of a batch hold 15: 250 × (5/15 + 8) ms = 2.1 s against 1 s
    settings = Settings(queue_limit=250, deadline_ms=1000)
    assert [one[:60] for one in loaded_warnings(settings, facts)] == [
        "queue_limit: a queue full of typical items takes 2.1 s, the "
    ]
    assert loaded_warnings(Settings(queue_limit=100, deadline_ms=1000), facts) == []
    assert loaded_warnings(Settings(queue_limit=250, deadline_ms=1000, workers=4), facts) == []
    assert [
        one[:14] for one in loaded_warnings(Settings(slo_latency_ms=10, queue_limit=9), facts)
    ] == ["slo_latency_ms"]
