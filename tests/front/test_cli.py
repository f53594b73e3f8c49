"""The command line: which command runs, what it prints, and with which code it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service import __version__, cli, server
from service.settings import Settings

SECRET = "hunter2-hunter2"
ENOUGH_S = 120
"""For one process that loads the packaged model on a busy machine."""


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("SEAWALL_"):
            monkeypatch.delenv(name)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that would have been served, instead of a server."""
    seen: list[Settings] = []

    def serve(settings: Settings) -> int:
        seen.append(settings)
        return 4

    monkeypatch.setattr(server, "serve", serve)
    return seen


def run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Python as a real process, with no other setting in its environment than these."""
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **environ},
        cwd=Path(cli.__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=ENOUGH_S,
        check=False,
    )


def seawall(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """``python -m service`` as a real process."""
    return run("-m", "service", *argv, **environ)


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize(
    "argv", [["--queue-limit", "7"], ["serve", "--queue-limit", "7"], ["serve", "--queue-limit=7"]]
)
def test_serve_is_the_default(argv: list[str], served: list[Settings]) -> None:
    """Flags alone mean serve, and its exit code is the command's."""
    assert cli.main(argv) == 4
    assert [settings.queue_limit for settings in served] == [7]


def test_serve_without_anything(served: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    """No argument at all serves the defaults and the environment, from the process's own argv."""
    monkeypatch.setattr(sys, "argv", ["seawall"])
    monkeypatch.setenv("SEAWALL_QUEUE_LIMIT", "9")
    assert cli.main() == 4
    assert served == [Settings(queue_limit=9)]


@pytest.mark.parametrize("command", [[], ["serve"], ["check"]])
def test_wrong_settings(
    command: list[str], served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong settings end with code 2 and one line a fault on stderr; nothing is served."""
    assert cli.main([*command, "--queue-limit", SECRET, "--dtype", "x"]) == 2
    output = capsys.readouterr()
    assert output.err.splitlines() == [
        "seawall: --dtype must be one of auto, float32, float16, bfloat16",
        "seawall: --queue-limit must be a whole number from 1 to 100000",
    ]
    assert output.out == ""
    assert not served


@pytest.mark.parametrize(
    "word, hint",
    [("sevre", "did you mean 'seawall serve'?"), ("xyzzy", "'seawall --help' lists them")],
)
def test_unknown_command(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that nobody knows ends with code 2 and the nearest name."""
    assert cli.main([word]) == 2
    assert capsys.readouterr().err == f"seawall: no such command: {hint}\n"


def test_version_and_help(capsys: pytest.CaptureFixture[str], served: list[Settings]) -> None:
    """Version and help are printed, and nothing is served."""
    for argv in (["--version"], ["-V"]):
        assert cli.main(argv) == 0
        assert capsys.readouterr().out == f"seawall {__version__}\n"
    for argv in (["--help"], ["-h"], ["help"]):
        assert cli.main(argv) == 0
        words = capsys.readouterr().out.split()
        assert set(cli.COMMANDS) <= set(words)
    for argv in (["serve", "--help"], ["serve", "--bind", "x", "-h"], ["check", "--help"]):
        assert cli.main(argv) == 0
        assert "(SEAWALL_QUEUE_LIMIT)" in capsys.readouterr().out
    assert cli.main(["status", "--help"]) == 0
    assert "unix:PATH" in capsys.readouterr().out
    assert not served


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends a command without a traceback, with the shell's code for it."""

    def stopped(settings: Settings) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(server, "serve", stopped)
    assert cli.main([]) == 130


@pytest.mark.parametrize("command", [["--version"], ["--help"], ["serve", "--help"], ["check"]])
def test_no_torch(command: list[str]) -> None:
    """Looking at version, help or settings loads neither torch nor a server."""
    code = (
        "import sys; from service import cli; code = cli.main(sys.argv[1:]);"
        "loaded = {'torch', 'transformers', 'numpy', 'uvicorn'} & set(sys.modules);"
        "assert not loaded, loaded; sys.exit(code)"
    )
    result = run("-c", code, *command)
    assert (result.returncode, result.stderr) == (0, "")


def test_as_a_process() -> None:
    """``python -m service`` is the command, with the same words and codes."""
    version = seawall("--version")
    assert (version.returncode, version.stdout, version.stderr) == (
        0, f"seawall {__version__}\n", "",
    )  # fmt: skip
    wrong = seawall("--dtype", SECRET, SEAWALL_PORT="tcp://10.0.0.1:8000", SEAWALL_WORKRES="1")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.splitlines() == [
        "seawall: --dtype must be one of auto, float32, float16, bfloat16",
        "seawall: SEAWALL_WORKRES is not a setting: did you mean SEAWALL_WORKERS?",
    ]
