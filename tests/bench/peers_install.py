"""Where the peers live: for each an environment of its own, over the packages of this one.

A peer's environment sees what is installed here after what is installed in it, so that all of
them, Seawall too, run the same torch and transformers, and torch is not downloaded again. What a
peer wants in another version goes into its own environment and leaves this one as it is.

A finished environment is marked with what it was made for and used again.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

LOG, MARK = "install.log", "installed"
LIMIT_S = 900.0


class NotInstalled(Exception):
    """A peer is not to be had; the message says why."""


def python_of(requirements: Sequence[str], folder: Path) -> Path:
    """The interpreter of a peer's environment, made if it is not there.

    Args:
        requirements: what pip is asked for.
        folder: of the environment.

    Raises:
        NotInstalled: pip could not install it.
    """
    python = folder / "bin" / "python"
    mark = folder / MARK
    made_for = f"{' '.join(requirements)} over {sysconfig.get_path('purelib')}"
    if mark.exists() and mark.read_text() == made_for:
        return python
    sys.stderr.write(f"installing {' '.join(requirements)}\n")
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "zz_over.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (str(python), "-P", "-m", "pip", "install", "--disable-pip-version-check")
    try:
        done = subprocess.run(
            (*pip, *requirements), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"pip did not end within {LIMIT_S:.0f} s") from None
    (folder / LOG).write_text(done.stdout)
    if done.returncode:
        raise NotInstalled(why(done.stdout))
    mark.write_text(made_for)
    return python


def why(output: str) -> str:
    """The last error in pip's output, without addresses and paths."""
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    last = errors[-1].removeprefix("ERROR:").strip() if errors else "pip failed"
    return re.sub(r"\S*/\S*", "…", last)[:120]
