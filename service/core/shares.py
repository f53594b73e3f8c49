"""Shares: who holds how much of the queue, and who makes room for whom.

A client is a name that the outer rooms give (a key, an address); here names are only compared.
The queue belongs to whoever comes, so a client that is alone may fill it. When one that holds less
finds it full, the one that holds most makes room with its newest requests.

==================================================  =============================================
a claim lacks                                       who makes room
==================================================  =============================================
places                                              whoever holds most places
bytes                                               whoever holds most bytes
time: the predicted wait is over its cap            whoever holds most units of work
==================================================  =============================================

Laws
- Nobody makes room for a client that would then hold as much: at each step the one that gives
  holds more than the claimant will. So no two push each other out in turn, and a client that is
  alone never loses a place.
- A request leaves whole, the newest first, and never when a part of it runs already.
- A claim that cannot be met in full takes nothing.
- What a client holds is an exact sum over its items in the queue; one that holds nothing is
  forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple

from service.core.item import Item


class Measure(IntEnum):
    """What can run out; the value is the position in :class:`Held`."""

    ITEMS = 0
    NBYTES = 1
    UNITS = 2


class Held(NamedTuple):
    """What somebody holds of the queue."""

    items: int = 0
    nbytes: int = 0
    units: float = 0.0

    def plus(self, other: Held) -> Held:
        """Both together."""
        return Held(self.items + other.items, self.nbytes + other.nbytes, self.units + other.units)

    def less(self, other: Held) -> Held:
        """Without the other."""
        return Held(self.items - other.items, self.nbytes - other.nbytes, self.units - other.units)


_NOTHING = Held()


class Shares:
    """What each client holds.

    Attributes:
        top: the most items that any one client holds.
    """

    def __init__(self) -> None:
        self.top = 0
        self._held: dict[str, Held] = {}
        self._levels: dict[int, int] = {}
        """How many clients hold exactly so many items: the top is known without a search."""

    def __len__(self) -> int:
        return len(self._held)

    def of(self, client: str) -> Held:
        """What one client holds."""
        return self._held.get(client, _NOTHING)

    def add(self, client: str, items: int, nbytes: int, units: float) -> None:
        """A client holds so much more (or less)."""
        before = self.of(client)
        after = Held(before.items + items, before.nbytes + nbytes, before.units + units)
        if after.items:
            self._held[client] = after
        else:
            self._held.pop(client, None)
        if items:
            self._move(before.items, after.items)

    def _move(self, before: int, after: int) -> None:
        levels = self._levels
        if before:
            levels[before] -= 1
            if not levels[before]:
                del levels[before]
        if after:
            levels[after] = levels.get(after, 0) + 1
            self.top = max(self.top, after)
        while self.top and self.top not in levels:
            self.top -= 1

    def has_claim(self, client: str) -> bool:
        """Whether somebody holds more than this client would with one item more."""
        return self.top > self.of(client).items + 1

    def claim(
        self,
        client: str,
        ask: Held,
        lacking: Callable[[Held], Measure | None],
        newest_first: Callable[[], Iterable[Item]],
        may_go: Callable[[object], bool],
    ) -> tuple[list[Item], Held] | None:
        """Who makes room.

        Args:
            client: who asks.
            ask: for how much.
            lacking: what is still missing when so much has been given back, ``None``: it fits.
            newest_first: the queue, from its end.
            may_go: whether an owner's request may leave (no part of it runs).

        Returns:
            One item of each request that has to leave, and what they give back together;
            ``None`` if the claim cannot be met.
        """
        mine = self.of(client).plus(ask)
        others = {name: held for name, held in self._held.items() if name != client}
        leaving: list[Item] = []
        passed: set[int] = set()
        freed = _NOTHING
        while (measure := lacking(freed)) is not None:
            giver = max(others, key=lambda name: others[name][measure], default=None)
            if giver is None or others[giver][measure] <= mine[measure]:
                return None
            newest, given = _newest(giver, newest_first(), passed, may_go)
            if newest is None:
                del others[giver]  # whatever it holds belongs to requests that run
                continue
            leaving.append(newest)
            passed.add(id(newest.owner))
            freed = freed.plus(given)
            others[giver] = others[giver].less(given)
        return leaving, freed


def _newest(
    client: str, line: Iterable[Item], passed: set[int], may_go: Callable[[object], bool]
) -> tuple[Item | None, Held]:
    """The newest request of a client that may leave, and what it holds; its items lie together."""
    newest: Item | None = None
    held = _NOTHING
    for item in line:
        if newest is not None and item.owner is not newest.owner:
            break
        if newest is None:
            if item.client != client or id(item.owner) in passed or not may_go(item.owner):
                continue
            newest = item
        held = held.plus(Held(1, item.nbytes, item.units))
    return newest, held
