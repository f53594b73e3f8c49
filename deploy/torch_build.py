"""Which build of torch may be installed here: decisions on what pip reports, and nothing else.

Laws
- Every function is a decision on plain values; nothing is run, read or downloaded here.
- In doubt a build counts as one for CUDA: to stop and name the choices is cheaper than gigabytes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

CHOICES = ("auto", "cuda", "system")
"""What ``TORCH`` may say; ``auto`` is the default."""

CUDA_NAME = re.compile(r"(nvidia|cuda|triton|pytorch[-_]triton)\b", re.IGNORECASE)
"""Packages that only a GPU build needs; each of the large ones starts like this."""

GPU_LABEL = re.compile(r"(cu|rocm|xpu)\d*", re.IGNORECASE)
"""Local versions of GPU builds: ``2.13.0+cu130``, ``2.13.0+rocm7.1``, ``2.13.0+xpu``."""

CLAUSE = re.compile(r"(\w+)\s*([!=]=)\s*[\"']([^\"']*)[\"']")
WHEEL_DOWNLOAD = re.compile(r"Downloading (?P<file>\S+\.whl)(\s|$)")

ADVICE = """\
No CPU build of torch was found. What pip would take, if it has any, brings CUDA packages (several
gigabytes) that this machine, having no NVIDIA driver, cannot use. Nothing was installed.
Choose one of:

  TORCH=cuda make serve           install the CUDA build all the same
  PIP_FIND_LINKS=DIR make serve   use the CPU wheel of torch that lies in the folder DIR
                                  (an index of CPU builds in your pip configuration works as well)
  TORCH=system make serve         use the torch that python3 already has"""


class Torch(NamedTuple):
    """A torch that pip would install."""

    version: str
    """For example ``2.13.0+cpu``."""
    requires: tuple[str, ...]
    """Its requirements, as its metadata has them."""


class Machine(NamedTuple):
    """Where it would run, as ``os.uname`` names it."""

    system: str
    architecture: str


def torch_choice(value: str) -> str | None:
    """What the variable ``TORCH`` asks for; ``None`` if it is none of :data:`CHOICES`."""
    choice = value.strip().lower() or "auto"
    return choice if choice in CHOICES else None


def torch_in(report: dict[str, object]) -> Torch | None:
    """The torch in pip's installation report; ``None``: pip would leave it as it is."""
    installs = report.get("install")
    for entry in installs if isinstance(installs, list) else []:
        metadata = entry["metadata"]
        if metadata["name"].lower() == "torch":
            return Torch(metadata["version"], tuple(metadata.get("requires_dist", ())))
    return None


def applies(requirement: str, machine: Machine) -> bool:
    """Whether a requirement's marker holds here.

    Only what matters for torch is understood: clauses on system and architecture joined by
    ``and``, and extras, of which none is asked for. What is not understood holds.
    """
    marker = requirement.partition(";")[2]
    if " or " in marker:
        return True
    here = {
        "platform_system": machine.system,
        "sys_platform": machine.system.lower(),
        "platform_machine": machine.architecture,
        "extra": "",
    }
    return all(
        (here[name] == value) == (sign == "==")
        for name, sign, value in CLAUSE.findall(marker)
        if name in here
    )


def brings_cuda(torch: Torch, machine: Machine) -> bool:
    """Whether this torch is a build for a GPU, or pulls CUDA packages on this machine."""
    if GPU_LABEL.match(torch.version.partition("+")[2]):
        return True
    return any(CUDA_NAME.match(line) and applies(line, machine) for line in torch.requires)


def unwanted_download(line: str) -> bool:
    """Whether a line of pip's output says that it begins to download a wheel for a GPU.

    A dry run reads metadata alone where the index can give it. Where it cannot, pip downloads the
    wheel to look inside; that is welcome only for a wheel whose name says that it is a CPU build.
    """
    found = WHEEL_DOWNLOAD.search(line)
    return found is not None and not re.search(r"(\+|%2B)cpu", found["file"], re.IGNORECASE)
