"""What ``/status`` counts: the same as the metrics, by class, ready for rates."""

from __future__ import annotations

from typing import Any

from service.core.errors import ERRORS, OUTCOMES, OutcomeClass
from service.metrics import Metrics
from tests.front.scripted import Script, batch_s, text, virtual
from tests.front.test_http_house import Front


async def _status(front: Front) -> dict[str, Any]:
    shown: dict[str, Any] = (await front.get("/status")).json
    return shown


@virtual
async def test_nothing_has_been_counted_at_the_start() -> None:
    """Every outcome, class and reason is there from the first moment, at 0."""
    async with Front(wait=False) as front:
        status = await _status(front)
        outcomes = status["outcomes"]
        assert [*outcomes] == [one.value for one in OutcomeClass]
        by_code = {code: name for name, codes in outcomes.items() for code in codes}
        assert set(by_code) == set(OUTCOMES)
        assert all(by_code[code] == kind.outcome_class for code, kind in ERRORS.items())
        assert {count for codes in outcomes.values() for count in codes.values()} == {0}
        assert set(status["restarts"].values()) == {0}
        assert status["batches"] == {"count": 0, "items": 0, "seconds": 0}
        assert (status["queue"]["left"], status["queue"]["waited_s"]) == (0, 0)


@virtual
async def test_counts_of_a_story() -> None:
    """Outcomes, batches, waits and losses stand in /status as they stand in the metrics."""
    script = Script(marks={"slow": "slow=1", "fatal": "crash"})
    async with Front(script, queue_limit=2, max_wait_ms=3000) as front:
        began = (await _status(front))["clock_s"]
        first = front.asked(text("slow"))
        await front.step()
        burst = [front.asked(text(f"r{i}")) for i in range(4)]
        assert (await first).status == 200
        assert sorted([(await task).status for task in burst]) == [200, 200, 503, 503]
        status = await _status(front)
        assert status["outcomes"]["ok"] == {"ok": 3}
        assert status["outcomes"]["shed"]["queue_full"] == 2
        seconds = 1 + 3 * batch_s(8)
        assert status["batches"] == {"count": 3, "items": 3, "seconds": seconds}
        assert len(front.batches) == 3
        assert status["queue"]["left"] == 3
        assert status["queue"]["waited_s"] == front.metric("queue_wait_seconds_sum")
        assert status["clock_s"] - began == seconds
        assert (await front.asked(text("fatal"))).json["code"] == "worker_lost"
        status = await _status(front)
        assert status["restarts"]["crashed"] == 1
        assert sum(status["restarts"].values()) == 1
        assert status["outcomes"]["server"]["worker_lost"] == 1
        front.outcomes()


def test_totals_are_whole() -> None:
    """What lies in a portion that is not full yet is among the totals, once."""
    metrics = Metrics()
    for _ in range(70):
        metrics.request_done("ok", 0.01)
    assert metrics.totals().outcomes["ok"] == 70
    assert metrics.totals().outcomes["ok"] == 70
    assert metrics.registry.get_sample_value("seawall_requests_total", {"outcome": "ok"}) == 70
