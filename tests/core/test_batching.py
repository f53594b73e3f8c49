"""The next batch: round the oldest, by length, within budget, nobody made late, no waste."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.batching import LOOK_AHEAD, Pick, pick
from service.core.cost import Cost
from service.core.item import Item
from tests.core.items import waiting_item

NOW = 100.0
FAR = 1e9


def _cost(fixed_s: float = 0.015, unit_s: float = 2e-6, speed: float = 1.0) -> Cost:
    cost = Cost(fixed_s, unit_s, 0.25, 0.0)
    cost.speed = speed
    return cost


GPU_LIKE = _cost(0.015, 2e-6)
CPU_LIKE = _cost(0.005, 5e-4)


@dataclass(frozen=True)
class Scene:
    """Everything that one choice depends on."""

    waiting: tuple[Item, ...]
    cost: Cost
    budget: float
    most: int | None
    others: int

    def pick(self) -> Pick:
        return pick(
            self.waiting,
            NOW,
            cost=self.cost,
            budget=self.budget,
            most=self.most,
            others=self.others,
        )


items = st.builds(
    waiting_item,
    units=st.integers(1, 512).map(float),
    key=st.sampled_from(["a", "a", "a", "b"]),
    alone=st.sampled_from([False] * 9 + [True]),
    deadline=st.one_of(st.just(FAR), st.floats(NOW - 0.1, NOW + 0.6)),
)

scenes = st.builds(
    Scene,
    waiting=st.lists(items, max_size=30).map(tuple),
    cost=st.builds(
        _cost,
        fixed_s=st.sampled_from([1e-4, 0.005, 0.015]),
        unit_s=st.sampled_from([2e-6, 5e-5, 5e-4]),
        speed=st.sampled_from([0.3, 1.0, 3.0]),
    ),
    budget=st.floats(0.0, 8000.0),
    most=st.sampled_from([None, None, 1, 2, 4]),
    others=st.integers(0, 2),
)


@given(scenes)
def test_choice_is_made_of_what_waits(scene: Scene) -> None:
    """Nobody is picked twice, given up and run at once, or invented; the size told is the true."""
    choice = scene.pick()
    named = [item.id for item in (*choice.items, *choice.doomed)]
    assert len(named) == len(set(named))
    assert set(named) <= {item.id for item in scene.waiting}
    longest = max((item.units for item in choice.items), default=0.0)
    assert choice.padded == len(choice.items) * longest


@given(scenes)
def test_head_is_the_oldest_live_one(scene: Scene) -> None:
    """The line is worked from the front: who is given up stands before the head, nobody else."""
    choice = scene.pick()
    doomed = len(choice.doomed)
    assert choice.doomed == scene.waiting[:doomed]
    if choice.items:
        assert choice.items[0] is scene.waiting[doomed]
    else:
        assert doomed == len(scene.waiting)


@given(scenes)
def test_only_the_hopeless_are_given_up_and_never_the_last(scene: Scene) -> None:
    """Given up is who cannot make it even alone, and only while others wait: the last one runs."""
    choice = scene.pick()
    for item in choice.doomed:
        assert NOW + scene.cost.batch_s(item.units) > item.deadline
    if scene.waiting and scene.others == 0:
        assert choice.items
    if choice.items and (len(scene.waiting) - len(choice.doomed) > 1 or scene.others):
        head = choice.items[0]
        assert NOW + scene.cost.batch_s(head.units) <= head.deadline


@given(scenes)
def test_keys_agree_and_suspects_run_alone(scene: Scene) -> None:
    """One batch has one key; an item that must run alone has no neighbours."""
    chosen = scene.pick().items
    assert len({item.key for item in chosen}) <= 1
    if len(chosen) > 1:
        assert not any(item.alone for item in chosen)


@given(scenes)
def test_budget_and_bound_are_kept(scene: Scene) -> None:
    """Nobody joins past the padded budget or the number allowed; only a head may be larger."""
    choice = scene.pick()
    if len(choice.items) > 1:
        assert choice.padded <= scene.budget
    if scene.most is not None:
        assert len(choice.items) <= scene.most


@given(scenes)
def test_nobody_is_made_late_by_joining(scene: Scene) -> None:
    """A batch of several ends before the deadline of each of its members."""
    choice = scene.pick()
    if len(choice.items) > 1:
        end = NOW + scene.cost.batch_s(choice.padded)
        assert all(end <= item.deadline for item in choice.items)


@given(scenes)
def test_joining_never_costs_more_than_running_alone(scene: Scene) -> None:
    """Batching is at most as expensive as one by one: where it does not pay it turns itself off."""
    choice = scene.pick()
    one_by_one = sum(scene.cost.batch_s(item.units) for item in choice.items)
    assert scene.cost.batch_s(choice.padded) <= one_by_one * (1 + 1e-9) or not choice.items


@given(
    st.lists(st.integers(1, 512).map(float), min_size=2, max_size=30),
    st.sampled_from([CPU_LIKE, GPU_LIKE, _cost(0.005, 5e-5)]),
)
def test_no_beginning_of_it_does_more_in_a_second(lengths: list[float], cost: Cost) -> None:
    """The last to join never lower the units that the batch does in a second."""
    waiting = [waiting_item(units=units, deadline=FAR) for units in lengths]
    units = [item.units for item in pick(waiting, NOW, cost=cost, budget=1e6).items]
    rates = [
        sum(units[:count]) / cost.batch_s(count * max(units[:count]))
        for count in range(1, len(units) + 1)
    ]
    assert rates[-1] >= max(rates) * (1 - 1e-9)


@given(scenes)
def test_choice_leaves_nobody_out_for_no_reason(scene: Scene) -> None:
    """Of those as long as the head none that could still join is left behind."""
    choice = scene.pick()
    if not choice.items or choice.items[0].alone:
        return
    head = choice.items[0]
    longest = max(item.units for item in choice.items)
    larger = longest * (len(choice.items) + 1)
    end = NOW + scene.cost.batch_s(larger)
    full = scene.most is not None and len(choice.items) >= scene.most
    if longest != head.units or larger > scene.budget or full:
        return
    for item in scene.waiting:
        left = item not in choice.items and item not in choice.doomed
        if left and item.units == head.units and item.key == head.key and not item.alone:
            assert end > min(item.deadline, *(member.deadline for member in choice.items))


@pytest.mark.parametrize(
    "number, most, budget, expected",
    [
        (20, None, 1000.0, 10),
        (20, None, 1099.9, 10),
        (7, None, 1000.0, 7),
        (20, 4, 1000.0, 4),
        (20, 1, 1000.0, 1),
        (20, None, 50.0, 1),
        (1, None, 1000.0, 1),
        (0, None, 1000.0, 0),
    ],
)
def test_equal_lengths_fill_the_budget(
    number: int, most: int | None, budget: float, expected: int
) -> None:
    """Items of 100 units are taken up to the budget, the bound or their number, oldest first."""
    waiting = [waiting_item(units=100.0, deadline=FAR) for _ in range(number)]
    choice = pick(waiting, NOW, cost=GPU_LIKE, budget=budget, most=most)
    assert list(choice.items) == waiting[:expected]


def test_nearest_in_length_join_first() -> None:
    """With room for two more, the two nearest in length come along, whoever came earlier."""
    head, far, near, nearest = (waiting_item(units=u) for u in (100.0, 10.0, 90.0, 98.0))
    choice = pick([head, far, near, nearest], NOW, cost=GPU_LIKE, budget=300.0)
    assert choice.items == (head, nearest, near)


def test_batching_turns_itself_off_where_it_does_not_pay() -> None:
    """Where a token costs more than a batch does, a short text does not join a long one.

    The same two join where the fixed cost of a batch is what matters.
    """
    long, short = waiting_item(units=200.0), waiting_item(units=20.0)
    assert pick([long, short], NOW, cost=CPU_LIKE, budget=1e6).items == (long,)
    assert pick([long, short], NOW, cost=GPU_LIKE, budget=1e6).items == (long, short)


def test_whoever_would_lower_the_rate_waits_for_the_next_batch() -> None:
    """A text that costs as much here as alone is left to others of its length."""
    head, far, near = (waiting_item(units=units) for units in (100.0, 90.0, 92.0))
    assert pick([head, far], NOW, cost=CPU_LIKE, budget=1e6).items == (head,)
    assert pick([head, near], NOW, cost=CPU_LIKE, budget=1e6).items == (head, near)
    assert pick([head, far, near], NOW, cost=CPU_LIKE, budget=1e6).items == (head, near)


def test_head_runs_even_if_it_is_over_the_budget() -> None:
    """The budget bounds who joins, never who may run at all."""
    head, other = waiting_item(units=500.0), waiting_item(units=500.0)
    assert pick([head, other], NOW, cost=GPU_LIKE, budget=0.0).items == (head,)


def test_late_head_is_given_up_only_while_others_wait() -> None:
    """With another behind it, prepared or not, a hopeless head makes room; by itself it runs."""
    late, next_one = waiting_item(deadline=NOW), waiting_item(deadline=FAR)
    both = pick([late, next_one], NOW, cost=GPU_LIKE, budget=1e6)
    assert (both.items, both.doomed) == ((next_one,), (late,))
    preparing = pick([late], NOW, cost=GPU_LIKE, budget=1e6, others=1)
    assert (preparing.items, preparing.doomed) == ((), (late,))
    last = pick([late], NOW, cost=GPU_LIKE, budget=1e6)
    assert (last.items, last.doomed) == ((late,), ())


def test_estimator_that_is_far_too_pessimistic_still_runs_something() -> None:
    """When every deadline seems impossible the last item runs, so that the model learns."""
    waiting = [waiting_item(deadline=NOW + 1.0) for _ in range(5)]
    choice = pick(waiting, NOW, cost=_cost(speed=1e6), budget=1e6)
    assert choice.items == (waiting[-1],)


def test_tight_member_is_left_for_its_own_batch() -> None:
    """Who would be late in a larger batch does not join; the others do not suffer for it."""
    cost = _cost(0.0, 0.001)
    head, tight, easy = (
        waiting_item(units=100.0, deadline=FAR),
        waiting_item(units=100.0, deadline=NOW + 0.15),
        waiting_item(units=100.0, deadline=FAR),
    )
    assert pick([head, tight, easy], NOW, cost=cost, budget=1e6).items == (head, easy)


def test_tight_member_bounds_who_joins_after_it() -> None:
    """Once a tight member is in, nobody joins who would make it late."""
    tight, easy = waiting_item(units=100.0, deadline=NOW + 0.25), waiting_item(units=100.0)
    head = waiting_item(units=100.0)
    choice = pick([head, tight, easy], NOW, cost=_cost(0.0, 0.001), budget=1e6)
    assert choice.items == (head, tight)


def test_exactly_in_time_is_in_time() -> None:
    """An item that would end at its very deadline is neither given up nor left out."""
    cost = _cost(0.25, 0.25)
    head, other = (waiting_item(units=1.0, deadline=NOW + 0.75) for _ in range(2))
    assert pick([head, other], NOW, cost=cost, budget=1e6).items == (head, other)
    head.deadline = NOW + 0.5
    assert pick([head], NOW, cost=cost, budget=1e6, others=1).items == (head,)


def test_equal_lengths_always_pay() -> None:
    """Among equals there is no padding, so even where tokens are dear all of them join."""
    waiting = [waiting_item(units=100.0) for _ in range(5)]
    assert list(pick(waiting, NOW, cost=CPU_LIKE, budget=500.0).items) == waiting


def test_suspect_head_runs_alone_and_suspects_wait_for_their_turn() -> None:
    """A suspect takes no neighbour with it, as head or as candidate."""
    suspect, other = waiting_item(alone=True), waiting_item()
    assert pick([suspect, other], NOW, cost=GPU_LIKE, budget=1e6).items == (suspect,)
    assert pick([other, suspect], NOW, cost=GPU_LIKE, budget=1e6).items == (other,)


def test_look_ahead_bounds_the_work() -> None:
    """Items beyond the look-ahead are not considered, however well they would fit."""
    waiting = [waiting_item(units=50.0, key="other") for _ in range(LOOK_AHEAD)]
    head, beyond = waiting_item(units=50.0, key="k"), waiting_item(units=50.0, key="k")
    assert pick([head, *waiting, beyond], NOW, cost=GPU_LIKE, budget=1e6).items == (head,)
    assert pick([head, *waiting[1:], beyond], NOW, cost=GPU_LIKE, budget=1e6).items == (
        head,
        beyond,
    )
