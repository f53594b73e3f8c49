"""The bounded queue: the only one there is, checked on every arrival.

Laws
- The places and bytes taken never pass their limits; n items get n places or none.
- Iteration is in the order of arrival; an item that is prepared or skipped keeps its place.
- ``units`` and ``nbytes`` are exact sums over the items inside, after any sequence of calls
  (sizes are whole numbers of units, so floats add up).
- A place comes back exactly once, when the item leaves for whatever reason.
- Every way out returns the item's wait, so that nobody can forget to observe it.
- ``shares`` knows what each client holds, at every moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from service.core.item import Item, ItemState
from service.core.shares import Held, Measure, Shares


class BoundedQueue:
    """Items that are PREPARING or WAITING, in the order of arrival.

    Args:
        limit: most items.
        bytes_limit: most bytes over all items.

    Attributes:
        shares: what each client holds.
    """

    def __init__(self, limit: int, bytes_limit: int) -> None:
        self.limit = limit
        self.bytes_limit = bytes_limit
        self.nbytes = 0
        self.units = 0.0
        self.shares = Shares()
        self._items: dict[int, Item] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: Item) -> bool:
        return self._items.get(item.id) is item

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())

    def has_room(self, items: int, nbytes: int) -> bool:
        """Whether that many items of that many bytes in all would fit now."""
        return self.lacks(items, nbytes) is None

    def lacks(self, items: int, nbytes: int) -> Measure | None:
        """What that many items of that many bytes would find too little of, ``None``: they fit."""
        if len(self._items) + items > self.limit:
            return Measure.ITEMS
        return Measure.NBYTES if self.nbytes + nbytes > self.bytes_limit else None

    def claim(
        self,
        client: str,
        ask: Held,
        lacking: Callable[[Held], Measure | None],
        may_go: Callable[[object], bool],
    ) -> tuple[list[Item], Held] | None:
        """Who makes room for a client (``shares`` says how); nothing has left yet."""
        return self.shares.claim(
            client, ask, lacking, lambda: reversed(self._items.values()), may_go
        )

    def put(self, items: Sequence[Item]) -> None:
        """Take places for all of ``items``, at the end of the line.

        Raises:
            ValueError: they do not all fit, or one is already inside or not new; nothing changed.
        """
        if not self.has_room(len(items), sum(item.nbytes for item in items)):
            raise ValueError("the queue has no room for these items")
        twice = len({item.id for item in items}) < len(items)
        known = any(item.id in self._items for item in items)
        if twice or known or any(item.state is not ItemState.PREPARING for item in items):
            raise ValueError("only new items can be put")
        for item in items:
            self._items[item.id] = item
            self.nbytes += item.nbytes
            self.units += item.units
            self.shares.add(item.client, 1, item.nbytes, item.units)

    def prepared(self, item: Item, units: float, key: str) -> None:
        """An item is tokenised: from PREPARING to WAITING, with its true size and batch key.

        Raises:
            ValueError: the item is not inside, or not PREPARING.
        """
        if item not in self:
            raise ValueError("the item is not in the queue")
        item.move(ItemState.WAITING)
        self.units += units - item.units
        self.shares.add(item.client, 0, 0, units - item.units)
        item.units, item.key = units, key

    def waiting(self, most: int) -> list[Item]:
        """The oldest WAITING items, at most ``most``, in the order of arrival."""
        ready = (item for item in self._items.values() if item.state is ItemState.WAITING)
        return list(islice(ready, most))

    def oldest(self) -> Item | None:
        """The item that came first, whatever its state."""
        return next(iter(self._items.values()), None)

    def start(self, item: Item, now: float) -> float:
        """An item goes into a batch and leaves the queue; returns the seconds it waited.

        Raises:
            ValueError: the item is not inside, or not WAITING.
        """
        return self._leave(item, ItemState.RUNNING, now)

    def withdraw(self, item: Item, now: float) -> float:
        """An item leaves without being run (late, gone, refused); returns the seconds it waited.

        Raises:
            ValueError: the item is not inside.
        """
        return self._leave(item, ItemState.DONE, now)

    def _leave(self, item: Item, to: ItemState, now: float) -> float:
        if item not in self:
            raise ValueError("the item is not in the queue")
        item.move(to)
        del self._items[item.id]
        self.nbytes -= item.nbytes
        self.units = self.units - item.units if self._items else 0.0
        self.shares.add(item.client, -1, -item.nbytes, -item.units)
        if to is ItemState.RUNNING:
            item.started = now
        return max(0.0, now - item.arrived)
