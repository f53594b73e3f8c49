"""The tables of text, sound and film: what passes, what is refused, which field is named."""

from __future__ import annotations

from typing import Any

import pytest

from service.core.errors import Refused
from service.tasks import TASKS
from service.tasks.base import Model, Work
from service.tasks.checks import MAX_WHOLE
from service.tasks.media import MARK

FACTS = {"max_tokens": 40}
NO_NUMBERS = ["5", True, [], {}, float("nan"), float("inf")]
NO_SWITCHES = [0, 1, "true", [], {}]
NO_WHOLES = [0, -1, 2.5, 10**30, *NO_NUMBERS]
NO_LABELS: list[Any] = [
    [], "", " , ,", {}, 5, [""], ["a", 5], ["a" * 201], ["a"] * 101, ["\ud800"],
]  # fmt: skip
NO_TEMPLATES = [
    "none", "{} and {}", "{0}", "{.__class__} {}", "{} }", "", 5, "\ud800 {}", "{}" + "a" * 500,
]  # fmt: skip
NO_FUNCTIONS = ["SOFTMAX", "", 1, True, [], {}]
LABELS = {"candidate_labels": ["a", "b"]}

BAD: dict[tuple[str, str], list[Any]] = {
    ("text-classification", "top_k"): [0, -1, 2.5, MAX_WHOLE + 1, 10**30, *NO_NUMBERS],
    ("text-classification", "function_to_apply"): ["SOFTMAX", "", 1, True, [], {}],
    ("text-classification", "truncation"): NO_SWITCHES,
    ("token-classification", "aggregation_strategy"): ["FIRST", "", 1, [], {}],
    ("token-classification", "ignore_labels"): [5, {}, [""], [5], ["a" * 65], ["\ud800"]],
    ("token-classification", "stride"): [-1, 2.5, 10**30, *NO_NUMBERS, 4],
    ("feature-extraction", "truncation"): NO_SWITCHES,
    ("feature-extraction", "pooling"): ["MEAN", "", "weighted", 1, True, [], {}],
    ("feature-extraction", "normalize"): [*NO_SWITCHES, True],  # alone it has nothing to act on
    ("zero-shot-classification", "candidate_labels"): NO_LABELS,
    ("zero-shot-classification", "hypothesis_template"): NO_TEMPLATES,
    ("zero-shot-classification", "multi_label"): NO_SWITCHES,
    ("text-generation", "max_new_tokens"): [0, -1, 40, 10**30, 2.5, *NO_NUMBERS],
    ("text-generation", "min_new_tokens"): [-1, 10**30, 2.5, *NO_NUMBERS, 257],
    ("text-generation", "temperature"): [0, 0.0, -1, 101, 1e999, *NO_NUMBERS],
    ("text-generation", "top_p"): [0, 1.01, *NO_NUMBERS],
    ("text-generation", "typical_p"): [0, 1.01, *NO_NUMBERS],
    ("text-generation", "repetition_penalty"): [0, -1, *NO_NUMBERS],
    ("text-generation", "top_k"): [0, 2.5, *NO_NUMBERS],
    ("text-generation", "do_sample"): NO_SWITCHES,
    ("text-generation", "return_full_text"): NO_SWITCHES,
    ("text-generation", "stop"): [[], "", ["a"] * 9, "a" * 65, [5], {}],
    ("text-generation", "stop_sequence"): [[], "", ["a"] * 9, "a" * 65, [5], {}],
    ("text-generation", "details"): [True, 0, "false"],
    ("table-question-answering", "sequential"): NO_SWITCHES,
    ("table-question-answering", "padding"): [True, "", "yes", 5],
    ("table-question-answering", "truncation"): ["x", 5, False],
    ("text-to-audio", "do_sample"): NO_SWITCHES,
    ("text-to-audio", "max_new_tokens"): [4097, *NO_WHOLES],
    ("text-to-audio", "temperature"): [0, -1, 101, *NO_NUMBERS],
    ("text-to-audio", "top_k"): NO_WHOLES,
    ("text-to-audio", "top_p"): [0, 1.01, *NO_NUMBERS],
    ("audio-classification", "top_k"): NO_WHOLES,
    ("audio-classification", "function_to_apply"): NO_FUNCTIONS,
    ("zero-shot-audio-classification", "candidate_labels"): NO_LABELS,
    ("zero-shot-audio-classification", "hypothesis_template"): NO_TEMPLATES,
    ("automatic-speech-recognition", "chunk_length_s"): [0, 0.5, 31, *NO_NUMBERS],
    ("automatic-speech-recognition", "stride_length_s"): [
        -1, 31, [1], [1, 2, 3], [1, "2"], [True, 1], *NO_NUMBERS, 1,  # alone it has nothing to cut
    ],
    ("automatic-speech-recognition", "return_timestamps"): ["", "words", 0, [], {}],
    ("automatic-speech-recognition", "return_language"): NO_SWITCHES,
    ("automatic-speech-recognition", "max_new_tokens"): NO_WHOLES,
    ("automatic-speech-recognition", "num_beams"): [11, *NO_WHOLES],
    ("automatic-speech-recognition", "language"): ["", " ", "a" * 33, "\ud800", 5, [], {}],
    ("automatic-speech-recognition", "task"): ["sing", "", 5, []],
    ("video-classification", "num_frames"): NO_WHOLES,
    ("video-classification", "frame_sampling_rate"): NO_WHOLES,
    ("video-classification", "top_k"): NO_WHOLES,
    ("video-classification", "function_to_apply"): NO_FUNCTIONS,
}  # fmt: skip

INPUTS = [
    ("text-classification", {"text": "a"}, "/inputs"),
    ("text-classification", {"text": "a", "text_pair": ""}, "/inputs/text_pair"),
    ("text-classification", {"text": "a", "text_pair": "b", "more": 1}, "/inputs"),
    ("text-generation", [{"role": "user"}], "/inputs/0"),
    ("text-generation", [{"role": "king", "content": "a"}], "/inputs/0/role"),
    ("text-generation", [{"role": "user", "content": 5}], "/inputs/0/content"),
    ("text-generation", [{"role": "user", "content": "a"}, "b"], "/inputs/1"),
    ("text-generation", [{"role": "user", "content": "a"}] * 257, "/inputs"),
    ("table-question-answering", {"table": {"a": ["1"]}}, "/inputs"),
    ("table-question-answering", {"table": {"a": ["1"]}, "query": "a" * 501}, "/inputs/query"),
    ("table-question-answering", {"table": {"a": []}, "query": "a"}, "/inputs/table"),
    ("table-question-answering", {"table": {"a": ["1"] * 65}, "query": "a"}, "/inputs/table"),
    ("table-question-answering", {"table": {"a": [1]}, "query": "a"}, "/inputs/table"),
    ("table-question-answering", {"table": {" ": ["1"]}, "query": "a"}, "/inputs/table"),
    ("table-question-answering", {"table": [], "query": "a"}, "/inputs/table"),
]


def pointers(task: str, parameters: Any) -> list[str]:
    """The fields that a refusal of these parameters names."""
    with pytest.raises(Refused) as caught:
        TASKS[task].parse_parameters(parameters, FACTS)
    problem = caught.value.problem
    assert problem.code == "invalid_input"
    assert all(error.message.startswith("send ") for error in problem.errors)
    str(problem).encode()
    return [error.pointer for error in problem.errors]


def test_every_parameter_has_bad_values() -> None:
    """No parameter of these tasks is left out of the table above."""
    untried = {"fill-mask", "synthetic"}  # have tests of their own
    known = {
        (task.name, name)
        for task in TASKS.values()
        if task.name not in untried and task.media != "image"
        for name in task.parameters
    }
    assert known == set(BAD)


@pytest.mark.parametrize("task,name", BAD)
def test_a_bad_value_names_its_parameter(task: str, name: str) -> None:
    """A value of a wrong type or out of range is refused, and the parameter is named."""
    needed = dict(TASKS[task].example_parameters)
    for value in BAD[task, name]:
        assert pointers(task, {**needed, name: value}) == [f"/parameters/{name}"], value


@pytest.mark.parametrize("task,value,pointer", INPUTS)
def test_a_bad_input_is_named_where_it_is(task: str, value: Any, pointer: str) -> None:
    """An input of another shape is refused at the very member that is wrong."""
    with pytest.raises(Refused) as caught:
        TASKS[task].parse_input(value, "/inputs")
    assert [error.pointer for error in caught.value.problem.errors] == [pointer]


def test_a_required_parameter_is_asked_for() -> None:
    """Without its labels a zero-shot request is refused, and says what to send."""
    for parameters in (None, {}, {"candidate_labels": None}, {"multi_label": True}):
        assert pointers("zero-shot-classification", parameters) == ["/parameters/candidate_labels"]


def test_labels_with_commas() -> None:
    """A text of labels is the list of them, as the stock call has it."""
    task = TASKS["zero-shot-classification"]
    assert task.parse_parameters({"candidate_labels": " a, b,,c "}, {}) == {
        "candidate_labels": ["a", "b", "c"]
    }


def test_work_counts_every_label_and_every_token() -> None:
    """A label makes a row of its own, a generated token a step of its own."""
    assert TASKS["zero-shot-classification"].work({"candidate_labels": ["a", "b", "c"]}) == (3, 0)
    assert TASKS["text-generation"].work({"max_new_tokens": 7}) == (1, 7)
    assert TASKS["text-generation"].work({}) == (1, 256)
    assert TASKS["text-classification"].work({}) == Work()


def test_key_holds_what_the_model_sees() -> None:
    """Requests that differ in labels or in generation never share a batch; in shape they do."""
    zero = TASKS["zero-shot-classification"]
    assert zero.key(LABELS) != zero.key({"candidate_labels": ["a", "c"]})
    assert zero.key(LABELS) == zero.key({**LABELS, "multi_label": True})
    generation = TASKS["text-generation"]
    assert generation.key({"top_k": 1}) != generation.key({"top_k": 2})
    assert generation.key({"top_k": 1}) == generation.key({"top_k": 1, "return_full_text": True})


@pytest.mark.parametrize(
    "value", ["a", MARK, f"{MARK}{{}}", f'{MARK}{{"text":"a","text_pair":"b"}}', '{"text":"a"}']
)
def test_a_text_never_passes_for_something_else(value: str) -> None:
    """A text that looks like a travelling object arrives as the text that it is."""
    task = TASKS["text-classification"]
    assert task.arrived(task.parse_input(value, "/inputs")) == value


@pytest.mark.parametrize(
    "parameters,model,pointer",
    [
        ({"stride": 19, "aggregation_strategy": "simple"}, Model(40, 2, True), ""),
        ({"stride": 20, "aggregation_strategy": "simple"}, Model(40, 2, True), "stride"),
        ({"stride": 1, "aggregation_strategy": "simple"}, Model(40, 2, False), "stride"),
        ({"aggregation_strategy": "first"}, Model(40, 2, False), "aggregation_strategy"),
        ({"aggregation_strategy": "simple"}, Model(40, 2, False), ""),
    ],
)
def test_what_only_the_model_decides(
    parameters: dict[str, Any], model: Model, pointer: str
) -> None:
    """A stride over half of a piece, or what the tokenizer cannot do, names its parameter."""
    fault = TASKS["token-classification"].fits(parameters, model)
    assert (fault.pointer if fault else "") == (f"/parameters/{pointer}" if pointer else "")


def test_shapes_of_a_lone_answer() -> None:
    """A lone text's one label is wrapped as the stock call does; the hub's API wraps once more."""
    task = TASKS["text-classification"]
    pair = task.parse_input({"text": "a", "text_pair": "b"}, "/inputs")
    assert task.lone(b"{}", "a", {}) == b"[{}]"
    assert task.lone(b"[{}]", "a", {"top_k": 1}) == b"[{}]"
    assert task.lone(b"{}", pair, {}) == b"{}"
    assert task.hub(b"{}", "a", {}) == b"[[{}]]"
    assert task.hub(b"[{}]", "a", {"top_k": 1}) == b"[[{}]]"
