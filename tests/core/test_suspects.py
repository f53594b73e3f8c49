"""Suspects: alone for ten minutes, poisoned after two lone kills, bounded in number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from service.core.suspects import Suspects


def test_members_of_a_killed_batch_become_suspects() -> None:
    """Everyone who ran when the worker died is suspect, nobody else, and nobody is poisoned."""
    suspects = Suspects()
    suspects.killed([b"a", b"b"], 0.0)
    assert suspects.is_suspect(b"a", 1.0)
    assert suspects.is_suspect(b"b", 1.0)
    assert not suspects.is_suspect(b"c", 1.0)
    assert not suspects.is_poisoned(b"a", 1.0)


def test_two_lone_kills_poison() -> None:
    """Two deaths with this input running by itself are proof; one is not."""
    suspects = Suspects()
    suspects.killed([b"a"], 0.0)
    assert suspects.is_suspect(b"a", 1.0)
    assert not suspects.is_poisoned(b"a", 1.0)
    suspects.killed([b"a"], 2.0)
    assert suspects.is_poisoned(b"a", 3.0)


def test_kills_in_company_never_poison() -> None:
    """Dying with others proves nothing about one of them, however often."""
    suspects = Suspects()
    for now in range(50):
        suspects.killed([b"a", bytes([now])], float(now))
    assert not suspects.is_poisoned(b"a", 50.0)


def test_two_copies_are_company() -> None:
    """The same input twice in one batch is not a lone run."""
    suspects = Suspects()
    suspects.killed([b"a", b"a"], 0.0)
    suspects.killed([b"a", b"a"], 1.0)
    assert not suspects.is_poisoned(b"a", 2.0)


def test_forgotten_after_ten_minutes_without_a_kill() -> None:
    """Suspicion and poison end ten minutes after the last kill, and the count with them."""
    suspects = Suspects()
    suspects.killed([b"a"], 0.0)
    suspects.killed([b"a"], 599.0)
    assert suspects.is_poisoned(b"a", 599.0 + 599.9)
    assert not suspects.is_poisoned(b"a", 599.0 + 600.0)
    assert not suspects.is_suspect(b"a", 599.0 + 600.0)
    suspects.killed([b"a"], 1300.0)
    assert not suspects.is_poisoned(b"a", 1300.0)


def test_kill_in_company_keeps_lone_kills() -> None:
    """A kill in company renews the suspicion and takes no evidence away."""
    suspects = Suspects()
    suspects.killed([b"a"], 0.0)
    suspects.killed([b"a", b"b"], 500.0)
    suspects.killed([b"a"], 900.0)
    assert suspects.is_poisoned(b"a", 900.0)


def test_oldest_falls_out_when_full() -> None:
    """The book never grows over its bound; whose last kill is oldest goes first."""
    suspects = Suspects(most=2)
    suspects.killed([b"a"], 0.0)
    suspects.killed([b"b"], 1.0)
    suspects.killed([b"a"], 2.0)
    suspects.killed([b"c"], 3.0)
    assert not suspects.is_suspect(b"b", 3.0)
    assert suspects.is_poisoned(b"a", 3.0)
    assert suspects.is_suspect(b"c", 3.0)


def test_thousand_and_twenty_four_are_remembered() -> None:
    """The book's own bound, and that it forgets whose time is over when another comes."""
    suspects = Suspects()
    suspects.killed([n.to_bytes(2, "big") for n in range(1025)], 0.0)
    assert len(suspects) == 1024
    assert not suspects.is_suspect(b"\0\0", 0.0)
    suspects.killed([b"new"], 600.0)
    assert len(suspects) == 1


@given(size=st.integers(0, 40))
def test_large_batches_stay_bounded(size: int) -> None:
    """Even one batch larger than the book leaves it at its bound."""
    suspects = Suspects(most=16)
    suspects.killed([bytes([n]) for n in range(size)], 0.0)
    assert len(suspects) == min(size, 16)


class SuspectsMachine(RuleBasedStateMachine):
    """Against the plain history of kills, while fewer inputs than the bound exist."""

    @initialize()
    def begin(self) -> None:
        self.suspects = Suspects(ttl_s=100.0, most=8)
        self.now = 0.0
        self.history: dict[bytes, tuple[float, int]] = {}

    @rule(seconds=st.floats(0.0, 150.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(batch=st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1, max_size=3))
    def kill(self, batch: list[bytes]) -> None:
        self.suspects.killed(batch, self.now)
        for fingerprint in batch:
            at, lone = self.history.get(fingerprint, (self.now, 0))
            lone = lone if self.now - at < 100.0 else 0
            self.history[fingerprint] = (self.now, lone + (len(batch) == 1))

    @invariant()
    def agrees_with_history(self) -> None:
        for fingerprint in (b"a", b"b", b"c", b"d"):
            at, lone = self.history.get(fingerprint, (-1e9, 0))
            fresh = self.now - at < 100.0
            assert self.suspects.is_suspect(fingerprint, self.now) == fresh
            assert self.suspects.is_poisoned(fingerprint, self.now) == (fresh and lone >= 2)


TestSuspectsMachine = SuspectsMachine.TestCase
