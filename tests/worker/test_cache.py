"""The cache of prepared items stays inside its bytes, whatever happens to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.worker.cache import PreparedCache
from service.worker.interface import PreparedInput


def prepared(nbytes: int) -> PreparedInput:
    """An item of that size."""
    return PreparedInput(1, nbytes, None)


def test_least_recently_used_goes_first() -> None:
    """What was asked for last stays longest."""
    cache = PreparedCache(30)
    for number in range(3):
        cache.put(number, prepared(10))
    assert cache.get(0) is not None
    cache.put(3, prepared(10))
    assert [cache.get(number) is not None for number in range(4)] == [True, False, True, True]


def test_dropped_is_gone() -> None:
    """Dropped items are forgotten with their bytes; unknown ids are fine."""
    cache = PreparedCache(30)
    cache.put(1, prepared(10))
    cache.drop([1, 99])
    assert cache.get(1) is None
    assert cache.nbytes == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "get", "drop"]), st.integers(0, 5), st.integers(0, 40))
    )
)
def test_bytes_are_bounded_and_conserved(steps: list[tuple[str, int, int]]) -> None:
    """After any steps the bytes are those of the items held, and never over the limit."""
    cache = PreparedCache(50)
    for step, number, nbytes in steps:
        if step == "put":
            cache.put(number, prepared(nbytes))
        elif step == "get":
            cache.get(number)
        else:
            cache.drop([number])
        held = [item for item in map(cache.get, range(6)) if item is not None]
        assert cache.nbytes == sum(item.nbytes for item in held) <= 50
