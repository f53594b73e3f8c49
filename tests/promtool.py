"""Prometheus' own tool, for tests: it judges pages and rules as Prometheus would."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.tools import require_tool


def promtool(
    *args: str, cwd: Path | None = None, page: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run promtool. Where it is missing the test is skipped, with ``CI=true`` it fails."""
    command = [require_tool("promtool"), *args]
    return subprocess.run(
        command, cwd=cwd, input=page, capture_output=True, timeout=120, check=False
    )
