"""After a failed batch: every member gets exactly one end, the culprits their own, in few runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.isolation import CanaryStep, FaultSort, Recovery, RunStep, Verdict
from service.core.item import Item, ItemState
from service.core.memory import GROW_AFTER, MemoryBudget, padded_units
from tests.core.items import running_item

OK = "ok"


@dataclass
class Model:
    """A model that fails as told: by member, or when a batch is larger than its memory."""

    canary_good: bool = True
    memory: float = float("inf")
    raises: set[int] = field(default_factory=set)
    refuses: set[int] = field(default_factory=set)

    def run(self, items: Sequence[Item]) -> tuple[FaultSort, int] | None:
        """``None`` for good, else how it failed and whose fault it is."""
        for index, item in enumerate(items):
            if item.id in self.refuses:
                return FaultSort.INPUT, index
        if padded_units(items) > self.memory:
            return FaultSort.OOM, -1
        if any(item.id in self.raises for item in items):
            return FaultSort.ERROR, -1
        return None


@dataclass
class Story:
    """What a recovery did."""

    recovery: Recovery
    ends: dict[int, list[str]]
    runs: list[tuple[int, ...]]
    canaries: int


def recover(
    model: Model,
    items: Sequence[Item],
    *,
    budget: MemoryBudget | None = None,
    between: Callable[[int], None] = lambda step: None,
) -> Story:
    """Run ``items`` once, then the recovery to its end; every end is noted."""
    first = model.run(items)
    assert first is not None, "the first run must fail"
    recovery = Recovery(items, first[0], index=first[1], budget=budget or MemoryBudget())
    story = Story(recovery, {item.id: [] for item in items}, [], 0)

    def note(verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            story.ends[verdict.item.id].append(verdict.code)
            verdict.item.move(ItemState.DONE)

    note(recovery.verdicts)
    for step_number in range(10 * len(items) + 10):
        between(step_number)
        step = recovery.next_step()
        assert recovery.next_step() == step, "a step stays the next one until it is reported"
        if step is None:
            assert recovery.open == ()
            return story
        if isinstance(step, CanaryStep):
            story.canaries += 1
            note(recovery.canary(ok=model.canary_good))
            continue
        assert recovery.running == step.items
        story.runs.append(tuple(item.id for item in step.items))
        fault = model.run(step.items)
        if fault is None:
            recovery.good(step.items)
            for item in step.items:
                story.ends[item.id].append(OK)
                item.move(ItemState.DONE)
        else:
            note(recovery.failed(step.items, *fault))
    pytest.fail("the recovery does not end")


def batch(*units: float) -> list[Item]:
    """Running items of these sizes."""
    return [running_item(units=size) for size in units]


def only(story: Story) -> dict[int, str]:
    """Each item's end; fails unless each has exactly one."""
    assert all(len(ends) == 1 for ends in story.ends.values()), story.ends
    return {item: ends[0] for item, ends in story.ends.items()}


# ---------------------------------------------------------------- errors


@given(poison=st.lists(st.booleans(), min_size=1, max_size=40).filter(any))
def test_exactly_the_poisoned_items_are_found(poison: list[bool]) -> None:
    """Whatever set of items makes the model raise, just these get model_error; others answers."""
    items = batch(*[10.0] * len(poison))
    model = Model(raises={item.id for item, bad in zip(items, poison, strict=True) if bad})
    ends = only(recover(model, items))
    expected = {i.id: "model_error" if i.id in model.raises else OK for i in items}
    assert ends == expected


@given(poison=st.lists(st.booleans(), min_size=1, max_size=40).filter(any))
def test_runs_are_bounded(poison: list[bool]) -> None:
    """A batch of n costs at most 2n - 1 runs in all, and one canary, before anything else."""
    items = batch(*[10.0] * len(poison))
    model = Model(raises={item.id for item, bad in zip(items, poison, strict=True) if bad})
    story = recover(model, items)
    assert 1 + len(story.runs) <= 2 * len(items) - 1
    assert story.recovery.runs == len(story.runs)
    assert story.canaries == 1


def test_eight_items_with_one_poisoned_take_seven_runs() -> None:
    """One culprit among eight is found by halves: two runs a level, depth first."""
    items = batch(*[10.0] * 8)
    story = recover(Model(raises={items[5].id}), items)
    place = {item.id: n for n, item in enumerate(items)}
    assert [[place[i] for i in run] for run in story.runs] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [4, 5],
        [4],
        [5],
        [6, 7],
    ]
    assert story.recovery.splits == 3


def test_lone_failure_is_judged_only_after_a_good_canary() -> None:
    """A batch of one that raises is model_error only if the canary passes; nothing is run again."""
    items = batch(10.0)
    recovery = Recovery(items, FaultSort.ERROR, budget=MemoryBudget())
    assert recovery.verdicts == []
    assert recovery.next_step() == CanaryStep()
    assert recovery.canary(ok=True) == [Verdict(items[0], "model_error")]
    assert recovery.next_step() is None
    assert not recovery.confirmed


@given(size=st.integers(1, 20))
def test_broken_model_gives_everyone_circuit_open(size: int) -> None:
    """A bad canary ends the recovery at once: nobody is called a culprit, nothing is run again."""
    items = batch(*[10.0] * size)
    story = recover(Model(raises={i.id for i in items}, canary_good=False), items)
    assert set(only(story).values()) == {"circuit_open"}
    assert story.recovery.confirmed
    assert story.runs == []


def test_nobody_is_blamed_without_having_failed_alone() -> None:
    """When all neighbours left in mid-way, the last one still gets its own run."""
    items = batch(10.0, 10.0)

    def leave(step: int) -> None:
        items[0].abandoned = step > 0

    story = recover(Model(raises={items[0].id}), items, between=leave)
    assert story.ends == {items[0].id: [], items[1].id: [OK]}


# ---------------------------------------------------------------- bad input


@given(bad=st.lists(st.booleans(), min_size=1, max_size=20).filter(any))
def test_bad_inputs_leave_and_the_rest_runs_at_once(bad: list[bool]) -> None:
    """Each bad input costs one run, no canary; neighbours stay together and are answered."""
    items = batch(*[10.0] * len(bad))
    model = Model(refuses={item.id for item, wrong in zip(items, bad, strict=True) if wrong})
    story = recover(model, items)
    ends = only(story)
    assert {i for i, end in ends.items() if end == "invalid_input"} == model.refuses
    assert {i for i, end in ends.items() if end == OK} == set(ends) - model.refuses
    assert story.canaries == 0
    assert len(story.runs) == sum(bad) - (all(bad))


def test_bad_input_keeps_its_message_and_limit() -> None:
    """What the worker says about the input reaches the verdict."""
    items = batch(10.0, 10.0)
    recovery = Recovery(
        items, FaultSort.INPUT, index=1, message="too long", limit=128, budget=MemoryBudget()
    )
    assert recovery.verdicts == [Verdict(items[1], "invalid_input", "too long", 128)]
    assert recovery.next_step() == RunStep((items[0],))
    again = recovery.failed([items[0]], FaultSort.INPUT, 0, "no mask", 0)
    assert again == [Verdict(items[0], "invalid_input", "no mask", 0)]


@pytest.mark.parametrize("index", [-1, 2, 99])
def test_input_fault_of_nobody_is_an_error(index: int) -> None:
    """An index outside the batch blames nobody: it is taken for an error of the model."""
    recovery = Recovery(batch(1.0, 1.0), FaultSort.INPUT, index=index, budget=MemoryBudget())
    assert recovery.verdicts == []
    assert recovery.next_step() == CanaryStep()


# ---------------------------------------------------------------- memory


@given(
    units=st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=24),
    share=st.floats(0.01, 0.99),
)
def test_everything_that_fits_alone_is_answered(units: list[float], share: float) -> None:
    """However small the memory, whoever fits alone gets its answer; the others are too large."""
    items = batch(*units)
    model = Model(memory=padded_units(items) * share)
    story = recover(model, items)
    ends = only(story)
    for item in items:
        if item.units <= model.memory:
            assert ends[item.id] == OK
        else:
            assert ends[item.id] in {"payload_too_large", "out_of_memory"}
    assert 1 + len(story.runs) <= max(1, 2 * len(items) - 1)
    assert story.canaries == any(end != OK for end in ends.values())


def test_halving_alone_needs_no_canary() -> None:
    """Memory that splitting solves is no evidence against the model."""
    items = batch(*[10.0] * 8)
    story = recover(Model(memory=40.0), items)
    assert set(only(story).values()) == {OK}
    assert story.canaries == 0
    assert len(story.runs) == 2


@pytest.mark.parametrize("fitted, code", [(50.0, "payload_too_large"), (200.0, "out_of_memory")])
def test_lone_memory_failure_is_named_by_what_ever_fitted(fitted: float, code: str) -> None:
    """Larger than anything that ever fitted is the client's matter, else it may work later."""
    budget = MemoryBudget()
    budget.fitted(fitted)
    story = recover(Model(memory=10.0), batch(100.0), budget=budget)
    assert list(only(story).values()) == [code]


@pytest.mark.parametrize("canary_good", [True, False])
def test_lone_memory_failure_counts_only_if_the_canary_fails(canary_good: bool) -> None:
    """The client's answer is known before the canary; the canary only informs the breaker."""
    items = batch(100.0)
    recovery = Recovery(items, FaultSort.OOM, budget=MemoryBudget())
    assert [verdict.code for verdict in recovery.verdicts] == ["payload_too_large"]
    items[0].move(ItemState.DONE)
    assert recovery.next_step() == CanaryStep()
    assert recovery.canary(ok=canary_good) == []
    assert recovery.confirmed is not canary_good
    assert recovery.next_step() is None


def test_memory_that_is_always_out_ends() -> None:
    """A model that never fits anything is asked at most 15 times about a batch of eight."""
    items = batch(*[10.0] * 8)
    story = recover(Model(memory=0.0), items)
    assert 1 + len(story.runs) == 15
    assert set(only(story).values()) == {"payload_too_large"}


def test_memory_lost_altogether_stops_at_the_canary() -> None:
    """When not even the canary fits, the others are not tried one by one."""
    items = batch(*[10.0] * 8)
    story = recover(Model(memory=0.0, canary_good=False), items)
    ends = only(story)
    assert Counter(ends.values()) == {"payload_too_large": 1, "circuit_open": 7}
    assert story.recovery.confirmed
    assert len(story.runs) == 3


def test_memory_failures_shrink_the_budget() -> None:
    """The budget learns from every run that did not fit, and what fitted is remembered."""
    budget = MemoryBudget()
    budget.limit(100.0)
    recover(Model(memory=30.0), batch(*[10.0] * 8), budget=budget)
    assert budget.limit(100.0) == 20.0
    assert budget.largest_good == 20.0


@pytest.mark.parametrize("neighbours", [0, 1, 7])
def test_one_item_that_never_fits_costs_its_neighbours_nothing(neighbours: int) -> None:
    """Sent again and again, it leaves the budget of everybody else as it was."""
    budget = MemoryBudget()
    for _ in range(20):
        budget.limit(1000.0)
        story = recover(Model(memory=30.0), batch(31.0, *[1.0] * neighbours), budget=budget)
        assert Counter(only(story).values())[OK] == neighbours
    assert budget.limit(1000.0) == 1000.0


@pytest.mark.parametrize("neighbours", [0, 7])
def test_one_item_that_never_fits_does_not_keep_the_batches_small(neighbours: int) -> None:
    """Sent once in forty batches while memory is short, the budget comes back all the same."""
    budget = MemoryBudget()
    budget.limit(1000.0)
    budget.failed(1000.0)
    for _ in range(30):
        for _ in range(GROW_AFTER - 10):
            budget.good(20.0)
        recover(Model(memory=30.0), batch(31.0, *[1.0] * neighbours), budget=budget)
    assert budget.limit(2000.0) == 2000.0


@pytest.mark.parametrize("memory, canary_good", [(0.0, True), (0.0, False), (9.0, True)])
def test_memory_that_is_gone_is_nobodys_own_fault(memory: float, canary_good: bool) -> None:
    """Where several fail alone, or the canary does, the budget stays small."""
    budget = MemoryBudget()
    budget.limit(100.0)
    items = batch(10.0, 10.0, 1.0, 1.0)
    recover(Model(memory=memory, canary_good=canary_good), items, budget=budget)
    assert budget.limit(100.0) <= 10.0


def test_a_failure_of_somebody_else_meanwhile_stays() -> None:
    """The budget is shared by all workers: what another one learned is not undone."""
    budget = MemoryBudget()
    budget.limit(100.0)

    def between(step: int) -> None:
        if step == 1:
            budget.failed(8.0)

    recover(Model(memory=30.0), batch(31.0, 1.0), budget=budget, between=between)
    assert budget.limit(100.0) == 4.0


# ---------------------------------------------------------------- everything at once


@st.composite
def troubles(draw: st.DrawFn) -> tuple[list[Item], Model, dict[int, list[int]]]:
    """A batch, a model that fails on it at first, and who leaves before which step."""
    kinds = draw(st.lists(st.sampled_from(["good", "raises", "refuses"]), min_size=1, max_size=16))
    items = [running_item(units=draw(st.floats(1.0, 100.0))) for _ in kinds]
    model = Model(
        canary_good=draw(st.booleans()),
        memory=draw(st.sampled_from([float("inf"), 20.0, 200.0, 700.0])),
        raises={i.id for i, kind in zip(items, kinds, strict=True) if kind == "raises"},
        refuses={i.id for i, kind in zip(items, kinds, strict=True) if kind == "refuses"},
    )
    if model.run(items) is None:
        model.raises.add(items[0].id)
    leaves = draw(
        st.dictionaries(
            st.integers(0, 2 * len(items)),
            st.lists(st.integers(0, len(items) - 1), max_size=3),
            max_size=4,
        )
    )
    return items, model, leaves


@given(troubles())
def test_every_member_gets_exactly_one_end(
    trouble: tuple[list[Item], Model, dict[int, list[int]]],
) -> None:
    """In any mixture of faults, with clients leaving at any step, ends are conserved.

    Who stays gets exactly one end, and the right one; who left gets at most one and is never run
    afterwards; runs and canaries are bounded.
    """
    items, model, leaves = trouble
    ran: list[tuple[int, ...]] = []
    left: dict[int, int] = {}
    """Who left, and how many runs there had been by then."""

    class Noting(Model):
        def run(self, items: Sequence[Item]) -> tuple[FaultSort, int] | None:
            ran.append(tuple(item.id for item in items))
            return super().run(items)

    def leave(step: int) -> None:
        for index in leaves.get(step, []):
            items[index].abandoned = True
            left.setdefault(items[index].id, len(ran))

    noting = Noting(model.canary_good, model.memory, model.raises, model.refuses)
    story = recover(noting, items, between=leave)

    assert 1 + len(story.runs) <= max(1, 2 * len(items) - 1)
    assert story.canaries <= 1
    assert story.recovery.confirmed == (story.canaries == 1 and not model.canary_good)
    for item in items:
        if item.id in left:
            assert len(story.ends[item.id]) <= 1
            assert all(item.id not in run for run in ran[left[item.id] :])
        else:
            [end] = story.ends[item.id]
            assert _deserved(item, end, model)


def _deserved(item: Item, end: str, model: Model) -> bool:
    """Whether this end may befall this item in this model."""
    fits = item.units <= model.memory
    return {
        OK: fits and item.id not in model.raises | model.refuses,
        "model_error": item.id in model.raises and model.canary_good,
        "invalid_input": item.id in model.refuses,
        "payload_too_large": not fits,
        "out_of_memory": not fits,
        "circuit_open": not model.canary_good,
    }[end]


@given(size=st.integers(1, 8), done=st.integers(0, 7))
def test_done_members_are_skipped(size: int, done: int) -> None:
    """A member that already has its end is neither run nor judged again."""
    items = batch(*[10.0] * size)
    gone = items[min(done, size - 1)]
    recovery = Recovery(items, FaultSort.OOM, budget=MemoryBudget())
    gone.state = ItemState.DONE
    while isinstance(step := recovery.next_step(), RunStep):
        assert gone not in step.items
        recovery.good(step.items)
    assert gone not in recovery.open


def test_canary_runs_even_if_every_client_left() -> None:
    """A model slower than its clients' patience still gets its breaker opened."""
    items = batch(10.0, 10.0)
    for item in items:
        item.abandoned = True
    recovery = Recovery(items, FaultSort.ERROR, budget=MemoryBudget())
    assert recovery.next_step() == CanaryStep()
    assert recovery.canary(ok=False) == []
    assert recovery.confirmed


@pytest.mark.parametrize("moment", ["before", "canary", "running"])
def test_abort_ends_everyone_who_is_open(moment: str) -> None:
    """When the worker is lost, whatever the step, each open member gets that end, once."""
    items = batch(*[10.0] * 4)
    sort = FaultSort.OOM if moment == "running" else FaultSort.ERROR
    recovery = Recovery(items, sort, budget=MemoryBudget())
    if moment != "before":
        recovery.next_step()
    assert set(recovery.open) == set(items)
    verdicts = recovery.abort("worker_lost")
    assert {verdict.item.id for verdict in verdicts} == {item.id for item in items}
    assert {verdict.code for verdict in verdicts} == {"worker_lost"}
    assert recovery.next_step() is None
    assert recovery.open == ()


def test_reports_of_other_steps_are_refused() -> None:
    """A report must be about the running step; equal values in other objects are not the same."""
    items = batch(10.0, 10.0)
    recovery = Recovery(items, FaultSort.OOM, budget=MemoryBudget())
    with pytest.raises(ValueError, match="no canary"):
        recovery.canary(ok=True)
    with pytest.raises(ValueError, match="not running"):
        recovery.good(items[:1])
    recovery.next_step()
    with pytest.raises(ValueError, match="not running"):
        recovery.good(items)
    with pytest.raises(ValueError, match="not running"):
        recovery.failed(batch(10.0), FaultSort.ERROR)
    recovery.good(items[:1])
    with pytest.raises(ValueError, match="not running"):
        recovery.good(items[:1])


def test_empty_batch_is_no_batch() -> None:
    """Nothing cannot have failed."""
    with pytest.raises(ValueError, match="not running"):
        Recovery([], FaultSort.ERROR, budget=MemoryBudget())
