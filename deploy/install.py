"""Set up ``.venv/`` for ``make serve`` and ``make test``; a second run does nothing.

Usage: ``python3 deploy/install.py serve|test``, with ``TORCH`` in the environment.

Laws
- Standard library only: it runs before anything is installed.
- On a machine without an NVIDIA driver no CUDA package is ever downloaded. pip is asked first
  which torch it would take, by a dry run that reads metadata alone; if it cannot tell without
  downloading a wheel for a GPU, it is stopped.
- Nothing but pip is installed before torch is chosen; without a choice it ends with exit code 1
  and says what can be done.
- The stamp in ``.venv/`` is taken away before packages are installed and written after it: an
  interrupted installation starts afresh, a finished one is not repeated.

What ``TORCH`` means::

    auto (default)  an NVIDIA driver is loaded     → whatever pip takes
                    pip would take a CPU build     → that one
                    uv can get a CPU build         → that one
                    otherwise                      → stop, and name the choices
    cuda            whatever pip takes
    system          the torch of the Python that runs this, whatever its version
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch_build

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "seawall-stamp.json"
LOG = VENV / "install.log"
CONSTRAINTS = ROOT / "deploy" / "constraints.txt"

OLDEST_PYTHON = (3, 11)
OLDEST_PIP = (25, 3)
"""The first pip with both ``--group`` and ``--build-constraint``."""

PURPOSES: dict[str, tuple[str, ...]] = {"serve": (), "test": ("--group", "test")}
"""What pip is asked for besides the project itself."""


class StopError(Exception):
    """The set-up cannot go on; the message is for the person at the terminal."""


def say(line: str) -> None:
    """Print one line of what is being done."""
    print(f"seawall: {line}", flush=True)


def start(*command: str | Path) -> subprocess.Popen[str]:
    """Start a command in the project's folder, errors among its output."""
    env = {k: v for k, v in os.environ.items() if k not in {"PIP_TARGET", "PIP_PREFIX"}}
    # uv asks an index of its own: where that cannot be reached it must not take minutes to say so.
    env = {"UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "1", **env}
    env |= {"PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=null, stdout=pipe, stderr=subprocess.STDOUT, text=True
    )


def run(*command: str | Path) -> tuple[bool, str]:
    """Run a command: whether it succeeded, and what it printed."""
    with start(*command) as process:
        output = process.communicate()[0]
    return process.returncode == 0, output


def logged(*command: str | Path) -> bool:
    """Run a command with its output in the log; whether it succeeded."""
    good, output = run(*command)
    with LOG.open("a") as log:
        log.write(f"\n$ {' '.join(map(str, command))}\n{output}")
    return good


def pip_install(*arguments: str | Path) -> bool:
    """Run ``pip install`` in the venv; whether it succeeded."""
    return logged(PYTHON, "-P", "-m", "pip", "install", *arguments)


def failure(what: str) -> StopError:
    """An error that ends with the end of the log."""
    tail = "\n".join(LOG.read_text().splitlines()[-15:])
    return StopError(f"{what}; the whole log is {LOG}, it ends:\n{tail}")


def has_driver() -> bool:
    """Whether an NVIDIA driver is loaded."""
    if Path("/proc/driver/nvidia/version").exists():
        return True
    tool = shutil.which("nvidia-smi")
    return tool is not None and run(tool, "-L")[0]


# ---------------------------------------------------------------- the venv


def make_venv(choice: str) -> None:
    """Make a fresh venv with a current pip.

    Raises:
        StopError: the venv, or a pip that is new enough, is not to be had.
    """
    say(f"making {VENV} with Python {sys.version.split()[0]}")
    flavour = ["--system-site-packages"] if choice == "system" else []
    made, output = run(sys.executable, "-m", "venv", "--clear", *flavour, VENV)
    if not made:
        raise StopError(f"python3 -m venv failed (Debian: package python3-venv):\n{output}")
    version = run(PYTHON, "-P", "-m", "pip", "--version")[1].split()[1]
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_PIP:
        wanted = "pip>=" + ".".join(map(str, OLDEST_PIP))
        say(f"pip {version} is too old, getting {wanted}")
        if not pip_install("--upgrade", "--constraint", CONSTRAINTS, wanted):
            raise failure("pip could not be upgraded")


# ---------------------------------------------------------------- torch


def ask_pip() -> dict[str, object] | None:
    """What pip would do for torch: its installation report, from metadata alone.

    Returns:
        ``None`` if pip finds no torch, or cannot tell without downloading a wheel for a GPU.
    """
    # Where an index serves no metadata files, fast-deps reads the end of a wheel, not all of it.
    ask: list[str | Path] = [
        PYTHON,
        "-P",
        "-u",
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--no-deps",
        "torch",
    ]
    ask += ["--use-feature", "fast-deps", "--progress-bar", "off", "--constraint", CONSTRAINTS]
    with tempfile.TemporaryDirectory() as folder, LOG.open("a") as log:
        report = Path(folder, "report.json")
        with start(*ask, "--report", report) as asked:
            for line in asked.stdout or ():
                log.write(line)
                if torch_build.unwanted_download(line):
                    asked.kill()
        answer: dict[str, object] | None
        answer = json.loads(report.read_text()) if asked.returncode == 0 else None
        return answer


def ask_uv() -> bool:
    """Have uv, which knows where CPU builds are, install one; whether it could."""
    STAMP.unlink(missing_ok=True)
    if not pip_install("--constraint", CONSTRAINTS, "uv"):
        return False
    uv = (PYTHON, "-P", "-m", "uv", "pip", "install", "--python", PYTHON)
    return logged(*uv, "--torch-backend", "cpu", "--constraint", CONSTRAINTS, "torch")


def choose_torch(choice: str) -> tuple[str, Path]:
    """Decide which torch is taken, before anything else is installed.

    Returns:
        The requirement for pip, and the constraints to go by.

    Raises:
        StopError: there is no torch that may be taken; the message names the choices.
    """
    if choice == "system":
        return "torch", system_constraints()
    if choice == "cuda" or has_driver():
        say(
            "torch: what pip takes, "
            + ("TORCH=cuda" if choice == "cuda" else "NVIDIA driver found")
        )
        return "torch", CONSTRAINTS
    say("torch: no NVIDIA driver here, asking pip which build it would take (a dry run)")
    report = ask_pip()
    if report is not None:
        found = torch_build.torch_in(report)
        here = torch_build.Machine(os.uname().sysname, os.uname().machine)
        if found is None:
            return "torch", CONSTRAINTS  # the one that is installed was let in before
        if not torch_build.brings_cuda(found, here):
            say(f"torch: pip has a CPU build, {found.version}")
            return f"torch=={found.version}", CONSTRAINTS
    say("torch: pip knows no CPU build, asking uv")
    if ask_uv():
        return "torch", CONSTRAINTS
    raise StopError(f"{torch_build.ADVICE}\n\nWhat was tried stands in {LOG}.")


def system_constraints() -> Path:
    """The tested set with the torch that the venv inherits in the place of its own.

    Raises:
        StopError: the inherited torch does not import.
    """
    good, output = run(PYTHON, "-P", "-c", "import torch; print(torch.__version__)")
    if not good:
        raise StopError(f"TORCH=system: torch does not import in {sys.executable}:\n{output}")
    version = output.split()[-1]
    say(f"torch: {version} of {sys.base_prefix}")
    own = VENV / "constraints.txt"
    own.write_text(re.sub(r"(?m)^torch==.*$", f"torch=={version}", CONSTRAINTS.read_text()))
    return own


# ---------------------------------------------------------------- the whole


def place(choice: str) -> str:
    """What a venv is made for; another place means a fresh one."""
    return " ".join([choice, str(ROOT), sys.base_prefix, sys.version.split()[0]])


def digest() -> str:
    """Changes when anything changes that decides what is installed."""
    import tomllib  # noqa: PLC0415 - the version check comes first

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tables = [project.get(name) for name in ("build-system", "project", "dependency-groups")]
    scripts = [Path(__file__), Path(torch_build.__file__)]
    files = [path.read_text() for path in (CONSTRAINTS, *scripts)]
    return hashlib.sha256(json.dumps([tables, files]).encode()).hexdigest()


def read_stamp() -> dict[str, object]:
    """What the last finished run left; empty if there was none."""
    try:
        stamp = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and PYTHON.exists() else {}


def install(purpose: str, choice: str) -> None:
    """Bring ``.venv`` to what ``purpose`` needs, unless it is there already.

    Raises:
        StopError: it cannot be done; the message says why.
    """
    stamp = read_stamp()
    wanted: dict[str, object] = {"place": place(choice), "digest": digest()}
    present = stamp.get("purposes") if stamp == {**stamp, **wanted} else None
    purposes = {*present} if isinstance(present, list) else set()
    if purpose in purposes:
        return
    if stamp.get("place") != wanted["place"]:
        make_venv(choice)
        STAMP.write_text(json.dumps({"place": wanted["place"]}))  # good for another try
    torch, constraints = choose_torch(choice)
    STAMP.unlink(missing_ok=True)
    say(f"installing what 'make {purpose}' needs; it takes minutes the first time (log: {LOG})")
    fixed = ("--constraint", constraints, "--build-constraint", CONSTRAINTS)
    if not pip_install(*fixed, torch, "--editable", ".", *PURPOSES[purpose]):
        raise failure("the installation failed")
    STAMP.write_text(json.dumps({**wanted, "purposes": sorted({purpose, *purposes})}))
    say("ready")


def main(arguments: list[str]) -> int:
    """Set up for ``serve`` or ``test``; the exit code."""
    choice = torch_build.torch_choice(os.environ.get("TORCH", ""))
    complaint = ""
    if len(arguments) != 1 or arguments[0] not in PURPOSES:
        complaint = "usage: install.py serve|test"
    elif choice is None:
        complaint = f"TORCH must be one of {', '.join(torch_build.CHOICES)}"
    elif sys.version_info < OLDEST_PYTHON:
        complaint = "Python 3.11 or newer is needed: make PYTHON=python3.11 ..."
    else:
        try:
            with Path(__file__).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # two at once would spoil each other's venv
                install(arguments[0], choice)
        except StopError as stop:
            complaint = str(stop)
    if complaint:
        print(f"seawall: {complaint}", file=sys.stderr)
    return 1 if complaint else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
