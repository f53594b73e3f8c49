"""What passes as an image, and the parameters of the image tasks: types, ranges, pointers."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from service.core.errors import Refused
from service.tasks import TASKS, Task
from service.tasks.base import Model, Work
from service.tasks.checks import MAX_WHOLE
from service.tasks.examples import HARBOUR
from service.tasks.media import MARK, a_medium, an_image, packed, unpacked

IMAGE_TASKS = [task for task in TASKS.values() if task.media == "image"]
PLAIN = HARBOUR.partition(",")[2]
BYTES = base64.b64decode(PLAIN)

NO_NUMBERS: list[Any] = ["5", "", True, False, [], {}, float("nan")]
NO_SWITCHES: list[Any] = [0, 1, "true", "", [], {}]
NO_SHARES: list[Any] = [-0.1, 1.1, 1e999, *NO_NUMBERS]
NO_LABELS: list[Any] = [
    [], "", " , ,", {}, 5, [""], ["a", 5], ["a" * 201], ["a"] * 101, ["\ud800"],
]  # fmt: skip
NO_BOXES: list[Any] = [
    [], {}, "a", [["a"]], [["a", [0, 0, 1]]], [["", [0, 0, 1, 1]]], [["a", [0, 0, 1, 1001]]],
    [["a", [5, 0, 1, 1]]], [["a", [0, 5, 1, 1]]], [["a", [0, 0, 1.0, 1]]], [["a", [0, 0, True, 1]]],
    [["a" * 201, [0, 0, 1, 1]]], [["a", [0, 0, 1, 1]]] * 4097, [[5, [0, 0, 1, 1]]],
]  # fmt: skip

BAD: dict[tuple[str, str], list[Any]] = {
    ("image-classification", "top_k"): [0, -1, 2.5, MAX_WHOLE + 1, 10**30, *NO_NUMBERS],
    ("image-classification", "function_to_apply"): ["SOFTMAX", "", 1, True, [], {}],
    ("image-feature-extraction", "pool"): NO_SWITCHES,
    ("image-segmentation", "subtask"): ["", "all", 1, [], {}],
    ("image-segmentation", "threshold"): NO_SHARES,
    ("image-segmentation", "mask_threshold"): NO_SHARES,
    ("image-segmentation", "overlap_mask_area_threshold"): NO_SHARES,
    ("object-detection", "threshold"): NO_SHARES,
    ("zero-shot-image-classification", "candidate_labels"): NO_LABELS,
    ("zero-shot-image-classification", "hypothesis_template"): ["none", "{0}", "{} }", "", 5],
    ("zero-shot-object-detection", "candidate_labels"): NO_LABELS,
    ("zero-shot-object-detection", "threshold"): NO_SHARES,
    ("zero-shot-object-detection", "top_k"): [0, 2.5, *NO_NUMBERS],
    ("keypoint-matching", "threshold"): NO_SHARES,
    ("document-question-answering", "word_boxes"): NO_BOXES,
    ("document-question-answering", "padding"): [True, "", "yes", 5],
    ("document-question-answering", "doc_stride"): [-1, 2.5, *NO_NUMBERS],
    ("document-question-answering", "max_seq_len"): [0, 15, 2.5, *NO_NUMBERS],
    ("document-question-answering", "top_k"): [0, 101, 2.5, *NO_NUMBERS],
    ("document-question-answering", "max_answer_len"): [0, 101, 2.5, *NO_NUMBERS],
    ("document-question-answering", "handle_impossible_answer"): NO_SWITCHES,
    ("image-text-to-text", "max_new_tokens"): [0, -1, 4097, 2.5, *NO_NUMBERS],
    ("image-text-to-text", "do_sample"): NO_SWITCHES,
    ("image-text-to-text", "temperature"): [0, -1, 101, 1e999, *NO_NUMBERS],
    ("image-text-to-text", "top_k"): [0, 2.5, *NO_NUMBERS],
    ("image-text-to-text", "top_p"): [0, 1.01, *NO_NUMBERS],
    ("image-text-to-text", "repetition_penalty"): [0, -1, *NO_NUMBERS],
    ("image-text-to-text", "stop_sequence"): [[], "", ["a"] * 9, "a" * 65, [5], {}],
    ("image-text-to-text", "return_full_text"): NO_SWITCHES,
}


def _said(*parts: Any, role: str = "user") -> Any:
    return [{"role": role, "content": list(parts)}]


_URL = "http://localhost/a.png"
INPUTS: list[tuple[str, Any, str]] = [
    ("document-question-answering", {"question": "a", "image": _URL}, "/inputs/image"),
    ("document-question-answering", {"question": 5, "image": HARBOUR}, "/inputs/question"),
    ("document-question-answering", {"question": "a", "lang": "en"}, "/inputs"),
    ("document-question-answering", {"question": "a", "word_boxes": [[]]}, "/inputs/word_boxes"),
    ("document-question-answering", {"question": "a" * 501}, "/inputs/question"),
    ("keypoint-matching", [HARBOUR, _URL], "/inputs/1"),
    ("keypoint-matching", [5, HARBOUR], "/inputs/0"),
    ("keypoint-matching", {"images": [HARBOUR, HARBOUR]}, "/inputs"),
    ("image-text-to-text", HARBOUR, "/inputs"),
    ("image-text-to-text", {"text": "a", "image": _URL}, "/inputs/image"),
    ("image-text-to-text", {"text": "a", "images": [HARBOUR, _URL]}, "/inputs/images/1"),
    ("image-text-to-text", {"text": "a", "images": [HARBOUR] * 17}, "/inputs/images"),
    ("image-text-to-text", {"text": 5, "image": HARBOUR}, "/inputs/text"),
    ("image-text-to-text", _said({"type": "image", "url": _URL}), "/inputs/0/content/0"),
    ("image-text-to-text", _said({"type": "image", "image": _URL}), "/inputs/0/content/0/image"),
    ("image-text-to-text", _said({"type": "text"}), "/inputs/0/content/0"),
    ("image-text-to-text", _said({"type": "text", "text": ""}), "/inputs/0/content/0/text"),
    ("image-text-to-text", _said("a"), "/inputs/0/content/0"),
    ("image-text-to-text", _said(), "/inputs/0/content"),
    ("image-text-to-text", _said({"type": "text", "text": "a"}, role="king"), "/inputs/0/role"),
    ("image-text-to-text", [*_said({"type": "text", "text": "a"}), 5], "/inputs/1"),
    ("image-text-to-text", [*_said({"type": "text", "text": "a"})] * 257, "/inputs"),
    (
        "image-text-to-text",
        [*_said(*[{"type": "image", "image": HARBOUR}] * 9)] * 2,
        "/inputs",
    ),
]


@pytest.mark.parametrize(
    "value",
    [
        BYTES,
        HARBOUR,
        PLAIN,
        "\n".join(PLAIN[i : i + 76] for i in range(0, len(PLAIN), 76)) + "\n",
        f"data:;base64,{PLAIN}",
        f"data:application/octet-stream;base64,{PLAIN}",
        f"DATA:Image/X-Anything;name=a.png;Base64,{PLAIN}",
    ],
)
def test_bytes_come_in_three_ways(value: Any) -> None:
    """The body's bytes, base64 (also in lines) and a data: URL are the same image."""
    assert an_image(value, "/inputs") == BYTES


NO_IMAGES: list[Any] = [
    b"", "", " ", "\n", None, 5, True, [], {}, [HARBOUR], "a", "a b", "#", "naïve", "\ud800",
    PLAIN[:-1], f"{PLAIN}=", f"{PLAIN}{PLAIN[:-2]}é", "data:", "data:image/png", "data:,a",
    f"data:image/png,{PLAIN}", f"data:text/html;base64,{PLAIN}",
    f"data:audio/wav;base64,{PLAIN}", "data:image/png;base64,", "data:image/png;base64,%41",
    f"data:image/png;base64,{HARBOUR}", f"data:http://a/b.png;base64,{PLAIN}",
    "http://a/b.png", "file:///a/b.png", "/a/b.png", "b.png", "~/b.png", "s3://a/b",
    f"http://a/b.png;base64,{PLAIN}",
]  # fmt: skip


def test_anything_else_is_no_image() -> None:
    """What is no bytes is refused by its pointer; the message says what to send, not what came."""
    for value in NO_IMAGES:
        with pytest.raises(Refused) as caught:
            a_medium(value, "/inputs/3", "image")
        [error] = caught.value.problem.errors
        assert error.pointer == "/inputs/3", value
        assert error.message.startswith("send the bytes of the image")


@pytest.mark.parametrize("task", IMAGE_TASKS, ids=lambda task: task.name)
def test_bytes_travel_beside_the_text(task: Task) -> None:
    """An input arrives as it was parsed, and its text holds nothing of the bytes."""
    for value in (task.example, task.canary):
        parsed = task.parse(value, "")
        text, media = packed(parsed)
        assert unpacked(text, media) == parsed
        assert PLAIN[:40] not in text
        assert BYTES[:8] in media
        assert len(text) < 1000


def test_a_text_never_names_bytes() -> None:
    """A question that looks like what stands for bytes arrives as the question that it is."""
    question = json.dumps({MARK: [0, 4]})
    task = TASKS["document-question-answering"]
    for text in (question, f"{MARK}{question}", MARK):
        value = {"question": f"a {text}", "image": HARBOUR}
        arrived = task.arrived(*task.taken(value, "/inputs"))
        assert arrived == {"question": f"a {text}", "image": BYTES}


def test_an_image_counts_as_one() -> None:
    """Costs are guessed from the number of images, of a text from its characters."""
    assert TASKS["image-classification"].size("", BYTES) == 1
    assert TASKS["fill-mask"].size("four", b"") == 4
    assert TASKS["zero-shot-object-detection"].work({"candidate_labels": ["a", "b"]}) == Work(2)
    assert TASKS["image-text-to-text"].work({"max_new_tokens": 7}) == Work(1, 7)
    assert TASKS["image-text-to-text"].work({}) == Work(1, 256)


def test_every_parameter_has_bad_values() -> None:
    """No parameter of the image tasks is left out of the table above."""
    assert {(task.name, name) for task in IMAGE_TASKS for name in task.parameters} == set(BAD)


@pytest.mark.parametrize("task,name", BAD)
def test_a_bad_value_names_its_parameter(task: str, name: str) -> None:
    """A value of a wrong type or out of range is refused, and the parameter is named."""
    for value in BAD[task, name]:
        given = {**TASKS[task].example_parameters, name: value}
        with pytest.raises(Refused) as caught:
            TASKS[task].parse_parameters(given, {})
        [error] = caught.value.problem.errors
        assert error.pointer == f"/parameters/{name}", value
        assert error.message.startswith("send ")


@pytest.mark.parametrize("task,value,pointer", INPUTS)
def test_a_bad_input_is_named_where_it_is(task: str, value: Any, pointer: str) -> None:
    """An input of another shape is refused at the very member that is wrong."""
    with pytest.raises(Refused) as caught:
        TASKS[task].taken(value, "/inputs")
    assert [error.pointer for error in caught.value.problem.errors] == [pointer]


@pytest.mark.parametrize(
    "task,value,is_one",
    [
        ("image-classification", HARBOUR, True),
        ("image-classification", [HARBOUR], False),
        ("keypoint-matching", [HARBOUR, HARBOUR], True),
        ("keypoint-matching", [[HARBOUR, HARBOUR]], False),
        ("image-text-to-text", _said(), True),
        ("image-text-to-text", [_said()], False),
        ("image-text-to-text", [{"text": "a", "images": []}], False),
        ("image-text-to-text", {"text": "a", "images": []}, True),
    ],
)
def test_one_input_or_a_list(task: str, value: Any, is_one: bool) -> None:
    """A pair of images and a chat are lists, and one input; lists of them are several."""
    assert TASKS[task].is_one(value) is is_one


def test_what_only_the_model_decides() -> None:
    """A subtask or a pooled vector that a model does not have names its parameter."""
    able = Model(0, 0, True, frozenset({"post_process_semantic_segmentation", "pooler_output"}))
    none = Model(0, 0, True)
    segmentation, features = TASKS["image-segmentation"], TASKS["image-feature-extraction"]
    assert segmentation.fits({"subtask": "semantic"}, able) is None
    assert segmentation.fits({}, none) is None
    fault = segmentation.fits({"subtask": "panoptic"}, able)
    assert fault is not None
    assert (fault.pointer, "semantic" in fault.message) == ("/parameters/subtask", True)
    assert features.fits({"pool": True}, able) is None
    assert features.fits({"pool": False}, none) is None
    fault = features.fits({"pool": True}, none)
    assert fault is not None
    assert fault.pointer == "/parameters/pool"


def test_generation_parameters_stand_together() -> None:
    """The stock call of a model that writes takes them in one object."""
    task = TASKS["image-text-to-text"]
    assert task.call({"top_k": 3, "max_new_tokens": 2, "do_sample": True}) == {
        "max_new_tokens": 2,
        "generate_kwargs": {"top_k": 3, "do_sample": True},
    }
    assert task.call({"max_new_tokens": 2}) == {"max_new_tokens": 2}
