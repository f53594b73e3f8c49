"""List the licences of what an installed Seawall brings with it; fail for one that is not known.

Usage: ``PYTHON deploy/licences.py [EXTRA ...]``, with the Python of the installation (an image's
is ``/seawall/bin/python``) and the extras that it was made with. It prints a table in Markdown; the
exit code is 1 if a package names no licence, or one that nobody has decided about (:data:`KNOWN`),
or brings libraries that nobody has looked into (:data:`CARRIED`).

Laws
- What is listed is what is installed and needed: the closure of Seawall's own requirements under
  this interpreter, not the tools that happen to lie beside it.
- A licence is known by its SPDX name or by the words with which a package declares it; a new one
  is a decision, not an accident.
- A wheel that carries libraries of others says its own licence only: what it carries is listed here
  by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution

ROOT = "seawall"

KNOWN = {
    "0BSD", "Apache 2.0 License", "Apache Software License", "Apache-2.0", "BSD License",
    "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python", "ISC License (ISCL)",
    "LGPL-2.1-or-later", "LLVM-exception", "MIT", "MIT License", "MIT-0", "MIT-CMU", "MPL-2.0",
    "PSF-2.0", "Zlib",
}  # fmt: skip
"""Licences under which an image may be passed on as it is, sources unchanged."""

CARRIED = {
    "av": "FFmpeg (LGPL-3.0-or-later), x264 and x265 (GPL-2.0-or-later), codecs under BSD and LGPL",
    "numpy": "OpenBLAS (BSD-3-Clause), libgfortran (GPL-3.0 with the runtime exception)",
    "pillow": "readers of pictures and fonts under BSD, MIT, IJG, FTL, libtiff and Zlib",
    "soundfile": "libsndfile, LAME, mpg123 (LGPL-2.1-or-later); FLAC, Ogg, Vorbis, Opus (BSD)",
    "soxr": "libsoxr (LGPL-2.1-or-later), PFFFT (BSD)",
}
"""What wheels carry of others, and under which terms. GPL and LGPL ask whoever passes an image on
for the sources of those libraries. Without an extra there is numpy's alone, whose exception asks
for none."""

NVIDIA = re.compile(r"NVIDIA|LicenseRef-NVIDIA", re.IGNORECASE)
"""CUDA packages: passed on under NVIDIA's own terms, which whoever ships a CUDA image must read."""

OPERATORS = re.compile(r"\s+(?:AND|OR|WITH)\s+|,\s*")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def canonical(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(root: str = ROOT, extras: Sequence[str] = ()) -> list[Distribution]:
    """Every installed package that ``root`` needs with these extras, itself first, then by name.

    Raises:
        PackageNotFoundError: ``root``, or what one of its extras asks for, is not installed.
    """
    found: dict[str, Distribution] = {}
    open_ = [root]
    for extra in extras:
        asked = list(_requirements(distribution(root), extra))
        if not asked:
            raise PackageNotFoundError(f"{root}[{extra}]")
        open_ += (distribution(name).metadata["Name"] for name in asked)
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


def _requirements(package: Distribution, extra: str = "") -> Iterator[str]:
    """What a package asks for without extras or with one; what is missing drops out later."""
    for line in package.requires or ():
        requirement, _, marker = line.partition(";")
        asked = re.search(r"extra == ['\"]([^'\"]*)", marker)
        if (asked[1] if asked else "") == extra and (name := NAME.match(requirement.strip())):
            yield name[0]


def carried(package: Distribution) -> str:
    """What a wheel carries of others, as far as it has been looked into."""
    return CARRIED.get(canonical(package.metadata["Name"]), "")


def carries(package: Distribution) -> bool:
    """Whether a wheel carries libraries in a folder as the tools that repair wheels make it."""
    return any(part.endswith(".libs") for path in package.files or () for part in path.parts[:1])


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


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; the exit code is 1 for what nobody has decided about."""
    extras = sys.argv[1:] if argv is None else argv
    try:
        packages = needed(ROOT, extras)
    except PackageNotFoundError as error:
        print(f"licences: {error.name} is not installed", file=sys.stderr)
        return 1
    print("| package | version | licence | carries |\n|---|---|---|---|")
    strange = 0
    for one in packages:
        name, text, inside = one.metadata["Name"], licence(one), carried(one)
        print(f"| {name} | {one.version} | {text or 'none named'} | {inside} |")
        if not known(text) or (carries(one) and not inside):
            what = "what it carries is" if known(text) else "its licence is"
            print(f"licences: {name}: {what} not known, decide about it", file=sys.stderr)
            strange += 1
    return int(bool(strange))


if __name__ == "__main__":
    raise SystemExit(main())
