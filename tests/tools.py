"""Where the project lies, and programs that tests need from the system."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
"""The top of the source tree."""

PACKAGES = {"promtool": "prometheus", "amtool": "prometheus-alertmanager"}
"""The Debian package of a program, where it has another name; ``.ci/run`` installs them."""


def require_tool(name: str) -> str:
    """The path of a system program. Where it is missing the test is skipped, or fails in CI."""
    found = shutil.which(name)
    if found is not None:
        return found
    reason = f"{name} is not installed (Debian: apt-get install {PACKAGES.get(name, name)})"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
