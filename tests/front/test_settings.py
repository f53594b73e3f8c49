"""Settings: every one by name, default, bounds and source, and what happens to wrong ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from service import ENV_PREFIX
from service.metrics.catalogue import LATENCY_BUCKETS_S
from service.settings import (
    LATENCY_BOUNDS_MS,
    Settings,
    SettingsError,
    help_text,
    load,
    load_settings,
)
from service.settings.sources import INJECTED, flag, variable
from service.tasks import REASONS, TASKS

AUTO = "auto"
MIB = 1024 * 1024
SECRET = "hunter2-hunter2"


class Row(NamedTuple):
    """One setting: its default, another good value, and texts that are refused."""

    default: Any
    good: Any
    bad: tuple[str, ...]
    says: str


def whole(default: Any, low: int, high: int, *, auto: bool = False) -> Row:
    """A whole number: both bounds are allowed, one beyond is not."""
    good = low if default != low else high
    bad = [str(low - 1), str(high + 1), "5.5", "5.0", "1e2", "0x10", "1_000", "true", "nan", "inf"]
    bad += ["٣", "9" * 5000] + ([] if auto else [AUTO])
    says = f"a whole number from {low} to {high}" + (" or auto" if auto else "")
    return Row(default, good, tuple(bad), says)


BIND = "HOST:PORT (port 0 to 65535, IPv6 in brackets: [::1]:8000) or unix:PATH"
BAD_BINDS = ("8000", ":8000", "::1:8000", "127.0.0.1", "127.0.0.1:65536", "a b:1", "unix:", "[x]:1")
HOUR_MS = 3_600_000

TABLE = {
    "bind": Row("127.0.0.1:8000", "127.0.0.2:0", BAD_BINDS, BIND),
    "metrics_bind": Row("", "unix:metrics.sock", BAD_BINDS, BIND + ", or empty"),
    "model": Row(
        "fill-mask-small", "org/name",
        ("synthetic:", "synthetic:tpu", "https://example.org/m", "-m", "a\nb"),
        "a hub id (org/name), a folder, synthetic:cpu or synthetic:gpu",
    ),
    "revision": Row("", "v1.0/x", ("-x", "a b", "\x00"), "a branch, tag or commit, or empty"),
    "task": Row(
        "fill-mask", "token-classification",
        ("fill_mask", "x", "generic:a b", "generic:"),
        f"one of {', '.join(TASKS)}, or generic:NAME for a newer one of transformers",
    ),
    "device": Row(
        AUTO, "cuda:1", ("gpu", "cuda:", "cpu:0", "CUDA"),
        "auto, cpu, mps, cuda or xpu, or one of several such as cuda:1",
    ),
    "dtype": Row(AUTO, "float16", ("int8",), "one of auto, float32, float16, bfloat16"),
    "workers": whole(AUTO, 1, 64, auto=True),
    "torch_threads": whole(AUTO, 1, 1024, auto=True),
    "trust_remote_code": Row(default=False, good=True, bad=("2", "ja"), says="true or false"),
    "queue_limit": whole(256, 1, 100_000),
    "queue_bytes": whole(256 * MIB, 1024, 64 * 1024 * MIB),
    "deadline_ms": whole(AUTO, 1, HOUR_MS, auto=True),
    "max_deadline_ms": whole(60_000, 1, HOUR_MS),
    "max_wait_ms": whole(AUTO, 1, HOUR_MS, auto=True),
    "batch_ms": whole(AUTO, 1, HOUR_MS, auto=True),
    "slo_latency_ms": Row(
        1000, 2.5, ("999", "2.50001", "nan", "-1", AUTO),
        "one of 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 750, 1000, 1500, 2000, 3000, 5000, 7500,"
        " 10000, 15000, 20000, 30000, 45000, 60000",
    ),
    "max_body_bytes": whole(MIB, 1, 32 * MIB),
    "max_items": whole(64, 1, 4096),
    "max_chars": whole(AUTO, 1, 32 * MIB, auto=True),
    "max_receiving_bytes": whole(64 * MIB, 1, 64 * 1024 * MIB),
    "max_connections": whole(AUTO, 1, 1_000_000, auto=True),
    "max_connections_per_client": whole(AUTO, 1, 1_000_000, auto=True),
    "behind_proxy": Row(default=False, good=True, bad=("2", "10.0.0.1"), says="true or false"),
    "receive_timeout_ms": whole(10_000, 1, 600_000),
    "keep_alive_s": whole(75, 1, 3600),
    "breaker_failures": whole(5, 1, 1000),
    "breaker_probe_ms": whole(1000, 10, 600_000),
    "watchdog_ms": whole(AUTO, 10, HOUR_MS, auto=True),
    "load_timeout_s": whole(300, 1, 86_400),
    "restart_limit": whole(5, 1, 1000),
    "restart_window_s": whole(300, 1, 86_400),
    "drain_delay_ms": whole(0, 0, 600_000),
    "drain_timeout_ms": whole(30_000, 0, HOUR_MS),
    "api_keys_file": Row("", __file__, ("a\nb", "\x7f"), "the path of a file, or empty"),
    "rehearsal": Row(default=False, good=True, bad=("2", "maybe"), says="true or false"),
    "log_level": Row("info", "debug", ("INFO", "trace"), "one of debug, info, warning, error"),
    "log_format": Row(AUTO, "json", ("xml",), "one of auto, json, console"),
}  # fmt: skip

EACH = pytest.mark.parametrize("name", TABLE)


def as_flags(name: str, value: Any) -> list[str]:
    """The value as somebody would write it on the command line."""
    if isinstance(value, bool):
        return [flag(name) if value else flag("no_" + name)]
    return [f"{flag(name)}={value}"]


def as_file(folder: Path, name: str, value: Any) -> list[str]:
    """A TOML file with this one setting, and the flag that names it."""
    path = folder / "seawall.toml"
    text = str(value).lower() if isinstance(value, bool) else value
    written = f'"{value}"' if isinstance(value, str) else text
    path.write_text(f"{name} = {written}\n")
    return ["--config", str(path)]


def built(**values: Any) -> Settings:
    """Settings from Python, where a type checker would already object."""
    return Settings(**values)


def lines_of(argv: list[str], environ: dict[str, str] | None = None) -> list[str]:
    """The errors that these flags and variables give."""
    with pytest.raises(SettingsError) as caught:
        load_settings(argv, environ or {})
    assert all("\n" not in line for line in caught.value.lines)
    return caught.value.lines


# ---------------------------------------------------------------- one setting


def test_the_table_is_complete() -> None:
    """Every setting stands in the contract's table, and nothing else."""
    assert list(Settings.model_fields) == list(TABLE)


@EACH
def test_default(name: str) -> None:
    """Without any source a setting has the documented default."""
    assert getattr(load_settings([], {}), name) == TABLE[name].default
    assert getattr(Settings(), name) == TABLE[name].default


@EACH
def test_empty_variable_is_the_default(name: str) -> None:
    """A variable that is set but empty means the default, for numbers too."""
    loaded = load([], {variable(name): ""})
    assert getattr(loaded.settings, name) == TABLE[name].default
    assert name not in loaded.origins


@EACH
def test_each_source(name: str, tmp_path: Path) -> None:
    """A value arrives alike from flag, variable, file and Python, and its origin is known."""
    good = TABLE[name].good
    file = as_file(tmp_path, name, good)
    by_flag = load(as_flags(name, good), {})
    by_variable = load([], {variable(name): str(good)})
    by_file = load(file, {})
    for loaded, origin in (
        (by_flag, flag(name)),
        (by_variable, variable(name)),
        (by_file, f"{name} in seawall.toml"),
    ):
        value = getattr(loaded.settings, name)
        assert value == good
        assert type(value) in (type(good), float)
        assert loaded.origins == {name: origin}
    assert getattr(built(**{name: good}), name) == good


@EACH
def test_precedence(name: str, tmp_path: Path) -> None:
    """A flag wins over a variable, a variable over the file, the file over the default."""
    default, good, _, _ = TABLE[name]
    first = as_flags(name, good)
    file = as_file(tmp_path, name, default)
    env = {variable(name): str(default) or "unix:other.sock"}
    if name in ("revision", "api_keys_file"):
        env[variable(name)] = "other"
    assert getattr(load_settings([*first, *file], env), name) == good
    env_wins = load_settings(as_file(tmp_path, name, default), {variable(name): str(good)})
    assert getattr(env_wins, name) == good


@pytest.mark.parametrize(
    "given,end",
    [
        *[(task, f"{task} is not served: {reason}") for task, reason in REASONS.items()],
        ("generic:mask-generation", f"served: {REASONS['mask-generation']}"),
        ("generic:ner", "ner has an entry: leave generic: out"),
        ("generic:fill-mask", "fill-mask has an entry: leave generic: out"),
    ],
)
def test_a_task_that_is_not_served_says_why(given: str, end: str) -> None:
    """A known task without an entry has its reason in the line, one with an entry its name."""
    [line] = lines_of([f"--task={given}"])
    assert line.startswith("--task must be one of ")
    assert line.endswith(end)


@pytest.mark.parametrize(
    "given,task",
    [
        ("ner", "token-classification"),
        ("sentiment-analysis", "text-classification"),
        ("generic:newer-task", "generic:newer-task"),
    ],
)
def test_a_task_has_one_name(given: str, task: str) -> None:
    """Behind the settings an alias is its task."""
    assert load_settings([f"--task={given}"], {}).task == task


@EACH
def test_bad_values(name: str, tmp_path: Path) -> None:
    """A bad value is one line: the name as given, what it must be, and never the value."""
    for bad in TABLE[name].bad:
        says = f"must be {TABLE[name].says}"
        assert lines_of([], {variable(name): bad}) == [f"{variable(name)} {says}"]
        if not isinstance(TABLE[name].default, bool):
            assert lines_of([f"{flag(name)}={bad}"]) == [f"{flag(name)} {says}"]
        if bad.isprintable():
            expected = f"{name} in seawall.toml {says}"
            assert lines_of(as_file(tmp_path, name, bad)) == [expected]
        with pytest.raises(ValidationError) as caught:
            built(**{name: bad})
        assert repr(bad) not in str(caught.value)


@EACH
@pytest.mark.parametrize("value", ["5.5", "5.0", "[1]", "{ a = 1 }", "nan", "2020-01-01"])
def test_wrong_types_in_the_file(name: str, value: str, tmp_path: Path) -> None:
    """A value of another type in the file is refused, never rounded or taken as text."""
    if name == "slo_latency_ms" and value == "5.0":
        value = "5.1"  # 5.0 is one of its bounds
    path = tmp_path / "s.toml"
    path.write_text(f"{name} = {value}\n")
    assert lines_of(["--config", str(path)]) == [f"{name} in s.toml must be {TABLE[name].says}"]


@pytest.mark.parametrize("name", [n for n, row in TABLE.items() if "whole" in row.says])
def test_bounds_are_allowed(name: str) -> None:
    """Both ends of a range are inside it, and a boolean is no number."""
    low, high = map(int, re.findall(r"\d+", TABLE[name].says))
    others = {"max_deadline_ms": HOUR_MS, "batch_ms": 1}  # so that it fits together
    for value in (low, high):
        fits = {key: one for key, one in others.items() if key != name}
        if name in ("max_deadline_ms", "batch_ms", "watchdog_ms"):
            fits = {"max_deadline_ms": HOUR_MS} if name == "batch_ms" else {}
        assert getattr(built(**fits, **{name: value}), name) == value
    with pytest.raises(ValidationError):
        built(**{name: True})


@pytest.mark.parametrize("name", ["rehearsal", "trust_remote_code"])
@pytest.mark.parametrize(
    "text, value",
    [("true", True), ("1", True), ("YES", True), ("on", True), ("false", False), ("0", False)],
)
def test_switches_in_the_environment(name: str, text: str, value: bool) -> None:
    """A switch takes the words that people write in manifests."""
    assert getattr(load_settings([], {variable(name): text}), name) is value


def test_a_switch_takes_no_value() -> None:
    """``--rehearsal=true`` is refused with the two forms that work."""
    assert lines_of([f"--rehearsal={SECRET}"]) == [
        "--rehearsal is a switch without a value: write --rehearsal or --no-rehearsal"
    ]


def test_the_objective_is_a_bound_of_the_histogram() -> None:
    """What ``slo_latency_ms`` allows is what the latency histogram can measure."""
    assert pytest.approx([bound * 1000 for bound in LATENCY_BUCKETS_S]) == list(LATENCY_BOUNDS_MS)


def test_help_lists_every_setting() -> None:
    """``--help`` has every setting with flag, variable, values and default, from the one table."""
    text = help_text("serve")
    words = " ".join(text.split())
    for name, row in TABLE.items():
        shown = {True: "true", False: "false"}.get(row.default, row.default or "none")
        shown = "0" if name == "drain_delay_ms" else shown
        assert f"{flag(name)} " in text
        assert f"({variable(name)})" in text
        assert f"Must be {row.says}; default: {shown} " in words + " "
    assert max(map(len, text.splitlines())) <= 100


def test_no_setting_can_be_an_injected_variable() -> None:
    """No setting's variable looks like one that a container platform injects."""
    for name in (*TABLE, "config"):
        assert not INJECTED.fullmatch(variable(name))
    assert ENV_PREFIX == "SEAWALL_"
