"""The README says what the code does."""

from __future__ import annotations

import re

import pytest

from service.core.errors import ERRORS
from service.settings import Settings
from service.tasks import TASKS
from service.worker.rehearsal import FaultName
from tests.contract.readme import README, TABLES, written
from tests.tools import ROOT

TEXT = README.read_text()

FOREIGN = {
    "binary_data_output", "encoding_format", "input_ids", "max_seq_length", "sampling_rate",
}  # fmt: skip
"""What other protocols, and files of models, call their own."""


def test_tables_are_those_of_the_code() -> None:
    """Settings, errors and metrics in the README are generated, and not stale."""
    assert written(TEXT) == TEXT, "run: python -m tests.contract.readme"


@pytest.mark.parametrize("name", TABLES)
def test_a_stale_table_is_noticed(name: str) -> None:
    """A table that lost a row is found, so the test above can fail."""
    rows = TABLES[name]().splitlines()
    stale = TEXT.replace(rows[-1] + "\n", "", 1)
    assert stale != TEXT
    assert written(stale) == TEXT


def test_every_name_in_prose_exists() -> None:
    """What the README's prose calls a setting, an error or a fault is one."""
    known = set(Settings.model_fields) | set(ERRORS) | {fault.value for fault in FaultName}
    known |= {name for task in TASKS.values() for name in task.parameters} | FOREIGN
    prose = re.sub(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", "", TEXT, flags=re.DOTALL)
    spans = re.findall(r"`([a-z]+(?:_[a-z]+)+)`", prose)
    assert [span for span in spans if span not in known] == []


def test_local_links_lead_somewhere() -> None:
    """Every relative link of README and docs names a file, and its heading if it has one."""
    for page in (README, *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]*)(#[^)]*)?\)", page.read_text()):
            file = (page.parent / target[0]) if target[0] else page
            assert file.exists(), (page.name, target)
            if target[1] and file.suffix == ".md":
                heads = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
                assert target[1][1:] in anchors, (page.name, target)
