"""The tasks' entries: what passes, what is refused and how it is said."""

from __future__ import annotations

from typing import Any

import pytest

from service.core.errors import Refused
from service.tasks import TASKS, Task
from service.tasks.fill_mask import FILL_MASK, MAX_TARGET_CHARS, MAX_TARGETS

FACTS = {"vocab_size": 10000}


def refusal(task: Task, parameters: Any, facts: dict[str, int] = FACTS) -> dict[str, str]:
    """Pointer and message of each refused parameter."""
    with pytest.raises(Refused) as caught:
        task.parse_parameters(parameters, facts)
    assert caught.value.problem.code == "invalid_input"
    return {error.pointer: error.message for error in caught.value.problem.errors}


@pytest.mark.parametrize("value", ["a [MASK]", " x ", "\x00", "🙂", "a\nb"])
def test_text_passes_as_it_is(value: str) -> None:
    """A text is not changed on its way in."""
    assert FILL_MASK.parse_input(value, "/inputs") == value


@pytest.mark.parametrize(
    "value", ["", " \n\t", "\u3000", None, 5, 2.5, True, [], ["a"], {}, "a \ud800 b"]
)
def test_no_text_is_refused_by_pointer(value: Any) -> None:
    """What is no text with something in it, or cannot be encoded, is refused where it stands."""
    with pytest.raises(Refused) as caught:
        FILL_MASK.parse_input(value, "/inputs/3")
    [error] = caught.value.problem.errors
    assert error.pointer == "/inputs/3"
    assert error.message.startswith("send ")
    (caught.value.problem.detail + error.message).encode()


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_examples_pass(task: Task) -> None:
    """A task's own examples pass its own check, travel and arrive as they were."""
    for value in (task.example, task.canary):
        right = value if task.media == "text" else task.parse(value, "/inputs")
        assert task.arrived(*task.taken(value, "/inputs")) == right
    for parameters in (task.example_parameters, task.canary_parameters):
        assert task.parse_parameters(dict(parameters), FACTS) == parameters


@pytest.mark.parametrize(
    "given,normal",
    [
        (None, {}),
        ({}, {}),
        ({"top_k": None, "targets": None}, {}),
        ({"top_k": 1}, {"top_k": 1}),
        ({"top_k": 10000}, {"top_k": 10000}),
        ({"targets": "dog"}, {"targets": ["dog"]}),
        ({"targets": ["a", "b"], "top_k": 2}, {"targets": ["a", "b"], "top_k": 2}),
        ({"targets": ["x"] * MAX_TARGETS}, {"targets": ["x"] * MAX_TARGETS}),
    ],
)
def test_known_parameters_pass(given: Any, normal: dict[str, Any]) -> None:
    """Known parameters in range pass, null counts as absent, one target as a list of one."""
    assert FILL_MASK.parse_parameters(given, FACTS) == normal


@pytest.mark.parametrize(
    "value", [0, -1, 10001, 10**9, 10**30, 2.5, 5.0, "5", True, False, [], {}, float("nan")]
)
@pytest.mark.parametrize("facts", [FACTS, {}], ids=["known", "unknown"])
def test_top_k_outside_its_range(value: Any, facts: dict[str, int]) -> None:
    """A top_k of a wrong type or out of range names itself and its range."""
    if not facts and value in (10001, 10**9):
        assert FILL_MASK.parse_parameters({"top_k": value}, facts) == {"top_k": value}
        return
    message = refusal(FILL_MASK, {"top_k": value}, facts)["/parameters/top_k"]
    assert "integer from 1 to" in message
    assert ("10000" in message) == bool(facts)


@pytest.mark.parametrize(
    "value",
    [
        [], {}, 5, True, "", " ", [""], [5], [None], ["a", " "], ["\ud800"],
        ["x"] * (MAX_TARGETS + 1), ["x" * (MAX_TARGET_CHARS + 1)],
    ],
    ids=repr,
)  # fmt: skip
def test_targets_that_are_no_words(value: Any) -> None:
    """Targets that are no words, too many or too long name themselves."""
    assert set(refusal(FILL_MASK, {"targets": value})) == {"/parameters/targets"}


@pytest.mark.parametrize(
    "name",
    ["num_workers", "batch_size", "tokenizer_kwargs", "model_kwargs", "device", "", "\ud800"],
)
@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_unknown_parameters_never_pass(task: Task, name: str) -> None:
    """A name that is not the task's is refused, and what was sent is not repeated."""
    for value in (6, None):
        messages = refusal(task, {name: value, **task.example_parameters})
        assert set(messages) == {"/parameters"}
        assert not name or name not in messages["/parameters"]


@pytest.mark.parametrize("value", [[], "top_k", 5, True])
def test_parameters_are_an_object(value: Any) -> None:
    """Anything but an object is refused as a whole."""
    assert set(refusal(FILL_MASK, value)) == {"/parameters"}


def test_all_faults_at_once() -> None:
    """Every parameter at fault is named in one answer."""
    found = refusal(FILL_MASK, {"top_k": 0, "targets": [], "device": "cpu"})
    assert set(found) == {"/parameters/top_k", "/parameters/targets", "/parameters"}


def test_key_leaves_post_parameters_out() -> None:
    """What only the step after the forward uses does not keep items apart."""
    assert FILL_MASK.key({"top_k": 3, "targets": ["a"]}) == FILL_MASK.key({}) == ""


def test_many_unknown_names_give_one_entry() -> None:
    """A body full of unknown names gets a short answer."""
    with pytest.raises(Refused) as caught:
        FILL_MASK.parse_parameters(dict.fromkeys(map(str, range(10_000)), 1), FACTS)
    assert len(caught.value.problem.errors) == 1
