"""The tables of ``dashboards/README.md``, between two marks each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dashboards.model import Dashboard

HEAD = "| panel | question | what it means when it moves | what to do first |"
LEFT_OUT_HEAD = "| metric | why it has no panel |"


def filled(readme: str, dashboard: Dashboard, left_out: Mapping[str, str]) -> str:
    """The paper with its tables as the description has them.

    Raises:
        ValueError: a mark is missing.
    """
    with_panels = _between(readme, "panels", _panels(dashboard))
    return _between(with_panels, "left out", _left_out(left_out))


def _between(text: str, name: str, lines: Iterator[str]) -> str:
    start, end = f"<!-- {name}: generated -->\n", f"<!-- {name}: end -->\n"
    before, begun, rest = text.partition(start)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"the marks of {name!r} are missing")
    return "".join((before, start, *(f"{line}\n" for line in lines), end, after))


def _panels(dashboard: Dashboard) -> Iterator[str]:
    for row in dashboard.rows:
        yield f"\n### {row.title}\n"
        yield HEAD
        yield "|---|---|---|---|"
        for panel in row.panels:
            read_on = f"[Read on](../docs/operations.md#{panel.runbook})."
            cells = (f"**{panel.title}**", panel.question, panel.moves, f"{panel.first} {read_on}")
            yield f"| {' | '.join(cells)} |"
    yield ""


def _left_out(left_out: Mapping[str, str]) -> Iterator[str]:
    yield f"\n{LEFT_OUT_HEAD}"
    yield "|---|---|"
    yield from (f"| `{name}` | {reason} |" for name, reason in left_out.items())
    yield ""
