"""Items take legal steps only, and are the same only if they are the same object."""

from __future__ import annotations

import copy
from itertools import product

import pytest

from service.core.item import LEGAL, ItemState
from tests.core.items import new_item


@pytest.mark.parametrize("before, after", [*product(ItemState, ItemState)])
def test_items_take_legal_steps_only(before: ItemState, after: ItemState) -> None:
    """Each of the sixteen steps is taken, or raises and changes nothing."""
    item = new_item(state=before)
    if (before, after) in LEGAL:
        item.move(after)
        assert item.state is after
    else:
        with pytest.raises(ValueError, match="cannot go from"):
            item.move(after)
        assert item.state is before


def test_done_is_the_end_and_is_always_in_reach() -> None:
    """Nothing leaves DONE, and every other state can end there: no item is stuck for ever."""
    assert not [step for step in LEGAL if step[0] is ItemState.DONE]
    for state in set(ItemState) - {ItemState.DONE}:
        assert (state, ItemState.DONE) in LEGAL


def test_only_waiting_items_can_run() -> None:
    """An item that is not prepared is never in a batch, and none runs twice."""
    assert {before for before, after in LEGAL if after is ItemState.RUNNING} == {ItemState.WAITING}


def test_equal_values_are_not_the_same_item() -> None:
    """Two clients may send the same text: their items are never taken for each other."""
    item = new_item()
    twin = copy.copy(item)
    assert item != twin
    assert len({item, twin}) == 2
