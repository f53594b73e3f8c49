"""The numbers in the papers about deploying: sums are right, and are those of the files."""

from __future__ import annotations

import math
import re
import shlex

import pytest

from service.bench.options import BadOption, parse
from service.settings import load_settings
from tests.contract.manifests_rendered import only, settings
from tests.contract.tree import files
from tests.tools import ROOT

PAPER = (ROOT / "docs/operations.md").read_text()
RELEASE = (ROOT / "docs/release.md").read_text()
DEPLOY = PAPER[PAPER.index("## Sizing") : PAPER.index("## The status page")]


def test_the_example_of_sizing_adds_up() -> None:
    """Every result in the worked example follows from its sum."""
    arrivals, capacity = 150, 90
    needed = math.ceil(arrivals / (0.7 * capacity))
    rows = dict(re.findall(r"(?m)^\| ([^|]*) \| [^|]* \| ([^|]*) \|$", DEPLOY))
    assert rows["replicas for the load"].startswith(f"{needed}, and 1 more")
    share = round(100 * arrivals / needed / capacity)
    assert rows["load of each, with one gone"] == f"{share} % of C"
    waiting = math.ceil(capacity * 0.75)
    assert f" {waiting}, so" in f" {rows['most inputs that may wait with the cap at 0.75 s']}"
    assert waiting < load_settings([], {}).queue_limit
    refused = 10 * arrivals - (needed + 1) * capacity
    assert rows["at 10 × the load, refused"].startswith(f"{refused}/s")


def test_the_drain_arithmetic_is_that_of_the_manifests() -> None:
    """The numbers that are shown are the manifests'."""
    chosen = settings("base")
    grace_s = only("base", "Deployment")["spec"]["template"]["spec"][
        "terminationGracePeriodSeconds"
    ]
    delay_s, drain_s = chosen.drain_delay_ms // 1000, chosen.drain_timeout_ms // 1000
    assert f"{grace_s} s ≥ {delay_s} + {drain_s} + 5 s" in DEPLOY
    assert f"{drain_s} s ≥ {chosen.max_deadline_ms // 1000} s" in DEPLOY


def test_commands_for_the_benchmark_are_taken() -> None:
    """Each ``seawall bench`` that is shown has options that exist."""
    shown = re.findall(r"seawall bench( [^`\n]*)", DEPLOY)
    shown = [line for line in shown if "--" in line]
    assert len(shown) == 2
    for line in shown:
        words = ["http://127.0.0.1:1" if "HOST" in word else word for word in shlex.split(line)]
        assert parse(words).rates
    with pytest.raises((BadOption, SystemExit)):
        parse(["--no-such-option"])


@pytest.mark.parametrize("paper", [DEPLOY, RELEASE], ids=["operations", "release"])
def test_files_that_are_named_are_there(paper: str) -> None:
    """Every file or folder of this tree that is named in the text exists."""
    tracked = {str(path) for path in files()}
    named = re.findall(r"(?<![\w/.])(?:deploy|service|docs)/[\w./-]*[\w]", paper)
    assert len(named) >= 5
    for name in named:
        assert any(path == name or path.startswith(f"{name}/") for path in tracked), name


def test_links_between_the_papers_lead_somewhere() -> None:
    """Every anchor of the operations paper that the release paper links to has its heading."""
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in PAPER.splitlines()
        if line.startswith("#")
    }
    for anchor in re.findall(r"operations\.md#([\w-]+)", RELEASE):
        assert anchor in headings
