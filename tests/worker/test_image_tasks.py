"""Every image task answers as the stock pipeline does, alone, in lists and in mixed batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.utils import logging

from service.core.errors import Refused
from service.tasks import TASKS
from service.worker.pipelines import load_pipeline
from service.worker.wire import Prepare, Probe, Unfit
from tests.trap import Trap
from tests.worker.images import MAKES, PLAIN
from tests.worker.line import inside
from tests.worker.named import leave_untouched
from tests.worker.served import Case, Served, same
from tests.worker.small_image_models import SECOND, save_image_model

LABELS = {"candidate_labels": ["the harbour", "wall", "a fisherman"]}
BOXES = [
    ["harbour", [0, 0, 100, 20]], ["wall", [110, 0, 200, 20]], ["anna", [0, 30, 90, 50]],
    ["fisherman", [100, 30, 300, 50]], ["hamburg", [5, 60, 1000, 1000]], ["noon", [0, 0, 0, 0]],
]  # fmt: skip
GREEDY = {"do_sample": False, "max_new_tokens": 5}


def asked(text: str, *images: str) -> Any:
    """A chat of one message."""
    parts = [*({"type": "image", "image": image} for image in images), {"type": "text"}]
    parts[-1]["text"] = text
    return [{"role": "user", "content": parts}]


def document(question: str, words: int = 6, **more: Any) -> Any:
    """A question about so many words."""
    boxes = [BOXES[number % len(BOXES)] for number in range(words)]
    return {"question": question, "word_boxes": boxes, **more}


_SEGMENTS = {"threshold": 0.0, "mask_threshold": 0.3, "overlap_mask_area_threshold": 0.0}

CASES: dict[str, list[Case]] = {
    "image-classification": [
        *[(image, {}) for image in MAKES + PLAIN],
        *[(image, {"top_k": 2}) for image in MAKES[:3]],
        (MAKES[0], {"top_k": 100}),
        (MAKES[0], {"function_to_apply": "sigmoid"}),
        (MAKES[1], {"function_to_apply": "none", "top_k": 1}),
    ],
    "image-feature-extraction": [
        *[(image, {}) for image in MAKES + PLAIN],
        (MAKES[1], {"pool": True}),
        (MAKES[2], {"pool": False}),
    ],
    "object-detection": [
        *[(image, {}) for image in MAKES[:4]],
        *[(image, {"threshold": 0.1}) for image in MAKES + PLAIN],
        (MAKES[2], {"threshold": 0}),
        (MAKES[3], {"threshold": 1}),
    ],
    "image-segmentation": [
        *[(image, {}) for image in MAKES[:4]],
        *[(image, _SEGMENTS) for image in MAKES + PLAIN],
        *[(image, {"subtask": "semantic"}) for image in PLAIN[:3]],
        (MAKES[2], {**_SEGMENTS, "subtask": "instance"}),
        (MAKES[2], {**_SEGMENTS, "subtask": "panoptic"}),
    ],
    "semantic": [*[(image, {}) for image in MAKES[:6] + PLAIN[:3]]],
    "depth-estimation": [*[(image, {}) for image in MAKES + PLAIN]],
    "zero-shot-image-classification": [
        *[(image, LABELS) for image in MAKES + PLAIN],
        (MAKES[0], {"candidate_labels": ["stone"]}),
        (MAKES[0], {**LABELS, "hypothesis_template": "the {}"}),
    ],
    "zero-shot-object-detection": [
        *[(image, {**LABELS, "threshold": 0.6}) for image in MAKES[:6] + PLAIN],
        (MAKES[0], LABELS),
        (MAKES[1], {**LABELS, "top_k": 2}),
        (MAKES[2], {"candidate_labels": ["stone"], "threshold": 0}),
    ],
    "keypoint-matching": [
        *[([one, other], {}) for one, other in pairwise(MAKES)],
        ([PLAIN[0], PLAIN[0]], {}),
        ([PLAIN[0], PLAIN[1]], {"threshold": 0.05}),
    ],
    "document-question-answering": [
        *[(document("what wall", words), {}) for words in range(1, 7)],
        *[(document("who lives in hamburg", words), {}) for words in (6, 6, 30, 60)],
        (document("anna", 6, image=MAKES[0]), {}),
        (document("what wall"), {"top_k": 3}),
        (document("what wall"), {"max_answer_len": 1, "handle_impossible_answer": True}),
        (document("what wall", 60), {"doc_stride": 2, "max_seq_len": 20, "top_k": 5}),
        (document("what wall", 3), {"padding": "max_length"}),
        ({"question": "a wall"}, {"word_boxes": BOXES[:4]}),
    ],
    "image-text-to-text": [
        *[({"images": [image], "text": "<image> the wall"}, GREEDY) for image in MAKES[:5]],
        ({"images": MAKES[:2], "text": "<image> the <image> wall of stone"}, GREEDY),
        ({"images": [MAKES[1]], "text": "the <image> wall"}, {**GREEDY, "return_full_text": False}),
        ({"images": [MAKES[1]], "text": "the <image>"}, {**GREEDY, "repetition_penalty": 3.0}),
        (
            {"images": [MAKES[1]], "text": "the <image>"},
            {"do_sample": False, "max_new_tokens": 20, "stop_sequence": ["wall", "stone"]},
        ),
        (asked("the harbour", MAKES[2]), GREEDY),
        (asked("the harbour", MAKES[2], MAKES[0]), {**GREEDY, "return_full_text": False}),
        ([*asked("a", MAKES[4]), {"role": "assistant", "content": "stone"}], GREEDY),
    ],
}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """The library's own words are not this test's."""
    logging.set_verbosity_error()


@pytest.fixture(scope="module", params=list(CASES))
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, list[Case]]]:
    """Each task in turn, and some with a second model."""
    folder = tmp_path_factory.mktemp(request.param)
    task = SECOND.get(request.param, request.param)
    save_image_model(folder, request.param)
    torch.set_num_threads(1)
    with inside(load_pipeline) as line:
        yield Served(TASKS[task], folder, line), CASES[request.param]


Made = tuple[Served, list[Case]]


def unsaid(value: Any) -> Any:
    """An answer without the images of the chat that it was asked with."""
    if isinstance(value, dict):
        kept = {k: unsaid(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if kept.get("type") != "image" or k != "image"}
    return [unsaid(part) for part in value] if isinstance(value, list) else value


def right(served: Served, case: Case) -> Any:
    """What the stock call says."""
    value, parameters = case
    if isinstance(value, list) and isinstance(value[0], dict):  # content as the template wants it
        value = [
            {
                "role": message["role"],
                "content": [{"type": "text", "text": message["content"]}]
                if isinstance(message["content"], str)
                else message["content"],
            }
            for message in value
        ]
    if "word_boxes" in parameters:  # the stock call takes them beside a question that is a string
        value = value | parameters
        parameters = {}
    return unsaid(served.expected(value, parameters))


def test_facts(served: Made) -> None:
    """The cost is known, batching was proved where it is allowed, the self-test works."""
    one, _ = served
    assert one.facts.task == one.task.name
    assert one.facts.batchable == (one.task.way == "batched")
    assert one.facts.typical_units > 0
    assert one.facts.cost_unit_s > 0
    assert one.facts.units_per_char > 0
    assert one.line.ask(Probe(1)).ok


def test_alone_as_the_stock_call(served: Made) -> None:
    """One input alone gives what ``pipe(input, **parameters)`` gives, of every format and mode."""
    one, cases = served
    for case in cases:
        [answer] = one.run([case])
        same(one.lone(case, answer), right(one, case))


def test_in_mixed_batches_as_alone(served: Made) -> None:
    """In batches of any make each answer is what it is alone; shapes that differ never mix."""
    one, cases = served
    assert one.mixed_as_alone(cases) > 1


def test_batches_are_shared(served: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items of equal shapes share one forward; the others have one of their own each."""
    from service.worker.pipelines.shaped import Shaped

    one, cases = served
    seen = []
    stock = Shaped.together

    def together(self: Shaped, rows: Any) -> Any:
        seen.append(rows)
        return stock(self, rows)

    monkeypatch.setattr(Shaped, "together", together)
    case = cases[0]
    _, prepared = one.prepared(case)
    one.run([case] * 3)
    several = one.task.name == "zero-shot-object-detection"  # three labels of three lengths
    assert len(seen) == (3 if several or not one.facts.batchable else 1)
    assert prepared.key


def test_examples_are_served(served: Made) -> None:
    """The entry's example and canary work on a model of the task."""
    one, _ = served
    task = one.task
    for value, parameters in (
        (task.example, task.example_parameters),
        (task.canary, task.canary_parameters),
    ):
        assert one.run([(value, dict(parameters))])


def test_bad_examples_name_the_field(served: Made) -> None:
    """What the entry calls bad is refused, at the input or inside it."""
    one, _ = served
    assert len(one.task.bad_examples) > 3
    for bad, _ in one.task.bad_examples:
        with pytest.raises(Refused) as caught:
            one.item((bad, dict(one.task.example_parameters)))
        assert caught.value.problem.code == "invalid_input"
        assert caught.value.problem.errors[0].pointer.startswith("/inputs")


UNFIT: dict[str, list[tuple[Any, dict[str, Any], str, str]]] = {
    "zero-shot-image-classification": [
        (MAKES[0], {"candidate_labels": ["stone " * 30]}, "/parameters/candidate_labels", "20"),
    ],
    "zero-shot-object-detection": [
        (MAKES[0], {"candidate_labels": ["stone " * 30]}, "/parameters/candidate_labels", "16"),
    ],
    "image-feature-extraction": [],
    "semantic": [
        (MAKES[0], {"subtask": "panoptic"}, "/parameters/subtask", "semantic"),
    ],
    "document-question-answering": [
        ({"question": "a", "image": MAKES[0]}, {}, "", "word_boxes"),
        (document("the wall " * 30), {}, "", "question"),
        (document("the wall " * 12), {}, "", "question"),
        (document("a"), {"max_seq_len": 41}, "/parameters/max_seq_len", "40"),
        (document("a"), {"doc_stride": 39}, "/parameters/doc_stride", "integer"),
    ],
    "image-text-to-text": [
        ({"images": [MAKES[0]], "text": "a wall"}, {}, "", "<image>"),
        ({"images": [MAKES[0]], "text": "<image> <image>"}, {}, "", "<image>"),
        ({"images": [MAKES[0]], "text": "<image> " + "stone " * 130}, {}, "", "128"),
        (asked("a", MAKES[0]), {"max_new_tokens": 120}, "/parameters/max_new_tokens", "1 to"),
    ],
}


def test_what_does_not_fit_the_model_is_told(served: Made, request: pytest.FixtureRequest) -> None:
    """What only the model can refuse is a 422 that says what to send, never a failure."""
    one, cases = served
    name = next(name for name, found in CASES.items() if found is cases)
    for value, parameters, pointer, said in UNFIT.get(name, []):
        answer = one.line.ask(Prepare(one.item((value, parameters))))
        assert isinstance(answer, Unfit), (value, answer)
        assert (answer.code, answer.pointer) == ("invalid_input", pointer)
        assert said in answer.message


def test_nothing_that_a_client_names_is_opened(served: Made, tmp_path: Path) -> None:
    """Addresses and paths, wherever they stand, are refused or text: nobody connects or opens."""
    trap = Trap(tmp_path)
    assert leave_untouched(served[0], trap) >= 0
    trap.close()
