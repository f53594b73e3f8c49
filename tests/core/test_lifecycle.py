"""What the service is, when it gives up, how long it waits before another start."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.breaker import BreakerState
from service.core.lifecycle import (
    REASONS,
    CrashLoop,
    ServiceState,
    backoff_s,
    readiness,
    service_state,
)
from service.workers import WorkerState

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def _state(
    *workers: str,
    breaker: BreakerState = CLOSED,
    ever_ready: bool = False,
    draining: bool = False,
    stopped: bool = False,
    failed: bool = False,
) -> ServiceState:
    return service_state(
        workers,
        breaker,
        ever_ready=ever_ready,
        draining=draining,
        stopped=stopped,
        failed=failed,
    )


@pytest.mark.parametrize(
    "workers, breaker, ever_ready, expected",
    [
        ((), CLOSED, False, ServiceState.STARTING),
        (("starting",), CLOSED, False, ServiceState.STARTING),
        (("loading",), CLOSED, False, ServiceState.LOADING),
        (("starting", "loading"), CLOSED, False, ServiceState.LOADING),
        (("restarting",), CLOSED, False, ServiceState.RESTARTING),
        (("restarting", "loading"), CLOSED, False, ServiceState.LOADING),
        (("ready",), CLOSED, True, ServiceState.READY),
        (("restarting", "ready"), CLOSED, True, ServiceState.READY),
        (("ready",), HALF_OPEN, True, ServiceState.READY),
        (("ready",), OPEN, True, ServiceState.OPEN),
        (("restarting",), OPEN, True, ServiceState.RESTARTING),
        (("loading",), OPEN, True, ServiceState.RESTARTING),
        (("starting",), CLOSED, True, ServiceState.RESTARTING),
    ],
)
def test_state_follows_workers_and_breaker(
    workers: tuple[str, ...], breaker: BreakerState, ever_ready: bool, expected: ServiceState
) -> None:
    """The story of the workers comes first, the breaker's only while one is ready."""
    assert _state(*workers, breaker=breaker, ever_ready=ever_ready) is expected


@pytest.mark.parametrize("worker, breaker", [*product(WorkerState, BreakerState)])
def test_ends_come_before_everything_else(worker: WorkerState, breaker: BreakerState) -> None:
    """Failed over stopped over draining over whatever workers and breaker say."""
    ends = {"draining": ServiceState.DRAINING, "stopped": ServiceState.STOPPED}
    for name, expected in ends.items():
        flags = {"draining": True, name: True}
        assert _state(worker, breaker=breaker, ever_ready=True, **flags) is expected
    gave_up = _state(worker, breaker=breaker, draining=True, stopped=True, failed=True)
    assert gave_up is ServiceState.FAILED


def test_only_ready_takes_traffic_and_every_state_has_a_reason() -> None:
    """Readiness is true for READY alone, and each state says why in plain words."""
    assert set(REASONS) == set(ServiceState)
    for state in ServiceState:
        ready, reason = readiness(state)
        assert ready == (state is ServiceState.READY)
        assert reason
        assert "_" not in reason
    assert len(set(REASONS.values())) == len(ServiceState)


def test_half_open_is_ready() -> None:
    """Without traffic a half-open breaker could only wait for canaries: it is ready."""
    assert readiness(_state("ready", breaker=HALF_OPEN, ever_ready=True))[0]
    assert not readiness(_state("ready", breaker=OPEN, ever_ready=True))[0]


# ---------------------------------------------------------------- giving up


def test_enough_deaths_in_the_window_are_a_crash_loop() -> None:
    """The fifth death inside the window is one too many; the window's end is part of it."""
    loop = CrashLoop(limit=5, window_s=300.0)
    assert [loop.death(at) for at in (0.0, 1.0, 2.0, 3.0)] == [False] * 4
    assert loop.death(300.0)


def test_slow_deaths_are_no_crash_loop() -> None:
    """Deaths spread wider than the window go on for ever without giving up."""
    loop = CrashLoop(limit=5, window_s=300.0)
    assert not any(loop.death(76.0 * n) for n in range(100))


def test_good_batch_takes_deaths_back() -> None:
    """Useful work between deaths means that restarting helps."""
    loop = CrashLoop(limit=2, window_s=300.0)
    for n in range(20):
        assert not loop.death(float(n))
        loop.good_batch()
    assert not loop.death(30.0)
    assert loop.death(31.0)


def test_limit_of_one_gives_up_at_once() -> None:
    """No restart at all is a choice, too."""
    assert CrashLoop(limit=1, window_s=300.0).death(0.0)


@given(
    limit=st.integers(1, 6),
    events=st.lists(
        st.tuples(st.sampled_from(["death", "death", "good"]), st.floats(0.0, 80.0)), max_size=40
    ),
)
def test_crash_loop_agrees_with_its_definition(limit: int, events: list[tuple[str, float]]) -> None:
    """True exactly when ``limit`` deaths since the last good batch lie inside the window."""
    loop = CrashLoop(limit=limit, window_s=100.0)
    now, deaths = 0.0, list[float]()
    for event, passed in events:
        now += passed
        if event == "good":
            loop.good_batch()
            deaths.clear()
        else:
            deaths.append(now)
            recent = [at for at in deaths if now - at <= 100.0]
            assert loop.death(now) == (len(recent) >= limit)


def test_backoff_doubles_from_half_a_second_to_thirty() -> None:
    """The first restart comes soon, a hopeless one rarely, and no count overflows."""
    assert [backoff_s(n) for n in range(9)] == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert backoff_s(-1) == 0.0
    assert backoff_s(10**9) == 30.0
