"""What the comparison with the peers found, as tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from tests.bench.live_rows import Row, Unit, markdown, table
from tests.bench.peers_measure import Measured
from tests.bench.speed_offline import WAYS, Limit, best

SEAWALL, COLUMN = "Seawall", "comparison model"
TIMES = 2.5
HEADS = (
    "server", "settings", "answers, 64 connections", "Seawall / it",
    "in time at twice its own", "Seawall / it", "goodput / its own", "in time of all",
    "p50 of these", "same answers",
)  # fmt: skip


@dataclass(slots=True)
class Found:
    """Everything that was measured: each server's rounds, and why others have none."""

    limits: list[Limit] = field(default_factory=list)
    measured: dict[str, list[Measured]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def own(self, name: str) -> float:
        """Answers a second in the closed loop."""
        return median(one.own.rps for one in self.measured[name])

    def goodput(self, name: str) -> float:
        """Answers in time a second at twice that."""
        return median(one.point.goodput_rps for one in self.measured[name])


def text_of(found: Found, how: str) -> tuple[str, bool]:
    """The tables with what is said before them, and whether every target is met."""
    rows = _rows(found)
    servers = table(HEADS, [_line(found, name) for name in found.measured])
    parts = [how, markdown(rows), servers]
    if found.missing:
        parts.append(table(("not measured", "why"), sorted(found.missing.items())))
    return "\n\n".join(parts), all(row.good for row in rows)


def _rows(found: Found) -> list[Row]:
    rows = [Row(one.what, COLUMN, one.rate, Unit.RATE) for one in found.limits]
    own, goodput = found.own(SEAWALL), found.goodput(SEAWALL)
    if found.limits:
        stock, gathered = (best(found.limits, way).rate for way in WAYS)
        rows += [
            Row("gathered / stock", COLUMN, gathered / stock, Unit.TIMES),
            Row("Seawall, closed loop of 64 / gathered offline limit", COLUMN, own / gathered,
                Unit.SHARE),
        ]  # fmt: skip
    peers = [name for name in found.measured if name != SEAWALL]
    if not peers:
        return rows
    closed = max(found.own(name) for name in peers)
    in_time = max(found.goodput(name) for name in peers)
    return [
        *rows,
        Row("Seawall / best peer, closed loop of 64", COLUMN, own / closed, Unit.TIMES,
            least=TIMES),
        Row("Seawall / best peer, in time at twice one's own", COLUMN,
            goodput / in_time if in_time else None, Unit.TIMES, least=TIMES if in_time else None),
    ]  # fmt: skip


def _line(found: Found, name: str) -> list[str]:
    rounds = found.measured[name]
    own, goodput = found.own(name), found.goodput(name)
    p50s = [one.point.latency.p50_ms for one in rounds]
    known = [value for value in p50s if value is not None]
    return [
        name,
        rounds[-1].settings,
        Unit.RATE.write(own),
        Unit.TIMES.write(found.own(SEAWALL) / own),
        Unit.RATE.write(goodput),
        Unit.TIMES.write(found.goodput(SEAWALL) / goodput if goodput else None),
        Unit.SHARE.write(goodput / own),
        Unit.PERCENT.write(median(one.point.success_share for one in rounds)),
        Unit.MILLISECONDS.write(median(known) if known else None),
        "yes" if all(one.alike for one in rounds) else "**no**",
    ]
