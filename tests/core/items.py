"""Items for tests of the core: everything has a plain value unless the test names it."""

from __future__ import annotations

from itertools import count
from typing import Any

from service.core.item import Item, ItemState

_ids = count(1)


def new_item(*, state: ItemState = ItemState.PREPARING, **given: Any) -> Item:
    """A fresh item in ``state``."""
    values: dict[str, Any] = {
        "id": next(_ids),
        "owner": None,
        "index": 0,
        "inputs": "a text",
        "parameters": b"{}",
        "nbytes": 6,
        "units": 10.0,
        "deadline": 1e9,
        "arrived": 0.0,
    }
    return Item(**(values | given), state=state)


def waiting_item(**given: Any) -> Item:
    """An item that is prepared and waits to be picked."""
    return new_item(state=ItemState.WAITING, **given)


def running_item(**given: Any) -> Item:
    """An item that is in a batch."""
    return new_item(state=ItemState.RUNNING, **given)
