"""The breaker's table, counts and generations; and that it can never wedge."""

from __future__ import annotations

import copy
from itertools import product

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.core.breaker import (
    GOOD_BATCHES,
    GOOD_CANARIES,
    HALF_OPEN_ITEMS,
    RESTART_CANARIES,
    TABLE,
    Breaker,
    BreakerEvent,
    BreakerState,
)

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def _opened(now: float = 0.0, **given: float) -> Breaker:
    breaker = Breaker(**given)  # type: ignore[arg-type]
    breaker.device_lost(now)
    assert breaker.state is OPEN
    return breaker


def _half_open(now: float = 0.0) -> Breaker:
    breaker = _opened(now)
    assert breaker.canary(now, ok=True) is HALF_OPEN
    return breaker


def test_table_is_total() -> None:
    """Every state knows what to do with every event."""
    assert set(TABLE) == set(product(BreakerState, BreakerEvent))


def test_table_has_only_the_four_edges() -> None:
    """Closed opens, open half-opens, half-open closes or opens again; there is no other way."""
    edges = {(before, after) for (before, _), after in TABLE.items() if before is not after}
    assert edges == {(CLOSED, OPEN), (OPEN, HALF_OPEN), (HALF_OPEN, CLOSED), (HALF_OPEN, OPEN)}


@pytest.mark.parametrize("event", [e for e in BreakerEvent if e is not BreakerEvent.CANARY_GOOD])
def test_only_a_good_canary_leaves_open(event: BreakerEvent) -> None:
    """Open, nothing but a good canary lets clients in again: no request is ever the probe."""
    assert TABLE[OPEN, event] is OPEN


def test_numbers_are_the_promised_ones() -> None:
    """Two good batches of at most four, three good canaries, ten bad ones: as documented."""
    assert (GOOD_BATCHES, HALF_OPEN_ITEMS, GOOD_CANARIES, RESTART_CANARIES) == (2, 4, 3, 10)


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_failures_in_a_row_open_it(failures: int) -> None:
    """It opens with exactly the configured number of confirmed failures in a row."""
    breaker = Breaker(failures=failures)
    moves = [breaker.failure(0.0, breaker.generation) for _ in range(failures)]
    assert moves == [None] * (failures - 1) + [OPEN]


def test_success_starts_the_count_anew() -> None:
    """A good batch between failures takes them all back: ten per cent of failures never open it."""
    breaker = Breaker(failures=5)
    for _ in range(100):
        for _ in range(4):
            assert breaker.failure(0.0, 0) is None
        assert breaker.success(0.0, 0) is None
    assert breaker.state is CLOSED


def test_lost_device_opens_at_once() -> None:
    """The last worker's lost device opens it without counting."""
    assert Breaker(failures=5).device_lost(0.0) is OPEN


@pytest.mark.parametrize("ok", [True, False])
def test_results_of_an_old_generation_are_ignored(ok: bool) -> None:
    """A batch begun before the opening neither closes nor opens it, in any state after."""
    for make in (_opened, _half_open):
        breaker = make()
        assert breaker.generation == 1
        for _ in range(10):
            tell = breaker.success if ok else breaker.failure
            assert tell(1.0, 0) is None
        assert breaker.state is make().state
        assert breaker.failures_in_row == 0


def test_generation_rises_with_every_opening_only() -> None:
    """The generation counts openings, and nothing else changes it."""
    breaker = Breaker(failures=1)
    seen = [breaker.generation]
    for step in ("fail", "canary", "fail", "canary", "good", "good", "fail", "canary"):
        if step == "fail":
            breaker.failure(0.0, breaker.generation)
        elif step == "canary":
            breaker.canary(0.0, ok=True)
        else:
            breaker.success(0.0, breaker.generation)
        seen.append(breaker.generation)
    assert seen == [0, 1, 1, 2, 2, 2, 2, 3, 3]


def test_batches_of_half_open_still_count_after_it_closed() -> None:
    """Closing starts no generation: a batch begun half-open is evidence about the same model."""
    breaker = _half_open()
    generation = breaker.generation
    for _ in range(GOOD_BATCHES):
        breaker.success(0.0, generation)
    assert breaker.state is CLOSED
    for _ in range(4):
        assert breaker.failure(0.0, generation) is None
    assert breaker.failure(0.0, generation) is OPEN


def test_half_open_closes_after_two_good_batches() -> None:
    """Two good batches of clients close it, one does not."""
    breaker = _half_open()
    assert breaker.success(0.0, breaker.generation) is None
    assert breaker.success(0.0, breaker.generation) is CLOSED
    assert breaker.next_probe() is None


def test_half_open_closes_after_three_good_canaries_without_traffic() -> None:
    """With no client at all it closes by itself; the canary that half-opened it does not count."""
    breaker = _half_open()
    moves = [breaker.canary(float(n), ok=True) for n in range(GOOD_CANARIES)]
    assert moves == [None, None, CLOSED]


def test_one_batch_and_then_no_traffic_still_closes() -> None:
    """A single client followed by silence must not hold it half-open."""
    breaker = _half_open()
    breaker.success(0.0, breaker.generation)
    for n in range(GOOD_CANARIES):
        assert breaker.next_probe() is not None
        breaker.probe_sent(float(n))
        breaker.canary(float(n), ok=True)
    assert breaker.state is CLOSED


@pytest.mark.parametrize("how", ["failure", "canary", "device"])
def test_half_open_opens_on_any_doubt(how: str) -> None:
    """One confirmed failure, bad canary or lost device ends the trial."""
    breaker = _half_open()
    if how == "failure":
        moved = breaker.failure(5.0, breaker.generation)
    elif how == "canary":
        moved = breaker.canary(5.0, ok=False)
    else:
        moved = breaker.device_lost(5.0)
    assert moved is OPEN
    assert breaker.generation == 2


def test_trial_counts_start_anew_with_every_half_open() -> None:
    """A good batch of a former trial does not help the next one."""
    breaker = _half_open()
    breaker.success(0.0, breaker.generation)
    breaker.failure(0.0, breaker.generation)
    breaker.canary(0.0, ok=True)
    assert breaker.success(0.0, breaker.generation) is None
    assert breaker.success(0.0, breaker.generation) is CLOSED


def test_closing_forgets_old_failures() -> None:
    """After it closed it takes the full number of failures to open it again."""
    breaker = Breaker(failures=3)
    for _ in range(3):
        breaker.failure(0.0, 0)
    for _ in range(1 + GOOD_CANARIES):
        breaker.canary(0.0, ok=True)
    assert breaker.state is CLOSED
    assert breaker.failure(0.0, 1) is None
    assert breaker.failure(0.0, 1) is None
    assert breaker.failure(0.0, 1) is OPEN


def test_bad_canaries_while_closed_count_as_failures() -> None:
    """A probe that comes back bad after it closed is a confirmed failure like another."""
    breaker = Breaker(failures=2)
    assert breaker.canary(0.0, ok=False) is None
    assert breaker.canary(0.0, ok=False) is OPEN


def test_good_canary_while_closed_takes_no_failure_back() -> None:
    """A worker that comes up does not hide failures of real batches."""
    breaker = Breaker(failures=2)
    breaker.failure(0.0, 0)
    breaker.canary(0.0, ok=True)
    assert breaker.failure(0.0, 0) is OPEN


def test_restart_is_wanted_after_ten_bad_canaries_in_a_row() -> None:
    """Every ten bad canaries in a row ask for a restart; a good one in between starts anew."""
    breaker = _opened()
    for begin in ("opened", "good canary", "restarted"):
        if begin == "good canary":
            breaker.canary(0.0, ok=True)
        for _ in range(9):
            breaker.canary(0.0, ok=False)
            assert not breaker.wants_restart
        if begin == "opened":
            continue
        breaker.canary(0.0, ok=False)
        assert breaker.wants_restart
        breaker.restarted()
        assert not breaker.wants_restart


def test_half_open_arms_its_own_probe() -> None:
    """The next canary of a trial is a probe time after it began, not left from before."""
    breaker = _opened(now=0.0)
    breaker.canary(50.0, ok=True)
    due = breaker.next_probe()
    assert due is not None
    assert 50.9 <= due <= 51.1


def test_only_half_open_limits_batches() -> None:
    """Half-open batches are small, all others are not its business."""
    assert Breaker().batch_limit is None
    assert _opened().batch_limit is None
    assert _half_open().batch_limit == HALF_OPEN_ITEMS


def test_probe_is_due_once_a_second_give_or_take_a_tenth() -> None:
    """Every probe is due 0.9 to 1.1 probe times ahead, and they are not all the same."""
    breaker = _opened(now=100.0, probe_s=2.0)
    seen = set()
    now = 100.0
    for _ in range(200):
        due = breaker.next_probe()
        assert due is not None
        assert 1.8 - 1e-9 <= due - now <= 2.2 + 1e-9
        seen.add(round(due - now, 6))
        now = due
        breaker.probe_sent(now)
    assert len(seen) > 100
    assert max(seen) - min(seen) > 0.3


def test_phase_moves_the_jitter() -> None:
    """Replicas with different phases do not probe in step."""
    assert _opened(phase=0.0).next_probe() != _opened(phase=0.5).next_probe()


def test_lost_probe_does_not_stop_the_probing() -> None:
    """The next probe is armed when one goes out, not when its answer comes."""
    breaker = _opened()
    due = breaker.next_probe()
    assert due is not None
    breaker.probe_sent(due)
    later = breaker.next_probe()
    assert later is not None
    assert later > due


def test_probe_sent_while_closed_arms_nothing() -> None:
    """Closed, there is nothing to probe."""
    breaker = Breaker()
    breaker.probe_sent(5.0)
    assert breaker.next_probe() is None


def test_retry_after_is_the_time_to_the_next_probe() -> None:
    """A refused client is told when the next canary runs, never less than nothing."""
    breaker = _opened(now=10.0)
    due = breaker.next_probe()
    assert due is not None
    assert breaker.retry_after_s(10.0) == due - 10.0
    assert breaker.retry_after_s(due + 5.0) == 0.0
    assert Breaker().retry_after_s(0.0) == 0.0


class BreakerMachine(RuleBasedStateMachine):
    """Anything may happen in any order; a good model and time must always close it."""

    @initialize(failures=st.integers(1, 6), probe_s=st.sampled_from([0.05, 1.0, 30.0]))
    def begin(self, failures: int, probe_s: float) -> None:
        self.breaker = Breaker(failures=failures, probe_s=probe_s)
        self.failures = failures
        self.probe_s = probe_s
        self.now = 50.0
        self.running: list[int] = []
        """Generations of batches that are still in the model."""

    @rule(seconds=st.floats(0.0, 100.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.breaker.state is not OPEN)
    @rule()
    def batch_starts(self) -> None:
        self.running.append(self.breaker.generation)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), end=st.sampled_from(["good", "bad", "solved"]))
    def batch_ends(self, data: st.DataObject, end: str) -> None:
        generation = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        before = (self.breaker.state, self.breaker.generation)
        if end == "good":
            self.check(before, self.breaker.success(self.now, generation))
        elif end == "bad":
            self.check(before, self.breaker.failure(self.now, generation))
        if generation != before[1]:
            assert (self.breaker.state, self.breaker.generation) == before

    @rule(ok=st.booleans())
    def canary(self, ok: bool) -> None:
        before = (self.breaker.state, self.breaker.generation)
        self.check(before, self.breaker.canary(self.now, ok=ok))

    @rule()
    def device_lost(self) -> None:
        before = (self.breaker.state, self.breaker.generation)
        self.check(before, self.breaker.device_lost(self.now))

    @rule()
    def probe_goes_out_and_is_lost(self) -> None:
        self.breaker.probe_sent(self.now)

    @precondition(lambda self: self.breaker.wants_restart)
    @rule()
    def restarted(self) -> None:
        self.breaker.restarted()
        assert not self.breaker.wants_restart

    def check(self, before: tuple[BreakerState, int], moved: BreakerState | None) -> None:
        """A transition is told exactly when there is one, and openings count generations."""
        state, generation = before
        assert moved is (self.breaker.state if self.breaker.state is not state else None)
        opened = moved is OPEN
        assert self.breaker.generation == generation + opened

    @invariant()
    def probe_is_armed_unless_closed(self) -> None:
        due = self.breaker.next_probe()
        assert (due is None) == (self.breaker.state is CLOSED)
        if due is not None:
            assert due <= self.now + 1.1 * self.probe_s + 1e-9

    @invariant()
    def closed_never_holds_enough_failures(self) -> None:
        if self.breaker.state is CLOSED:
            assert self.breaker.failures_in_row < self.failures

    @invariant()
    def good_model_closes_it_without_traffic(self) -> None:
        breaker, now = copy.copy(self.breaker), self.now
        for _ in range(1 + GOOD_CANARIES):
            due = breaker.next_probe()
            if due is None:
                break
            now = max(now, due)
            breaker.probe_sent(now)
            breaker.canary(now, ok=True)
        assert breaker.state is CLOSED
        assert now <= self.now + (1 + GOOD_CANARIES) * 1.1 * self.probe_s + 1e-6

    @invariant()
    def good_model_closes_it_with_traffic(self) -> None:
        breaker, now = copy.copy(self.breaker), self.now
        if breaker.state is OPEN:
            now = max(now, breaker.next_probe() or now)
            breaker.canary(now, ok=True)
        for _ in range(GOOD_BATCHES):
            breaker.success(now, breaker.generation)
        assert breaker.state is CLOSED

    @invariant()
    def poison_alone_never_holds_it_half_open(self) -> None:
        """Batches that end without evidence leave the canaries to decide."""
        breaker, now = copy.copy(self.breaker), self.now
        while (due := breaker.next_probe()) is not None:
            now = max(now, due)
            assert now < self.now + 10 * self.probe_s
            breaker.probe_sent(now)
            breaker.canary(now, ok=True)
        assert breaker.state is CLOSED


TestBreakerMachine = BreakerMachine.TestCase
