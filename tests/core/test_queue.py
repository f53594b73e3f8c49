"""The queue: places and bytes are conserved, the order of arrival is kept, all or nothing."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.core.item import Item, ItemState
from service.core.queue import BoundedQueue
from tests.core.items import new_item


def _filled(*items: Item, limit: int = 10, bytes_limit: int = 1000) -> BoundedQueue:
    queue = BoundedQueue(limit, bytes_limit)
    queue.put(items)
    return queue


@pytest.mark.parametrize("size", [1, 3, 10])
def test_list_takes_n_places_or_none(size: int) -> None:
    """One item too many and the whole list is refused; the queue is as it was."""
    queue = _filled(*[new_item() for _ in range(11 - size)])
    before = list(queue)
    with pytest.raises(ValueError, match="no room"):
        queue.put([new_item() for _ in range(size)])
    assert list(queue) == before
    assert queue.nbytes == sum(item.nbytes for item in before)


def test_bytes_bound_as_places_do() -> None:
    """Few but heavy items are bounded by their bytes, exactly at the limit and not before."""
    queue = _filled(new_item(nbytes=600))
    assert queue.has_room(1, 400)
    assert not queue.has_room(1, 401)
    with pytest.raises(ValueError, match="no room"):
        queue.put([new_item(nbytes=200), new_item(nbytes=201)])
    assert len(queue) == 1
    queue.put([new_item(nbytes=400)])
    assert queue.nbytes == 1000


@pytest.mark.parametrize("state", [s for s in ItemState if s is not ItemState.PREPARING])
def test_only_new_items_take_places(state: ItemState) -> None:
    """An item that has been anywhere already cannot take a place; nor can its whole list."""
    queue = BoundedQueue(10, 1000)
    with pytest.raises(ValueError, match="new"):
        queue.put([new_item(), new_item(state=state)])
    assert len(queue) == queue.nbytes == queue.units == 0


def test_no_item_takes_two_places() -> None:
    """The same item again, in another call or in the same one, is refused and changes nothing."""
    item = new_item()
    queue = _filled(item)
    with pytest.raises(ValueError, match="new"):
        queue.put([item])
    twice = new_item()
    with pytest.raises(ValueError, match="new"):
        queue.put([twice, twice])
    assert list(queue) == [item]
    assert queue.nbytes == item.nbytes


def test_equal_item_is_not_in_the_queue() -> None:
    """Membership is identity: a copy with the same id has no place and cannot leave."""
    item = new_item()
    queue = _filled(item)
    twin = copy.copy(item)
    assert item in queue
    assert twin not in queue
    for leave in (queue.start, queue.withdraw):
        with pytest.raises(ValueError, match="not in the queue"):
            leave(twin, 1.0)
    with pytest.raises(ValueError, match="not in the queue"):
        queue.prepared(twin, 1.0, "")


def test_item_that_is_not_prepared_cannot_start() -> None:
    """A refused step leaves the item in its place."""
    item = new_item()
    queue = _filled(item)
    with pytest.raises(ValueError, match="cannot go"):
        queue.start(item, 1.0)
    assert item in queue
    assert queue.nbytes == item.nbytes


def test_prepared_item_keeps_its_place() -> None:
    """The true size changes the sum, never the order; being prepared first is no advantage."""
    first, second = new_item(units=10.0), new_item(units=10.0)
    queue = _filled(first, second)
    queue.prepared(second, 3.0, "k")
    queue.prepared(first, 7.0, "k")
    assert queue.waiting(9) == [first, second]
    assert queue.units == 10.0
    with pytest.raises(ValueError, match="cannot go"):
        queue.prepared(first, 9.0, "k")
    assert queue.units == 10.0


def test_waiting_passes_over_items_in_preparation() -> None:
    """Only prepared items are offered, oldest first, as many as asked for."""
    items = [new_item() for _ in range(6)]
    queue = _filled(*items)
    for item in items[1::2]:
        queue.prepared(item, 1.0, "")
    assert queue.waiting(2) == [items[1], items[3]]
    assert queue.waiting(0) == []
    assert queue.oldest() is items[0]


def test_every_way_out_tells_the_wait() -> None:
    """Started or withdrawn, the seconds waited come back, never negative; a start is noted."""
    items = [new_item(arrived=10.0) for _ in range(3)]
    queue = _filled(*items)
    queue.prepared(items[0], 1.0, "")
    assert queue.start(items[0], 12.5) == 2.5
    assert items[0].started == 12.5
    assert queue.withdraw(items[1], 14.0) == 4.0
    assert queue.withdraw(items[2], 9.0) == 0.0
    assert items[1].started == items[2].started == 0.0
    with pytest.raises(ValueError, match="not in the queue"):
        queue.withdraw(items[1], 15.0)


@given(units=st.lists(st.floats(0.1, 1e4), min_size=2, max_size=50), data=st.data())
def test_fractions_of_units_add_up(units: list[float], data: st.DataObject) -> None:
    """Estimates that are no whole numbers leave at most rounding behind, and nothing once empty."""
    items = [new_item(units=size) for size in units]
    queue = _filled(*items, limit=50)
    for item in data.draw(st.permutations(items)):
        queue.withdraw(item, 1.0)
        assert queue.units == pytest.approx(sum(i.units for i in queue), abs=1e-6)
    assert queue.units == 0.0


class QueueMachine(RuleBasedStateMachine):
    """Any sequence of arrivals, preparations and departures, against a plain list."""

    @initialize(limit=st.integers(1, 12), bytes_limit=st.integers(0, 200))
    def begin(self, limit: int, bytes_limit: int) -> None:
        self.queue = BoundedQueue(limit, bytes_limit)
        self.limit, self.bytes_limit = limit, bytes_limit
        self.inside: list[Item] = []
        self.arrived = self.left = 0
        self.now = 100.0

    def of(self, *states: ItemState) -> list[Item]:
        return [item for item in self.inside if item.state in states]

    @rule(seconds=st.floats(0.0, 10.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(sizes=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 500)), max_size=6))
    def arrive(self, sizes: list[tuple[int, int]]) -> None:
        items = [
            new_item(nbytes=nbytes, units=float(units), arrived=self.now) for nbytes, units in sizes
        ]
        nbytes = sum(item.nbytes for item in items)
        fits = (
            len(self.inside) + len(items) <= self.limit
            and sum(item.nbytes for item in self.inside) + nbytes <= self.bytes_limit
        )
        assert self.queue.has_room(len(items), nbytes) == fits
        if fits:
            self.queue.put(items)
            self.inside += items
            self.arrived += len(items)
        else:
            with pytest.raises(ValueError, match="no room"):
                self.queue.put(items)
            assert all(item.state is ItemState.PREPARING for item in items)

    @precondition(lambda self: self.of(ItemState.PREPARING))
    @rule(data=st.data(), units=st.integers(1, 500), key=st.sampled_from(["", "a", "b"]))
    def prepare(self, data: st.DataObject, units: int, key: str) -> None:
        item = data.draw(st.sampled_from(self.of(ItemState.PREPARING)))
        self.queue.prepared(item, float(units), key)
        assert (item.units, item.key, item.state) == (units, key, ItemState.WAITING)

    @precondition(lambda self: self.of(ItemState.WAITING))
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.of(ItemState.WAITING)))
        assert self.queue.start(item, self.now) == self.now - item.arrived
        assert item.state is ItemState.RUNNING
        self.gone(item)

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.inside))
        assert self.queue.withdraw(item, self.now) == self.now - item.arrived
        assert item.state is ItemState.DONE
        self.gone(item)

    def gone(self, item: Item) -> None:
        self.inside.remove(item)
        self.left += 1
        assert item not in self.queue
        with pytest.raises(ValueError, match="not in the queue"):
            self.queue.withdraw(item, self.now)

    @invariant()
    def order_of_arrival_is_kept(self) -> None:
        assert list(self.queue) == self.inside
        assert self.queue.oldest() is (self.inside[0] if self.inside else None)
        waiting = self.of(ItemState.WAITING)
        for most in (0, 1, 3, 100):
            assert self.queue.waiting(most) == waiting[:most]

    @invariant()
    def sums_are_exact(self) -> None:
        assert len(self.queue) == len(self.inside)
        assert self.queue.nbytes == sum(item.nbytes for item in self.inside)
        assert self.queue.units == sum(item.units for item in self.inside)

    @invariant()
    def limits_hold(self) -> None:
        assert len(self.queue) <= self.limit
        assert self.queue.nbytes <= self.bytes_limit

    @invariant()
    def nobody_is_lost(self) -> None:
        assert self.arrived == self.left + len(self.queue)
        assert all(item in self.queue for item in self.inside)
        assert all(i.state in {ItemState.PREPARING, ItemState.WAITING} for i in self.queue)


TestQueueMachine = QueueMachine.TestCase
