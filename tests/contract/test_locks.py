"""Locks and licences: an image holds the tested set, each package by its hash and its licence."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution

import licences
import pytest
import torch_build

from tests.tools import ROOT

FOLDER = ROOT / "deploy" / "locks"
PINS = {
    licences.canonical(name): version
    for name, version in re.findall(
        r"(?m)^([\w.-]+)==(\S+)$", (ROOT / "deploy/constraints.txt").read_text()
    )
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ELSEWHERE = {"bench", "ray"}
"""Extras of no image: plots belong to whoever measures, and Ray has images of its own."""
EXTRAS = sorted({*PROJECT["project"]["optional-dependencies"]} - ELSEWHERE)


def lock(name: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of each package of a lock."""
    text = (FOLDER / f"{name}.txt").read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {
        head.partition("==")[0]: (head.partition("==")[2], len(hashes)) for head, *hashes in lines
    }


def asked(lines: list[str]) -> set[str]:
    """The names of the packages that requirements ask for."""
    return {licences.canonical(re.split(r"[<>=]", line)[0]) for line in lines}


@pytest.mark.parametrize("name", ["cpu", "cuda", "build", *EXTRAS])
def test_every_package_is_one_release_with_hashes(name: str) -> None:
    """Each line names one release and its hashes, nothing else, and no place to get it from."""
    text = (FOLDER / f"{name}.txt").read_text()
    for line in text.splitlines():
        form = r"#.*|[a-z0-9-]+==[\w.+!]+ \\|    --hash=sha256:[0-9a-f]{64}( \\)?"
        assert re.fullmatch(form, line), line
    assert all(hashes >= 1 for _, hashes in lock(name).values())


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_an_image_holds_the_tested_set(name: str) -> None:
    """What an image runs is what is tested, and holds everything that we ask for."""
    held = {package: version for package, (version, _) in lock(name).items()}
    for package, version in held.items():
        if not (name == "cuda" and torch_build.CUDA_NAME.match(package)):
            assert PINS[package] == version.partition("+")[0], package
    assert asked(PROJECT["project"]["dependencies"]) <= {*held}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_adds_to_either_image(extra: str) -> None:
    """An extra's lock holds all it asks for, as tested, and changes nothing that is there."""
    held = {package: version for package, (version, _) in lock(extra).items()}
    assert asked(PROJECT["project"]["optional-dependencies"][extra]) <= {*held}
    for package, version in held.items():
        assert PINS[package] == version
        for image in (lock("cpu"), lock("cuda")):
            assert image.get(package, (version,))[0] == version


def test_cuda_is_in_the_one_and_not_in_the_other() -> None:
    """A CPU image holds a CPU build of torch and no CUDA package; a CUDA image is asked for."""
    cpu, cuda = lock("cpu"), lock("cuda")
    assert cpu["torch"][0] == f"{PINS['torch']}+cpu"
    assert cuda["torch"][0] == PINS["torch"]
    assert not [name for name in cpu if torch_build.CUDA_NAME.match(name)]
    assert [name for name in cuda if name.startswith("nvidia-")]
    assert {*cpu} <= {*cuda}


def test_the_build_tools_are_those_that_are_named() -> None:
    """The build's lock holds the tools that are listed, hatchling at the tested release."""
    named = (FOLDER / "build.in").read_text().splitlines()[1:]
    tools = lock("build")
    assert {*named} <= {*tools}
    assert tools["hatchling"][0] == PINS["hatchling"]


# ---------------------------------------------------------------- licences


def test_every_licence_is_known() -> None:
    """Each package that serving needs names a licence that has been decided about."""
    done = subprocess.run(
        [sys.executable, "-P", "deploy/licences.py", *EXTRAS],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    listed = {licences.canonical(row.split()[1]) for row in done.stdout.splitlines()[2:]}
    assert "seawall" in listed
    # Several of these are needed under one system or Python only.
    held = {package for name in ("cpu", *EXTRAS) for package in lock(name)}
    assert held - listed <= {"setuptools", "greenlet"}


def test_a_strange_licence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A licence that is not on the list, and a package that names none, make it fail."""
    assert licences.known("Apache-2.0 AND (MIT OR BSD-3-Clause)".replace("(", "").replace(")", ""))
    assert licences.known("LicenseRef-NVIDIA-Proprietary")
    for text in ("", "GPL-3.0-only", "MIT AND AGPL-3.0-only", "ask us"):
        assert not licences.known(text)
    with monkeypatch.context() as patch:
        patch.setattr(licences, "KNOWN", {"Apache-2.0"})
        assert licences.main([]) == 1


def test_a_wheel_that_carries_libraries_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries of others that nobody has looked into make it fail; those of media are told."""
    assert licences.main(["vision"]) == 0
    carried = {
        licences.canonical(one.metadata["Name"])
        for one in licences.needed(extras=EXTRAS)
        if licences.carries(one)
    }
    assert carried <= {*licences.CARRIED}
    assert {*licences.CARRIED} <= {package for name in ("cpu", *EXTRAS) for package in lock(name)}
    assert "GPL-2.0" in licences.CARRIED["av"]
    monkeypatch.delitem(licences.CARRIED, "av")
    assert licences.main(["vision"]) == int("av" in carried)


def test_an_extra_that_is_not_there_is_no_licence() -> None:
    """An extra that is misspelt, or was not installed, is a failure and not a shorter list."""
    assert licences.main(["visions"]) == 1


def test_the_closure_is_that_of_the_project() -> None:
    """Tools of the tests that lie beside the server are not listed, what it needs is."""
    names = {licences.canonical(one.metadata["Name"]) for one in licences.needed()}
    assert {"seawall", "torch", "starlette", "anyio"} <= names
    assert not {"pytest", "ruff", "mypy", "hypothesis"} & names
    assert licences.licence(distribution("starlette")) == "BSD-3-Clause"
