"""Settings from several places: unknown names, injected variables and the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.settings import Settings, SettingsError, load, load_settings
from service.settings.sources import INJECTED
from service.settings.tasks import TaskName

SECRET = "hunter2-hunter2"


def faults_of(argv: list[str], environ: dict[str, str]) -> list[str]:
    """The errors that these flags and variables give, if any."""
    try:
        load_settings(argv, environ)
    except SettingsError as error:
        return error.lines
    return []


def lines_of(argv: list[str], environ: dict[str, str] | None = None) -> list[str]:
    """The errors that these flags and variables give; none of them may repeat a value."""
    with pytest.raises(SettingsError) as caught:
        load_settings(argv, environ or {})
    assert SECRET not in str(caught.value)
    return caught.value.lines


# ---------------------------------------------------------------- unknown names


@pytest.mark.parametrize(
    "argv, line",
    [
        (["--queue-limt", SECRET], "--queue-limt is not a setting: did you mean --queue-limit?"),
        (["--queue_limit=1"], "--queue_limit is not a setting: did you mean --queue-limit?"),
        (["--queue", "1"], "--queue is not a setting: did you mean --queue-limit?"),
        (["--confg", "x"], "--confg is not a setting: did you mean --config?"),
        (["--xyzzy"], "--xyzzy is not a setting: 'seawall serve --help' lists all of them"),
        (["-q"], "-q is not a setting: 'seawall serve --help' lists all of them"),
        ([SECRET], "a word without a flag: write every setting as --name VALUE"),
        (["--dtype"], "--dtype must be followed by one of auto, float32, float16, bfloat16"),
        (["--config"], "--config must be followed by the path of a TOML file"),
    ],
)
def test_unknown_flags(argv: list[str], line: str) -> None:
    """A flag that nobody knows, a prefix of one too, is an error with the nearest name."""
    assert lines_of(argv) == [line]


@pytest.mark.parametrize(
    "name, hint",
    [
        ("SEAWALL_QUEUE_LIMT", "did you mean SEAWALL_QUEUE_LIMIT?"),
        ("SEAWALL_queue_limit", "did you mean SEAWALL_QUEUE_LIMIT?"),
        ("SEAWALL_CONFG", "did you mean SEAWALL_CONFIG?"),
        ("SEAWALL_XYZZY", "'seawall serve --help' lists all of them"),
        ("SEAWALL_", "'seawall serve --help' lists all of them"),
    ],
)
@pytest.mark.parametrize("value", ["", SECRET])
def test_unknown_variables(name: str, hint: str, value: str) -> None:
    """A variable with our prefix that nobody knows is an error, even an empty one."""
    assert lines_of([], {name: value}) == [f"{name} is not a setting: {hint}"]


@pytest.mark.parametrize(
    "name",
    [
        "SEAWALL_PORT", "SEAWALL_SERVICE_HOST", "SEAWALL_SERVICE_PORT", "SEAWALL_SERVICE_PORT_HTTP",
        "SEAWALL_SERVICE_PORT_HTTP_METRICS_2", "SEAWALL_PORT_8000_TCP", "SEAWALL_PORT_53_UDP_ADDR",
        "SEAWALL_PORT_8000_TCP_PORT", "SEAWALL_PORT_8000_TCP_PROTO", "SEAWALL_PORT_9_SCTP_ADDR",
        "SEAWALL_FOO_SERVICE_HOST", "SEAWALL_FOO_BAR_SERVICE_PORT", "SEAWALL_FOO_PORT_80_TCP_ADDR",
        "SEAWALL_FOO_PORT",
    ],
)  # fmt: skip
def test_injected_variables(name: str) -> None:
    """What a container platform injects for a Service called like this program is no setting."""
    loaded = load([], {name: "tcp://10.0.0.1:8000"})
    assert loaded.settings == Settings()
    assert not loaded.origins


@pytest.mark.parametrize("name", ["SEAWALL_PORTS", "SEAWALL_SERVICE", "SEAWALL_PORT_HTTP"])
def test_not_quite_injected(name: str) -> None:
    """What only looks like an injected variable is a typo all the same."""
    assert not INJECTED.fullmatch(name)
    assert len(lines_of([], {name: "x"})) == 1


def test_only_the_arguments_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither loading nor constructing looks at the process's own environment."""
    for name in ("SEAWALL_QUEUE_LIMIT", "QUEUE_LIMIT"):
        monkeypatch.setenv(name, "7")
    assert load_settings([], {}).queue_limit == Settings().queue_limit == 256


def test_other_variables_are_nobodys_business() -> None:
    """A variable without our prefix is never read."""
    assert load_settings([], {"QUEUE_LIMIT": "x", "PORT": "1", "XSEAWALL_A": "1"}) == Settings()


def test_all_faults_at_once(tmp_path: Path) -> None:
    """One start names every fault, whatever its source."""
    file = tmp_path / "s.toml"
    file.write_text('workers = 0\ndtpye = "x"\n')
    argv = ["--config", str(file), "--max-items", "0"]
    assert lines_of(argv, {"SEAWALL_TASK": "x", "SEAWALL_BREAKR_FAILURES": "1"}) == [
        "--max-items must be a whole number from 1 to 4096",
        "SEAWALL_BREAKR_FAILURES is not a setting: did you mean SEAWALL_BREAKER_FAILURES?",
        f"SEAWALL_TASK must be {TaskName().says()}",
        "workers in s.toml must be a whole number from 1 to 64 or auto",
        "dtpye in s.toml is not a setting: did you mean dtype?",
    ]


@given(st.text(), st.text())
def test_no_value_is_repeated(name: str, value: str) -> None:
    """Whatever a variable holds, errors are single printable lines without its value."""
    marked = f"{SECRET}{value}"
    for argv, environ in (
        ([], {f"SEAWALL_{name}": marked}),
        ([], {"SEAWALL_WORKERS": marked, "SEAWALL_DTYPE": marked}),
        ([f"--dtype={marked}"], {}),
        (["--workers", marked], {}),
    ):
        lines = faults_of(argv, environ)
        assert lines
        assert all(line.isprintable() and SECRET not in line for line in lines)


# ---------------------------------------------------------------- the file


def test_file_named_by_a_variable(tmp_path: Path) -> None:
    """``SEAWALL_CONFIG`` names the file, ``--config`` wins over it, an empty one is none."""
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text("queue_limit = 1\n")
    two.write_text("queue_limit = 2\n")
    by_variable = {"SEAWALL_CONFIG": str(one)}
    assert load_settings([], by_variable).queue_limit == 1
    assert load_settings([f"--config={two}"], by_variable).queue_limit == 2
    assert load_settings([], {"SEAWALL_CONFIG": ""}).queue_limit == 256


@pytest.mark.parametrize(
    "content, place",
    [
        (f"queue_limit = {SECRET}\n".encode(), ", not so at line 1, column 15"),
        (b"a = 1\na = 2\n", ", not so at line 2, column 6"),
        (b"\xff\xfe", ""),
        (b"a = " + b"[" * 100_000, ""),
    ],
)
def test_no_toml(content: bytes, place: str, tmp_path: Path) -> None:
    """A file that is no TOML is one line that says where, never what it holds."""
    file = tmp_path / "s.toml"
    file.write_bytes(content)
    says = f"must name a TOML file of lines 'setting = value'{place}"
    assert lines_of(["--config", str(file)]) == [f"--config {says}"]
    assert lines_of([], {"SEAWALL_CONFIG": str(file)}) == [f"SEAWALL_CONFIG {says}"]


@pytest.mark.parametrize("path", ["no-such-file.toml", ".", "a\x00b"])
def test_no_file(path: str) -> None:
    """A file that cannot be read is one line that names whoever asked for it."""
    assert lines_of([], {"SEAWALL_CONFIG": path}) == [
        "SEAWALL_CONFIG must name a TOML file of lines 'setting = value'"
    ]


@pytest.mark.parametrize("content", [None, b"", b"\n  \n", f"# {SECRET}\n".encode()])
def test_key_file_without_a_key(content: bytes | None, tmp_path: Path) -> None:
    """A key file that is missing or holds no key stops the start: it must not mean "no keys"."""
    file = tmp_path / SECRET
    if content is not None:
        file.write_bytes(content)
    says = "must be a readable file with one API key a line, or its sha256:HEX"
    assert lines_of(["--api-keys-file", str(file)]) == [f"--api-keys-file {says}"]
    assert lines_of([], {"SEAWALL_API_KEYS_FILE": str(tmp_path)}) == [
        f"SEAWALL_API_KEYS_FILE {says}"
    ]


def test_key_file_with_a_key(tmp_path: Path) -> None:
    """One line that is neither empty nor a comment is a key."""
    file = tmp_path / "keys"
    file.write_text(f"# for the tests\n\n{SECRET}\n")
    assert load_settings(["--api-keys-file", str(file)], {}).api_keys_file == str(file)
