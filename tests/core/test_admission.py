"""Admission: one order of questions, the first that applies answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.admission import (
    RETRY_LEAST_S,
    RETRY_MOST_S,
    Ask,
    Line,
    Size,
    available,
    decide,
    due,
    gate,
    predicted_wait,
    rest_of_batch,
    retry_after,
)
from service.core.errors import Problem

ASKED = Ask("r", ("a",), b"{}", False, 1, headers_at=10.0, body_at=11.0, timeout_s=None)
CALM = Line(idle=False, has_room=True, wait_s=0.1, wait_cap_s=0.5, spread=1.5)
ONE = Size(items=1, own_s=0.05, remaining_s=1.0, named=False, is_list=False, measured=True)


def _code(problem: Problem | None) -> str | None:
    return problem.code if problem else None


@dataclass(frozen=True)
class Trouble:
    """Which of the reasons to refuse hold."""

    draining: bool = False
    loading: bool = False
    opened: bool = False
    full: bool = False
    waiting: bool = False
    long_list: bool = False
    impossible: bool = False
    late: bool = False
    idle: bool = False

    def decide(self) -> Problem | None:
        """The whole decision, as the front asks it."""
        refusal = available(
            draining=self.draining,
            ready=not self.loading,
            circuit_open=self.opened,
            reload_s=7.0,
            probe_s=3.0,
        )
        if refusal is not None:
            return refusal
        line = CALM._replace(
            idle=self.idle,
            has_room=not self.full,
            wait_s=5.0 if self.waiting else 0.1,
            spread=1.0,
        )
        size = ONE
        if self.long_list:
            size = replace(size, items=10, is_list=True, own_s=0.8)
        if self.impossible:
            size = replace(size, remaining_s=size.own_s / 2)
        elif self.late:
            size = replace(size, remaining_s=size.own_s + 0.01)
        return decide(line, size)


ORDER = [
    ("draining", "draining"),
    ("loading", "model_loading"),
    ("opened", "circuit_open"),
    ("full", "queue_full"),
    ("waiting", "overloaded"),
    ("long_list", "payload_too_large"),
    ("impossible", "deadline_too_short"),
    ("late", "overloaded"),
]
"""The reasons in their order, with what each answers."""


@given(reasons=st.sets(st.sampled_from([name for name, _ in ORDER])))
def test_first_reason_in_order_answers(reasons: set[str]) -> None:
    """Whatever else is wrong, the client hears the first reason of the order, else it is in."""
    expected = next((code for name, code in ORDER if name in reasons), None)
    assert _code(Trouble(**dict.fromkeys(reasons, True)).decide()) == expected


@given(reasons=st.sets(st.sampled_from(["waiting", "impossible", "late"])))
def test_idle_worker_with_an_empty_queue_admits(reasons: set[str]) -> None:
    """However pessimistic the estimate, an idle server takes the request and so finds out."""
    assert Trouble(idle=True, **dict.fromkeys(reasons, True)).decide() is None


@pytest.mark.parametrize(
    "name, code",
    [("draining", "draining"), ("loading", "model_loading"), ("opened", "circuit_open")],
)
def test_idle_worker_does_not_help_a_service_that_is_away(name: str, code: str) -> None:
    """What makes the service unavailable is asked before the worker is."""
    assert _code(Trouble(idle=True, **{name: True}).decide()) == code


def test_idle_worker_still_needs_room() -> None:
    """The queue's bound holds always: it is what keeps memory finite."""
    assert _code(gate(CALM._replace(idle=True, has_room=False))) == "queue_full"


def test_wait_cap_is_exact() -> None:
    """A wait of exactly the cap is admitted, anything above is not."""
    assert gate(CALM._replace(wait_s=0.5)) is None
    assert _code(gate(CALM._replace(wait_s=math.nextafter(0.5, 1.0)))) == "overloaded"


@given(own_s=st.floats(0.0, 100.0), items=st.integers(1, 64), named=st.booleans())
def test_wait_cap_does_not_look_at_the_request(own_s: float, items: int, named: bool) -> None:
    """Long and short are refused alike: size plays no part in the wait cap."""
    size = Size(items, own_s, 1e9, named, items > 1, measured=True)
    assert _code(decide(CALM._replace(wait_s=0.6), size)) == "overloaded"


@given(
    own_s=st.floats(0.0, 10.0),
    remaining_s=st.floats(-1.0, 10.0),
    wait_s=st.floats(0.0, 0.5),
    measured=st.booleans(),
)
def test_own_deadline(own_s: float, remaining_s: float, wait_s: float, measured: bool) -> None:
    """Who cannot finish in time is refused now; impossible even idle is said only when measured."""
    size = replace(ONE, own_s=own_s, remaining_s=remaining_s, measured=measured)
    refusal = decide(CALM._replace(wait_s=wait_s), size)
    if wait_s + own_s <= remaining_s:
        assert refusal is None
    elif measured and own_s > remaining_s:
        assert refusal is not None
        assert refusal.code == "deadline_too_short"
        assert refusal.retry_after_s is None
        assert refusal.min_timeout_ms is not None
        assert refusal.min_timeout_ms / 1000 >= own_s
    else:
        assert refusal is not None
        assert refusal.code == "overloaded"
        assert refusal.retry_after_s is not None


def test_own_deadline_in_figures() -> None:
    """The least deadline that could work, in milliseconds; else when the line is short enough."""
    line = CALM._replace(wait_s=0.5, spread=1.0)
    impossible = decide(line, replace(ONE, own_s=2.5, remaining_s=2.0))
    assert impossible is not None
    assert impossible.min_timeout_ms == 2500
    late = decide(line, replace(ONE, own_s=6.0, remaining_s=4.0, measured=False))
    assert late is not None
    assert late.retry_after_s == 2.5


@given(items=st.integers(2, 64), own_s=st.floats(0.51, 100.0), idle=st.booleans())
def test_too_long_list_is_told_what_fits(items: int, own_s: float, idle: bool) -> None:
    """The number told is less than was sent, at least one, and a list of it is not too long."""
    size = Size(items, own_s, 1e9, named=False, is_list=True, measured=True)
    refusal = decide(CALM._replace(idle=idle), size)
    assert refusal is not None
    assert refusal.code == "payload_too_large"
    assert refusal.limit is not None
    assert 1 <= refusal.limit < items
    assert str(refusal.limit) in refusal.detail
    shorter = replace(size, items=refusal.limit, own_s=own_s * refusal.limit / items * (1 - 1e-9))
    assert decide(CALM._replace(idle=idle), shorter) is None


def test_named_deadline_allows_a_long_list() -> None:
    """A client that names its deadline may send what takes longer than the server plans ahead."""
    size = Size(64, 5.0, 30.0, named=True, is_list=True, measured=True)
    assert decide(CALM, size) is None


def test_list_that_takes_exactly_the_cap_is_not_too_long() -> None:
    """The bound itself is allowed."""
    assert decide(CALM, Size(10, 0.5, 5.0, named=False, is_list=True, measured=True)) is None


def test_list_of_one_is_judged_as_one() -> None:
    """A single item cannot be cut, so it is never called too long a list."""
    assert decide(CALM, Size(1, 0.8, 5.0, named=False, is_list=True, measured=True)) is None


# ---------------------------------------------------------------- the wait, and what is told


@pytest.mark.parametrize(
    "now, expected", [(0.0, 2.0), (1.5, 0.5), (2.0, 0.0), (3.0, 1.0), (60.0, 58.0)]
)
def test_overdue_batch_counts_as_busy_for_as_long_again(now: float, expected: float) -> None:
    """A batch that should have ended at 2 s: the longer it is overdue the longer it will take."""
    assert rest_of_batch(now, 2.0) == expected


@given(
    rests=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8),
    line_s=st.floats(0.0, 100.0),
    prepare_s=st.floats(0.0, 1.0),
)
def test_predicted_wait(rests: list[float], line_s: float, prepare_s: float) -> None:
    """The worker free first, the line shared by all workers, and the preparing."""
    wait = predicted_wait(rests, line_s, prepare_s)
    assert wait == pytest.approx(min(rests) + line_s / len(rests) + prepare_s)
    assert predicted_wait([*rests, 200.0], line_s, prepare_s) <= wait


def test_nobody_to_wait_for_is_for_ever() -> None:
    """Without a worker the wait has no end, and what is told stays in its bounds."""
    assert predicted_wait([], 0.0, 0.0) == math.inf
    assert retry_after(math.inf, 0.5, 1.0) == RETRY_MOST_S


@given(
    wait_s=st.floats(0.0, 30.0),
    cap_s=st.floats(0.0, 10.0),
    spread=st.floats(1.0, 2.0),
)
def test_retry_after_is_the_excess_spread_out(wait_s: float, cap_s: float, spread: float) -> None:
    """Clients are told the time over the cap, once to twice, from 1 to 30 seconds."""
    told = retry_after(wait_s, cap_s, spread)
    assert RETRY_LEAST_S <= told <= RETRY_MOST_S
    assert told in {RETRY_LEAST_S, RETRY_MOST_S} or told == (wait_s - cap_s) * spread


@pytest.mark.parametrize(
    "wait_s, spread, told", [(4.5, 1.0, 4.0), (4.5, 2.0, 8.0), (0.6, 1.5, 1.0), (99.0, 1.0, 30.0)]
)
def test_retry_after_in_figures(wait_s: float, spread: float, told: float) -> None:
    """With a cap of half a second: 4 s over it are told as 4 to 8 s."""
    assert retry_after(wait_s, 0.5, spread) == told


@pytest.mark.parametrize("seconds, told", [(0.0, 1.0), (7.0, 7.0), (1e9, 30.0)])
def test_reload_and_probe_times_are_told_in_bounds(seconds: float, told: float) -> None:
    """While loading the learned reload time, while open the next probe, from 1 to 30 seconds."""
    for flags in ({"ready": False}, {"circuit_open": True}):
        refusal = available(
            **({"draining": False, "ready": True, "circuit_open": False} | flags),
            reload_s=seconds,
            probe_s=seconds,
        )
        assert refusal is not None
        assert refusal.retry_after_s == told


@given(
    line=st.builds(
        Line,
        idle=st.booleans(),
        has_room=st.booleans(),
        wait_s=st.floats(0.0, 100.0),
        wait_cap_s=st.floats(0.0, 10.0),
        spread=st.floats(1.0, 2.0),
    ),
    size=st.builds(
        Size,
        items=st.integers(1, 64),
        own_s=st.floats(0.0, 100.0),
        remaining_s=st.floats(-10.0, 100.0),
        named=st.booleans(),
        is_list=st.booleans(),
        measured=st.booleans(),
    ),
)
def test_every_refusal_is_complete(line: Line, size: Size) -> None:
    """A 503 always says when to come back; what a retry cannot help says nothing of the kind.

    And the gate, which sees no body, never refuses what the full decision would admit.
    """
    refusal = decide(line, size)
    if refusal is not None:
        assert (refusal.retry_after_s is not None) == (refusal.status == 503)
        assert (refusal.retry_after_s is not None) == refusal.kind.retryable
    if gate(line) is not None:
        assert refusal == gate(line)


# ---------------------------------------------------------------- deadlines


@pytest.mark.parametrize(
    "client_s, proxy_s, at, allowed_s",
    [
        (None, math.inf, 14.0, 3.0),  # the default, from the body on
        (None, 31.0, 14.0, 3.0),  # a proxy that waits longer changes nothing
        (None, 2.0, 12.0, 2.0),  # one that waits shorter does, from the headers on
        (None, 3.5, 13.5, 3.5),  # also where the body came late
        (20.0, math.inf, 30.0, 20.0),  # a client may ask for more than the default
        (20.0, 31.0, 30.0, 20.0),
        (20.0, 15.0, 25.0, 15.0),  # and gets no more than its proxy waits
        (0.5, 31.0, 10.5, 0.5),
        (99.0, math.inf, 70.0, 60.0),  # nor more than the server allows
        (99.0, 99.0, 70.0, 60.0),
    ],
)
def test_a_proxy_only_ever_tightens(
    client_s: float | None, proxy_s: float, at: float, allowed_s: float
) -> None:
    """The client's deadline, else the default; then the least of it, the proxy's and the most."""
    asked = replace(ASKED, timeout_s=client_s, proxy_s=proxy_s)
    assert due(asked, 3.0, 60.0) == (at, allowed_s)


def test_a_long_list_is_allowed_as_before() -> None:
    """The default of a list may be longer than another's, and is bounded like any other."""
    assert due(ASKED, 80.0, 60.0) == (71.0, 60.0)
