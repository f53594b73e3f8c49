"""List the licences of what an installed Seawall brings with it; fail for one that is not known.

Usage: ``PYTHON deploy/licences.py``, with the Python of the installation (an image's is
``/seawall/bin/python``). It prints a table in Markdown; the exit code is 1 if a package names no
licence, or one that nobody has decided about (:data:`KNOWN`).

Laws
- What is listed is what is installed and needed: the closure of Seawall's own requirements under
  this interpreter, not the tools that happen to lie beside it.
- A licence is known by its SPDX name or by the words with which a package declares it; a new one
  is a decision, not an accident.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

ROOT = "seawall"

KNOWN = {
    "0BSD", "Apache 2.0 License", "Apache Software License", "Apache-2.0", "BSD License",
    "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python", "ISC License (ISCL)",
    "LLVM-exception", "MIT", "MIT License", "MPL-2.0", "PSF-2.0", "Zlib",
}  # fmt: skip
"""Licences under which an image may be passed on as it is, sources unchanged."""

NVIDIA = re.compile(r"NVIDIA|LicenseRef-NVIDIA", re.IGNORECASE)
"""CUDA packages: passed on under NVIDIA's own terms, which whoever ships a CUDA image must read."""

OPERATORS = re.compile(r"\s+(?:AND|OR|WITH)\s+|,\s*")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def canonical(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(root: str = ROOT) -> list[Distribution]:
    """Every installed package that ``root`` needs, itself first, the others by name.

    Raises:
        PackageNotFoundError: ``root`` is not installed.
    """
    found: dict[str, Distribution] = {}
    open_ = [root]
    while open_:
        name = canonical(open_.pop())
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if name == canonical(root):
                raise
            continue  # a requirement of another platform or Python
        open_ += _requirements(found[name])
    first = found.pop(canonical(root))
    return [first, *(found[name] for name in sorted(found))]


def _requirements(package: Distribution) -> Iterator[str]:
    """What a package asks for without extras; what is not installed drops out later."""
    for line in package.requires or ():
        requirement, _, marker = line.partition(";")
        if "extra" not in marker and (name := NAME.match(requirement.strip())):
            yield name[0]


def licence(package: Distribution) -> str:
    """What a package declares: an SPDX expression, else its classifiers, else a short free text."""
    about = package.metadata
    if "License-Expression" in about:
        return about["License-Expression"]
    classified = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier", [])
        if line.startswith("License ::") and not line.endswith("OSI Approved")
    ]
    if classified:
        return ", ".join(classified)
    text = about["License"].strip() if "License" in about else ""
    return text.splitlines()[0] if text else ""


def known(text: str) -> bool:
    """Whether every licence that is named has been decided about."""
    if text in KNOWN or NVIDIA.search(text):
        return True
    parts = [part.strip() for part in OPERATORS.split(text) if part.strip()]
    return bool(parts) and all(part in KNOWN for part in parts)


def main() -> int:
    """Print the table; the exit code is 1 for a licence that is not known."""
    rows = [(one.metadata["Name"], one.version, licence(one)) for one in needed()]
    print("| package | version | licence |\n|---|---|---|")
    for name, version, text in rows:
        print(f"| {name} | {version} | {text or 'none named'} |")
    strange = [name for name, _, text in rows if not known(text)]
    for name in strange:
        print(f"licences: {name}: not known, decide about it", file=sys.stderr)
    return int(bool(strange))


if __name__ == "__main__":
    raise SystemExit(main())
