"""The wheel holds all that serving needs, the model with it, and nothing of the tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from service import __version__
from tests.contract.tree import files
from tests.tools import ROOT

MODEL = "service/models/fill-mask-small"
MODEL_FILES = {
    "MODEL_CARD.md", "config.json", "model.safetensors", "special_tokens_map.json",
    "tokenizer.json", "tokenizer_config.json", "vocab.txt",
}  # fmt: skip

BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE")
"""What a build reads besides the package."""


def build(tree: Path, folder: Path) -> Path:
    """Build the wheel of a tree into a folder."""
    subprocess.run(
        [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=tree, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's file, built from the source tree."""
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel(built: Path) -> ZipFile:
    """The wheel, built from the source tree."""
    return ZipFile(built)


@pytest.fixture
def metadata(wheel: ZipFile) -> Message:
    """What the wheel says of itself."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_model_is_inside(wheel: ZipFile) -> None:
    """The packaged model is in the wheel, byte for byte: weights, tokenizer and card."""
    inside = {name for name in wheel.namelist() if name.startswith(f"{MODEL}/")}
    assert inside == {f"{MODEL}/{name}" for name in MODEL_FILES}
    assert all(wheel.read(name) == (ROOT / name).read_bytes() for name in inside)


def test_site_is_inside(wheel: ZipFile) -> None:
    """The status page is in the wheel, byte for byte: markup, style, scripts and icon."""
    folder = ROOT / "service" / "http" / "site"
    parts = [path for path in folder.iterdir() if path.suffix in {".html", ".css", ".js", ".svg"}]
    assert len(parts) >= 4
    for path in parts:
        assert wheel.read(str(path.relative_to(ROOT))) == path.read_bytes()


def test_package_is_whole(wheel: ZipFile) -> None:
    """Every file of the package is in the wheel, the mark that it is typed among them."""
    package = {str(path) for path in files() if path.parts[0] == "service"}
    assert "service/py.typed" in package
    assert package <= set(wheel.namelist())


def test_nothing_else(wheel: ZipFile) -> None:
    """Besides the package the wheel holds its own description, no tests, docs or scripts."""
    tops = {Path(name).parts[0] for name in wheel.namelist()}
    assert tops == {"service", f"seawall-{__version__}.dist-info"}


def test_the_same_tree_makes_the_same_wheel(built: Path, tmp_path: Path) -> None:
    """Built elsewhere, later and under another mask, the wheel is the same byte for byte."""
    tree = tmp_path / "tree"
    for path in (one for one in files() if one.parts[0] in {"service", *BUILT_FROM}):
        copy = tree / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / path).read_bytes())
        copy.chmod(0o600)
        os.utime(copy, (2_000_000_000, 2_000_000_000))
    again = build(tree, tmp_path / "wheel")
    assert again.name == built.name
    assert again.read_bytes() == built.read_bytes()


def test_description(metadata: Message) -> None:
    """Name, version, licence and Python of the wheel are those of the project."""
    assert metadata["Name"] == "seawall"
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"


def test_command(wheel: ZipFile) -> None:
    """Installing the wheel gives the command ``seawall``."""
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "seawall = service.cli:main" in wheel.read(name).decode()


def test_torch_is_a_range(metadata: Message) -> None:
    """The wheel asks for torch from 2.6 on, with no upper bound, index or build."""
    asked = [line for line in metadata.get_all("Requires-Dist", []) if line.startswith("torch")]
    assert asked == ["torch>=2.6"]


def test_constraints_are_exact() -> None:
    """The tested set names one release of each package, without a build, and covers what we ask."""
    lines = (ROOT / "deploy" / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(line.count("==") == 1 and "+" not in line for line in pins)
    names = [line.partition("==")[0].lower().replace("_", "-") for line in pins]
    assert len(set(names)) == len(names)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = project["project"]["dependencies"] + project["dependency-groups"]["test"]
    assert {re.split(r"[>\[]", line)[0].lower() for line in asked} <= {*names}
    assert "torch==2.13.0" in pins
