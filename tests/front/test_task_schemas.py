"""The schemas of the tasks say what the checks do: both ways, as far as a schema can say it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from service.core.errors import Refused
from service.tasks import TASKS, task_named
from service.tasks.base import Task
from service.tasks.parameter import Parameter, Reject
from service.tasks.schemas import BYTES

FACTS = {"vocab_size": 50, "max_tokens": 40}
PARAMETERS = [
    pytest.param(parameter, id=f"{task.name}-{parameter.name}")
    for task in TASKS.values()
    for parameter in task.parameters.values()
]
ENTRIES = [*TASKS.values(), task_named("generic:newer-task")]

SPLIT = {"candidate_labels"}
"""Their lone text is cut at commas: no schema says how long the parts are."""


GOOD = {"word_boxes": [["a", [0, 0, 7, 7]]]}
"""Values that nobody would hit by chance, by the parameter's name."""


def words_in(schema: Any) -> Iterator[str]:
    """Every word that a schema names."""
    if isinstance(schema, dict):
        for value in schema.values():
            yield from words_in(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from words_in(value)
    elif isinstance(schema, str):
        yield schema


def numbers_in(schema: Any) -> Iterator[int]:
    """Every bound that a schema names."""
    if isinstance(schema, dict):
        for value in schema.values():
            yield from numbers_in(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from numbers_in(value)
    elif isinstance(schema, int | float) and not isinstance(schema, bool):
        yield int(schema)


def near(schema: Any) -> st.SearchStrategy[Any]:
    """Values of every kind, most of them at the bounds and words of the schema."""
    bounds = sorted({0, 1, *numbers_in(schema)})
    integers = st.sampled_from([bound + step for bound in bounds for step in (-1, 0, 1)])
    lengths = st.sampled_from([b + step for b in bounds if b < 2000 for step in (0, 1)])
    known = st.sampled_from([*words_in(schema), "{}", "a {} b", "a, b", " ", "\t\u2003", "", "ä"])
    texts = known | lengths.map("a".__mul__) | st.text(st.characters(exclude_categories=["Cs"]))
    floats = integers.map(lambda value: value + 0.5) | st.floats(allow_nan=False)
    plain = st.none() | st.booleans() | integers | floats | texts
    lists = st.builds(lambda value, length: [value] * min(length, 300), plain, lengths)
    mixed = st.lists(plain, max_size=4)
    return plain | lists | mixed | st.dictionaries(st.text(max_size=3), plain, max_size=2)


def takes(parameter: Parameter, value: Any) -> bool:
    """Whether the check passes a value."""
    try:
        parameter.check(value, FACTS)
    except Reject:
        return False
    return True


def unsaid(parameter: Parameter, value: Any) -> bool:
    """What a schema cannot say: 1.0 is an integer to it, and the parts of one text are unknown."""
    if isinstance(value, float) and (value.is_integer() or not math.isfinite(value)):
        return True
    return value is None or (parameter.name in SPLIT and isinstance(value, str) and len(value) > 99)


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_a_parameter(parameter: Parameter) -> None:
    """What the schema of a parameter accepts the check accepts, and nothing else."""
    schema = parameter.schema(FACTS)
    Draft202012Validator.check_schema(dict(schema))
    validator = Draft202012Validator(dict(schema))
    said: set[bool] = set()

    good = st.just(GOOD[parameter.name]) if parameter.name in GOOD else st.nothing()

    @given(near(schema) | good)
    def agree(value: Any) -> None:
        if unsaid(parameter, value):
            return
        said.add(validator.is_valid(value))
        assert validator.is_valid(value) == takes(parameter, value), value

    agree()
    assert said == {True, False}, "only one side was tried"


def test_every_parameter_has_a_schema() -> None:
    """A parameter whose schema says nothing would pass for one that takes anything."""
    assert [row.id for row in PARAMETERS if not row.values[0].schema({})] == []  # type: ignore[union-attr]


def test_bounds_follow_the_model() -> None:
    """A bound that the model sets stands in the schema as soon as it is known."""
    top_k = TASKS["fill-mask"].parameters["top_k"]
    assert top_k.schema({"vocab_size": 7})["maximum"] == 7
    assert top_k.schema({})["maximum"] > 10**6
    new_tokens = TASKS["text-generation"].parameters["max_new_tokens"]
    assert new_tokens.schema({"max_tokens": 7})["maximum"] == 6


def parses(task: Task, value: Any) -> bool:
    """Whether the task takes an input."""
    try:
        task.taken(value, "/inputs")
    except Refused:
        return False
    return True


def _changed(example: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
    """The example with one member changed inside."""
    return shaped(example[name]).map(lambda new: {**example, name: new})


def shaped(example: Any) -> st.SearchStrategy[Any]:
    """An example with members gone, added or replaced by other values."""
    odd: st.SearchStrategy[Any] = st.sampled_from(
        [None, 5, True, "", " ", "x", [], {}, ["a"], {"a": "b"}, [[]]]
    )
    if isinstance(example, dict):
        changed = st.tuples(st.sampled_from([*example, "more"]), odd).map(
            lambda pair: {**example, pair[0]: pair[1]}
        )
        inside = st.one_of(*(_changed(example, name) for name in example))
        gone = st.sampled_from([*example]).map(
            lambda name: {key: part for key, part in example.items() if key != name}
        )
        return st.just(example) | odd | changed | gone | inside
    if isinstance(example, list):
        longer = st.sampled_from([0, 1, 32, 33, 64, 65, 256, 257]).map(
            lambda n: [example[0]] * n if example else []
        )
        first = shaped(example[0]).map(lambda new: [new, *example[1:]])
        return st.just(example) | odd | longer | first
    return st.just(example) | odd | st.sampled_from([500, 501, 1000, 1001]).map("a".__mul__)


CHAT = [{"role": "user", "content": "What is that?"}, {"role": "assistant", "content": "Stone."}]
PAIR = {"text": "a", "text_pair": "b"}


@pytest.mark.parametrize("task", ENTRIES, ids=lambda task: task.name)
def test_an_input(task: Task) -> None:
    """What the schema of an input accepts the task takes, and nothing else.

    What bytes in base64 look like no schema says: there the task may refuse what the schema takes.
    """
    validator = Draft202012Validator(dict(task.input_schema))
    said: set[bool] = set()

    def agree(value: Any) -> None:
        valid, parsed = validator.is_valid(value), parses(task, value)
        said.add(valid)
        assert valid == parsed or (task.media != "text" and valid), value

    @given(st.one_of(*(shaped(value) for value in (task.example, PAIR, CHAT, "a text"))))
    def change(value: Any) -> None:
        if not _uneven(value):
            agree(value)

    change()
    assert said == {True, False}, "only one side was tried"
    for value in (task.example, task.canary):
        assert validator.is_valid(value)


def _uneven(value: Any) -> bool:
    """A table whose columns differ in length: no schema says that."""
    columns = value.get("table") if isinstance(value, dict) else None
    if not isinstance(columns, dict):
        return False
    return len({len(cells) for cells in columns.values() if isinstance(cells, list)}) > 1


@pytest.mark.parametrize("task", ENTRIES, ids=lambda task: task.name)
def test_bad_examples(task: Task) -> None:
    """A bad example fits no schema, but for what only the model or a count decides."""
    validator = Draft202012Validator(dict(task.input_schema))
    fitting = [value for value, _ in task.bad_examples if validator.is_valid(value)]
    assert [value for value in fitting if parses(task, value) and task.name != "fill-mask"] == []


def test_other_media() -> None:
    """A task of another medium that says nothing more takes bytes, never an address."""
    task = Task(name="a", media="image", example="", canary="")
    assert task.input_schema == BYTES
