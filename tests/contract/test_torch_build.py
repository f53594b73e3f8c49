"""Which build of torch may be installed: the decisions, on what pip reports."""

from __future__ import annotations

import pytest
from torch_build import (
    Machine,
    Torch,
    applies,
    brings_cuda,
    torch_choice,
    torch_in,
    unwanted_download,
)

PC = Machine("Linux", "x86_64")
ARM = Machine("Linux", "aarch64")
MAC = Machine("Darwin", "arm64")

ON_LINUX = 'nvidia-cublas==13.1.1.3; platform_system == "Linux"'
ON_LINUX_PC = (
    'nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux" and platform_machine == "x86_64"'
)


@pytest.mark.parametrize(
    "version,requires,machine,expected",
    [
        ("2.13.0+cpu", ("filelock", "sympy>=1.13.3"), PC, False),
        ("2.13.0", ("filelock", "sympy>=1.13.3"), PC, False),
        ("2.13.0", ("filelock", ON_LINUX), PC, True),
        ("2.13.0", (ON_LINUX,), MAC, False),
        ("2.8.0", (ON_LINUX_PC,), PC, True),
        ("2.8.0", (ON_LINUX_PC,), ARM, False),
        ("2.13.0", ('triton==3.7.1; sys_platform == "linux"',), PC, True),
        ("2.13.0", ("cuda-bindings<14,>=13.0.3",), PC, True),
        ("2.13.0", ('cuda-toolkit[cublas]==13.0.3; platform_system == "Linux"',), PC, True),
        ("2.13.0", ('nvidia-x; platform_system != "Windows"',), PC, True),
        ("2.13.0", ('nvidia-x; extra == "gpu"',), PC, False),
        ("2.13.0", ('nvidia-x; platform_system == "Windows" or python_version > "3"',), PC, True),
        ("2.13.0+cu130", (), PC, True),
        ("2.13.0+rocm7.1", (), PC, True),
        ("2.13.0+xpu", (), PC, True),
    ],
)
def test_brings_cuda(
    version: str, requires: tuple[str, ...], machine: Machine, expected: bool
) -> None:
    """A build is for a GPU if its local version says so or it pulls such packages here."""
    assert brings_cuda(Torch(version, requires), machine) is expected


def test_unknown_marker_holds() -> None:
    """A marker that is not understood holds: in doubt the build counts as one for CUDA."""
    assert applies('nvidia-x; implementation_name == "other"', PC)


def test_torch_in_report() -> None:
    """The torch of a report is found with its version and requirements."""
    entry = {"metadata": {"name": "Torch", "version": "2.13.0", "requires_dist": ["filelock"]}}
    other = {"metadata": {"name": "torchvision", "version": "1"}}
    assert torch_in({"install": [other, entry]}) == Torch("2.13.0", ("filelock",))
    assert torch_in({"install": [other]}) is None
    assert torch_in({}) is None


@pytest.mark.parametrize(
    "line,expected",
    [
        ("  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (532.1 MB)", True),
        ("Downloading https://mirror.example/torch-2.13.0%2Bcu130-cp311-none.whl (2.1 GB)", True),
        ("  Downloading torch-2.13.0-cp311-cp311-manylinux.whl.metadata (29 kB)", False),
        ("  Downloading http://mirror.example/torch-2.13.0%2Bcpu-cp311-none.whl (190 MB)", False),
        ("  Downloading torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl (190 MB)", False),
        ("  Obtaining dependency information from torch 2.13.0", False),
        ("Would install torch-2.13.0", False),
    ],
)
def test_unwanted_download(line: str, expected: bool) -> None:
    """Pip is stopped when it begins to download a wheel that is not named as a CPU build."""
    assert unwanted_download(line) is expected


@pytest.mark.parametrize(
    "value,expected",
    [("", "auto"), (" ", "auto"), ("CUDA", "cuda"), ("system", "system"), ("gpu", None)],
)
def test_torch_choice(value: str, expected: str | None) -> None:
    """TORCH is one of the choices in any case, empty means auto, anything else is refused."""
    assert torch_choice(value) == expected
