"""The README's tables, made from the code.

``python -m tests.contract.readme`` writes them anew; ``test_readme`` fails while they are stale.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from service.core.errors import ERRORS
from service.metrics import CATALOGUE
from service.settings import Settings
from service.settings.sources import rule_of, value_text
from tests.tools import ROOT

README = ROOT / "README.md"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join((_row(*head), "|" + "---|" * len(head), *(_row(*row) for row in rows)))


def errors() -> str:
    """Every error of the list."""
    rows = (
        (
            str(kind.status),
            f"`{kind.code}`",
            kind.outcome_class.value,
            "yes" if kind.retryable else "no",
            kind.detail,
        )
        for kind in ERRORS.values()
    )
    return _table(("status", "code", "class", "retry", "what the client reads"), rows)


def settings() -> str:
    """Every setting."""
    rows = (
        (
            f"`{name}`",
            f"`{value_text(info.default)}`" if value_text(info.default) else "none",
            rule_of(name).says(),
            str(info.description),
        )
        for name, info in Settings.model_fields.items()
    )
    return _table(("setting", "default", "must be", "meaning"), rows)


def metrics() -> str:
    """Every metric of the catalogue."""
    rows = (
        (f"`{row.name}`", row.kind.value, ", ".join(f"`{n}`" for n in row.label_names), row.help)
        for row in CATALOGUE
    )
    return _table(("metric", "type", "labels", "meaning"), rows)


TABLES = {"errors": errors, "settings": settings, "metrics": metrics}


def written(text: str) -> str:
    """``text`` with every table made anew."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        block = f"{begin}\n{table()}\n{end}"
        text = pattern.sub(block.replace("\\", r"\\"), text)
    return text


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
