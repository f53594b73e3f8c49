"""Tiny wheels and a tiny project, so that the installer meets a real pip without a network."""

from __future__ import annotations

import base64
import hashlib
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

from tests.tools import ROOT

BACKEND = '''
"""Builds the stub project's wheel: a package that is imported from where it lies."""
import os, pathlib, zipfile

METADATA = """Metadata-Version: 2.1
Name: seawall
Version: 0.0.1
Requires-Dist: torch>=2.6
Requires-Dist: left>=1
"""

WHEEL = """Wheel-Version: 1.0
Root-Is-Purelib: true
Tag: py3-none-any
"""

def prepare_metadata_for_build_editable(folder, settings=None):
    info = pathlib.Path(folder, "seawall-0.0.1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    return info.name

def build_editable(folder, settings=None, metadata=None):
    name = "seawall-0.0.1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("seawall.pth", os.getcwd())
        info = "seawall-0.0.1.dist-info/"
        wheel.writestr(info + "METADATA", METADATA)
        wheel.writestr(info + "WHEEL", WHEEL)
        wheel.writestr(info + "entry_points.txt", "[console_scripts]\\nseawall = stub:main\\n")
        wheel.writestr(info + "RECORD", "")
    return name
'''

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "seawall"
version = "0.0.1"
dependencies = ["torch>=2.6", "left>=1"]

[dependency-groups]
test = ["right>=1"]
"""

SERVER = '''
"""Stands in for the server: says how it was started, and ends well at a signal."""
import os, signal, sys

def main():
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    print("serving", os.getpid(), *sys.argv[1:], flush=True)
    signal.sigwait(ends)
    print("stopped", flush=True)
'''


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    modules: Mapping[str, str] | None = None,
    padding_bytes: int = 0,
) -> Path:
    """Write a wheel for any Python and platform, and return where it lies.

    Args:
        folder: where to.
        name: of the distribution, and of its module unless ``modules`` says otherwise.
        version: with its local version, for example ``2.13.0+cpu``.
        requires: its ``Requires-Dist`` lines.
        modules: path and source of every module.
        padding_bytes: size of a file that makes the wheel large.
    """
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    content = dict(modules or {f"{module}/__init__.py": f"__version__ = {version!r}\n"})
    content |= {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if padding_bytes:
        content[f"{module}/padding"] = "0" * padding_bytes
    return _zip(folder / f"{module}-{version}-py3-none-any.whl", info, content)


def repack(folder: Path, name: str) -> Path:
    """Make a wheel again of a pure distribution that is installed where the tests run."""
    installed = distribution(name)
    info = f"{name}-{installed.version}.dist-info"
    content = {
        str(file): Path(str(file.locate())).read_bytes()
        for file in installed.files or ()
        if file.parts[0] != ".." and "__pycache__" not in file.parts and file.name != "RECORD"
    }
    return _zip(folder / f"{name}-{installed.version}-py3-none-any.whl", info, content)


def _zip(path: Path, info: str, content: Mapping[str, str | bytes]) -> Path:
    record = []
    with ZipFile(path, "w") as wheel:
        for name, data in content.items():
            raw = data.encode() if isinstance(data, str) else data
            digest = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
            record.append(f"{name},sha256={digest},{len(raw)}\n")
            wheel.writestr(name, raw)
        wheel.writestr(f"{info}/RECORD", "".join(record) + f"{info}/RECORD,,\n")
    return path


def make_project(folder: Path) -> Path:
    """Lay out a project with our installer and Makefile that needs torch and one small package."""
    (folder / "deploy").mkdir(parents=True)
    for name in ("deploy/install.py", "deploy/torch_build.py", "Makefile"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "deploy" / "constraints.txt").write_text("torch==2.13.0\nleft==1.0\nright==1.0\n")
    for name, text in (("pyproject.toml", PYPROJECT), ("backend.py", BACKEND), ("stub.py", SERVER)):
        (folder / name).write_text(textwrap.dedent(text).lstrip())
    return folder
