"""schemathesis as a program: it reads the description of a running server and asks what it says.

It tries the same in every run. Its clock is switched off: a machine that stands still for a minute
is no fault of the server.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.e2e.server import LONG_S, Server, clean_environment

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_headers_conformance", "response_schema_conformance", "negative_data_rejection",
    "unsupported_method", "allow_header_conformance", "missing_required_header",
)  # fmt: skip
"""What must hold for every server."""

ALL = "all"
"""Also: whatever fits the description is answered. Only where no model counts tokens."""

# Refusals by load and by deadline are documented answers to good requests; 500 never is.
CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 503, 504]
[checks.negative_data_rejection]
expected-statuses = ["4xx", 503, 504]
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", 503, 504]
"""


def fuzz(server: Server, folder: Path, *flags: str, checks: str = ",".join(CHECKS)) -> str:
    """Run it; returns its report.

    Raises:
        AssertionError: it has found something; the report is in the message.
    """
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG)
    program = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    assert program is not None, "schemathesis is not installed beside this Python"
    done = subprocess.run(
        [
            program, "--config-file", str(config), "run", f"{server.url}/openapi.json",
            "--checks", checks, "--generation-deterministic", "--no-color",
            "--continue-on-failure", "--suppress-health-check", "all",
            "--request-timeout", str(LONG_S), *flags,
        ],
        cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False,
        timeout=10 * LONG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
