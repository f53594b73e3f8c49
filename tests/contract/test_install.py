"""The installer, with a real pip, stub wheels and no network."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distributions
from pathlib import Path
from zipfile import ZipFile

import install
import pytest

from tests.contract.stubs import make_project, make_wheel, repack
from tests.tools import require_tool

CUDA_NEEDS = ('nvidia-cublas==13.1.1.3; platform_system == "Linux"', "triton==3.7.1")

FAKE_UV = """
import os, subprocess, sys
assert sys.argv[1:3] == ["pip", "install"], sys.argv
python = sys.argv[sys.argv.index("--python") + 1]
assert sys.argv[sys.argv.index("--torch-backend") + 1] == "cpu"
known = ["--no-deps", "--no-index", "--find-links", os.environ["KNOWN_TO_UV"]]
sys.exit(subprocess.call([python, "-m", "pip", "install", *known, "torch"]))
"""


class Lab:
    """A stub project, a folder of wheels, and an environment in which pip sees only that folder."""

    def __init__(self, folder: Path) -> None:
        self.project = make_project(folder / "project")
        self.wheels = folder / "wheels"
        self.tools = folder / "tools"
        self.wheels.mkdir()
        self.tools.mkdir()
        for name in ("left", "right"):
            make_wheel(self.wheels, name, "1.0")
        repack(self.wheels, "pip")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "TORCH", "UV_"))}
        self.env = {
            **kept,
            "PATH": f"{self.tools}:{kept['PATH']}",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_NO_CACHE_DIR": "1",
        }

    def cpu_torch(self, folder: Path | None = None) -> None:
        make_wheel(folder or self.wheels, "torch", "2.13.0+cpu", requires=["left"])

    def cuda_torch(self, *, padding_bytes: int = 0) -> None:
        make_wheel(self.wheels, "torch", "2.13.0", requires=CUDA_NEEDS, padding_bytes=padding_bytes)
        for need in CUDA_NEEDS:
            make_wheel(self.wheels, *need.partition(";")[0].split("=="))

    def install(
        self, purpose: str = "serve", *, python: Path | str = sys.executable, **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(python), "deploy/install.py", purpose],
            cwd=self.project, env=self.env | env, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip

    def installed(self) -> dict[str, str]:
        """Name and version of every distribution in the venv but pip and its like."""
        site = [str(path) for path in self.project.glob(".venv/lib/python*/site-packages")]
        found = {each.metadata["Name"]: each.version for each in distributions(path=site)}
        return {k: v for k, v in found.items() if k not in {"pip", "setuptools", "wheel"}}

    def made_for(self, choice: str) -> None:
        """Have the installer find a venv that was made for this choice of torch."""
        stamp = self.project / ".venv" / install.STAMP.name
        stamp.write_text(json.dumps({"place": install.place(choice)}))

    def program(self, name: str, text: str) -> None:
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv as the installer makes it, before it has chosen a torch; making one takes long."""
    lab = Lab(tmp_path_factory.mktemp("made"))
    assert lab.install().returncode == 1, "there is no torch in that folder"
    return lab.project / ".venv"


@pytest.fixture
def bare(tmp_path: Path) -> Lab:
    """A place to install in, with nothing done yet."""
    return Lab(tmp_path)


@pytest.fixture
def lab(bare: Lab, made: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A place to install in, with a venv that is just made."""
    shutil.copytree(made, bare.project / ".venv", symlinks=True)
    monkeypatch.setattr(install, "ROOT", bare.project)
    bare.made_for("auto")
    return bare


no_driver = pytest.mark.skipif(install.has_driver(), reason="an NVIDIA driver is loaded here")


@no_driver
def test_cpu_build_is_taken_once(lab: Lab) -> None:
    """A CPU build is preferred to a CUDA build; a second run does nothing, a change is followed."""
    lab.cpu_torch()
    lab.cuda_torch()
    first = lab.install()
    assert first.returncode == 0, first.stderr
    assert "2.13.0+cpu" in first.stdout
    assert lab.installed() == {"seawall": "0.0.1", "torch": "2.13.0+cpu", "left": "1.0"}
    nowhere = {"PIP_FIND_LINKS": "", "PATH": "/nowhere"}
    second = lab.install(**nowhere)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    more = lab.install("test")
    assert more.returncode == 0, more.stderr
    assert "making" not in more.stdout
    assert lab.installed()["right"] == "1.0"
    assert lab.install("serve", **nowhere).stdout == ""
    constraints = lab.project / "deploy" / "constraints.txt"
    constraints.write_text(constraints.read_text().replace("left==1.0", "left==1.1"))
    make_wheel(lab.wheels, "left", "1.1")
    changed = lab.install()
    assert changed.returncode == 0, changed.stderr
    assert lab.installed()["left"] == "1.1"


@no_driver
def test_only_cuda_build(lab: Lab) -> None:
    """Where only a CUDA build is to be had it stops with the choices, and nothing is installed."""
    lab.cuda_torch()
    stopped = lab.install()
    assert stopped.returncode == 1
    for word in ("TORCH=cuda", "PIP_FIND_LINKS", "TORCH=system", "Nothing was installed"):
        assert word in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert lab.installed() == {}
    assert not (lab.project / ".venv" / install.STAMP.name).exists()


@no_driver
def test_cuda_build_is_not_downloaded(lab: Lab) -> None:
    """From a server that can give no part of a wheel, the CUDA packages are not downloaded."""
    lab.cuda_torch(padding_bytes=64_000_000)
    with wheel_server(lab.wheels) as (address, sent):
        stopped = lab.install(PIP_FIND_LINKS=address)
    assert stopped.returncode == 1
    assert "TORCH=cuda" in stopped.stderr
    asked = {path for path in sent if path.endswith(".whl")}
    assert not [path for path in asked if "nvidia" in path or "triton" in path]
    assert sum(sent[path] for path in asked if "torch" in path) < 64_000_000


@no_driver
def test_cpu_build_from_such_a_server(lab: Lab) -> None:
    """From such a server a CPU build is taken."""
    lab.cpu_torch()
    lab.cuda_torch()
    with wheel_server(lab.wheels) as (address, _):
        done = lab.install(PIP_FIND_LINKS=address)
    assert done.returncode == 0, done.stderr
    assert lab.installed()["torch"] == "2.13.0+cpu"


@no_driver
def test_uv_knows_a_cpu_build(lab: Lab, tmp_path: Path) -> None:
    """Where pip has only a CUDA build and uv can get a CPU build, that one is taken."""
    lab.cuda_torch()
    make_wheel(lab.wheels, "uv", "1.0", modules={"uv/__main__.py": FAKE_UV})
    known = tmp_path / "known"
    known.mkdir()
    lab.cpu_torch(known)
    done = lab.install(KNOWN_TO_UV=str(known))
    assert done.returncode == 0, done.stderr + done.stdout
    assert {"torch": "2.13.0+cpu", "left": "1.0"}.items() <= lab.installed().items()
    assert "triton" not in lab.installed()
    more = lab.install("test", KNOWN_TO_UV="/nowhere")
    assert more.returncode == 0, more.stderr


def test_cuda_when_asked_for(lab: Lab) -> None:
    """TORCH=cuda installs the CUDA build without a driver; another choice means another venv."""
    lab.cuda_torch()
    lab.made_for("cuda")
    done = lab.install(TORCH="cuda")
    assert done.returncode == 0, done.stderr
    assert {"torch": "2.13.0", "triton": "3.7.1"}.items() <= lab.installed().items()
    if install.has_driver():
        return
    assert lab.install().returncode == 1
    assert lab.installed() == {}


def test_cuda_with_a_driver(lab: Lab) -> None:
    """Where an NVIDIA driver answers, the CUDA build is taken without being asked for."""
    lab.cuda_torch()
    lab.program("nvidia-smi", "echo 'GPU 0: a card'")
    done = lab.install()
    assert done.returncode == 0, done.stderr
    assert lab.installed()["torch"] == "2.13.0"


@no_driver
def test_driver_must_answer(bare: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool of NVIDIA's that finds no driver is no driver, nor is its absence one."""
    monkeypatch.setenv("PATH", str(bare.tools))
    assert not install.has_driver()
    bare.program("nvidia-smi", "exit 9")
    assert not install.has_driver()
    bare.program("nvidia-smi", "echo 'GPU 0: a card'")
    assert install.has_driver()


def test_system_torch(bare: Lab, tmp_path: Path) -> None:
    """TORCH=system uses the torch that python3 has, whatever its version, and installs none."""
    bare.cuda_torch()
    make_wheel(tmp_path, "torch", "2.9.1+cu128", requires=["left"])
    site = bare.project / "system-site"
    with ZipFile(tmp_path / "torch-2.9.1+cu128-py3-none-any.whl") as wheel:
        wheel.extractall(site)
    done = bare.install(TORCH="system", PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr
    assert "2.9.1+cu128" in done.stdout
    assert bare.installed() == {"seawall": "0.0.1", "left": "1.0"}


def test_system_without_torch(lab: Lab) -> None:
    """TORCH=system with a Python that cannot import torch says so and installs nothing."""
    lab.cuda_torch()
    lab.made_for("system")
    broken = lab.project / "broken"
    broken.mkdir()
    (broken / "torch.py").write_text("raise ImportError('no such library')")
    stopped = lab.install(TORCH="system", PYTHONPATH=str(broken))
    assert stopped.returncode == 1
    assert "TORCH=system: torch does not import" in stopped.stderr
    assert lab.installed() == {}


@pytest.mark.parametrize(
    "purpose,torch,words",
    [("fly", "", "usage"), ("serve", "gpu", "TORCH must be one of auto, cuda, system")],
)
def test_wrong_use(bare: Lab, purpose: str, torch: str, words: str) -> None:
    """A wrong purpose or a wrong TORCH is refused in one line, before anything is made."""
    refused = bare.install(purpose, TORCH=torch)
    assert refused.returncode == 1
    assert words in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not (bare.project / ".venv").exists()


@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGINT])
def test_make_serve_hands_over(lab: Lab, ends: signal.Signals) -> None:
    """``make serve`` passes the flags on and gives way to the server, which signals then reach."""
    lab.cpu_torch()
    flags = "--bind :0 --drain 5"
    command = [require_tool("make"), "serve", f"PYTHON={sys.executable}", f"ARGS={flags}"]
    with subprocess.Popen(
        command, cwd=lab.project, env=lab.env, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as make:  # fmt: skip
        try:
            lines = iter(make.stdout or ())
            words = next(line for line in lines if line.startswith("serving")).split()
            assert words[2:] == ["serve", *flags.split()]
            if ends == signal.SIGTERM:  # as a supervisor does
                os.kill(int(words[1]), ends)
            else:  # as a terminal does
                os.killpg(make.pid, ends)
            assert next(lines) == "stopped\n"
            assert (make.wait(timeout=60) == 0) == (ends == signal.SIGTERM)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(make.pid, signal.SIGKILL)


class wheel_server:  # noqa: N801 - used as a statement
    """Serves a folder over HTTP as simple servers do: whole files only, no parts."""

    def __init__(self, folder: Path) -> None:
        self.sent: dict[str, int] = {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Counting, self.sent, folder))
        self.server.daemon_threads = True

    def __enter__(self) -> tuple[str, dict[str, int]]:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}/", self.sent

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


class Counting(SimpleHTTPRequestHandler):
    """Counts the bytes of each file that a client took."""

    def __init__(self, sent: dict[str, int], folder: Path, *args: object) -> None:
        self.sent = sent
        super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

    def copyfile(self, source: object, outputfile: object) -> None:
        self.sent.setdefault(self.path, 0)
        for part in self.parts(source):
            try:
                outputfile.write(part)  # type: ignore[attr-defined]
            except OSError:
                return
            self.sent[self.path] += len(part)

    def parts(self, source: object) -> Iterator[bytes]:
        while part := source.read(65536):  # type: ignore[attr-defined]
            yield part

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""
