"""What the README shows is what a reader sees: its commands are run as they stand."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from tests.contract.readme import README
from tests.e2e.server import LONG_S, Server, clean_environment

pytestmark = pytest.mark.e2e

ADDRESS = "http://localhost:8000/"
EXAMPLES: list[tuple[str, str]] = re.findall(
    r"^```\n\$ (curl (?:[^\n]*\\\n)*[^\n]*)\n([\[{].*?)\n```$",
    README.read_text(),
    re.MULTILINE | re.DOTALL,
)


def same(seen: Any, shown: Any) -> bool:
    """Equal; scores within 1e-4, and ``…`` stands for any text."""
    if isinstance(shown, dict) and isinstance(seen, dict):
        return seen.keys() == shown.keys() and all(same(seen[key], shown[key]) for key in shown)
    if isinstance(shown, list) and isinstance(seen, list):
        return len(seen) == len(shown) and all(map(same, seen, shown))
    if isinstance(shown, float):
        return isinstance(seen, float) and abs(seen - shown) < 1e-4
    return shown == "…" or bool(seen == shown)


def test_there_are_examples() -> None:
    """The first request, JSON with a list, and a refusal are shown."""
    assert len(EXAMPLES) == 3
    assert all(ADDRESS in command for command, _ in EXAMPLES)


@pytest.mark.parametrize("command,shown", EXAMPLES)
def test_example(model: Server, command: str, shown: str) -> None:
    """The command of the README gives the answer of the README."""
    done = subprocess.run(
        ["bash", "-c", command.replace(ADDRESS, model.url + "/")],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG_S,
    )
    assert same(json.loads(done.stdout), json.loads(shown)), done.stdout
