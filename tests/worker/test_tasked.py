"""Every text task answers as the stock pipeline does, alone, in lists and in mixed batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from service.core.errors import Refused
from service.tasks import TASKS
from service.worker.pipelines import load_pipeline
from service.worker.wire import Prepare, Probe, Unfit
from tests.trap import Trap
from tests.worker.line import inside
from tests.worker.named import leave_untouched
from tests.worker.served import Case, Served, same
from tests.worker.small_models import POSITIONS, WORDS, save_model

LABELS = {"candidate_labels": ["travel", "cooking", "politics"]}
GREEDY = {"do_sample": False}


def text_of(words: int, seed: int = 0) -> str:
    """A text of so many words."""
    chance = random.Random(f"{words} {seed}")
    return " ".join(chance.choice([word for word in WORDS if word.isalpha()]) for _ in range(words))


TEXTS = [text_of(words) for words in (1, 2, 3, 5, 5, 8, 13, 21, 34)]
ODD = ["Anna lives in Berlin.", "\0", "naïve 東京 🙂 fisherman", "[PAD] stone [SEP] cooking"]

CASES: dict[str, list[Case]] = {
    "text-classification": [
        *[(text, {}) for text in TEXTS + ODD],
        *[(text, {"top_k": 1}) for text in TEXTS[:2]],
        *[(text, {"top_k": 3}) for text in TEXTS[:3]],
        (TEXTS[3], {"top_k": 100}),
        (TEXTS[3], {"function_to_apply": "sigmoid"}),
        (TEXTS[3], {"function_to_apply": "none", "top_k": 2}),
        ({"text": TEXTS[2], "text_pair": TEXTS[4]}, {}),
        ({"text": TEXTS[4], "text_pair": TEXTS[2]}, {"top_k": 2}),
        (text_of(90), {"truncation": True}),
    ],
    "token-classification": [
        *[(text, {}) for text in TEXTS + ODD],
        *[
            (text, {"aggregation_strategy": strategy})
            for strategy in ("none", "simple", "first", "average", "max")
            for text in (ODD[0], ODD[2], TEXTS[6])
        ],
        (TEXTS[6], {"ignore_labels": []}),
        (TEXTS[6], {"ignore_labels": ["O", "B-PER"], "aggregation_strategy": "simple"}),
        (text_of(30), {"aggregation_strategy": "simple", "stride": 4}),
        (text_of(60), {"aggregation_strategy": "simple", "stride": 4}),
        (text_of(120), {"aggregation_strategy": "max", "stride": 10}),
        (text_of(120, 1), {"aggregation_strategy": "simple", "stride": 10}),
    ],
    "feature-extraction": [
        *[(text, {}) for text in TEXTS + ODD],
        (text_of(90), {"truncation": True}),
        (TEXTS[5], {"pooling": "none"}),
    ],
    "zero-shot-classification": [
        *[(text, LABELS) for text in TEXTS[:-1] + ODD],
        (TEXTS[5], {"candidate_labels": "travel, cooking"}),
        (TEXTS[5], {"candidate_labels": ["travel"]}),
        (TEXTS[5], {**LABELS, "multi_label": True}),
        (TEXTS[5], {**LABELS, "hypothesis_template": "it is {} ."}),
        (TEXTS[2], {"candidate_labels": WORDS[:40]}),
    ],
    "table-question-answering": [
        (TASKS["table-question-answering"].example, {}),
        (TASKS["table-question-answering"].canary, {}),
        *[
            ({"table": {"a": ["1", "20"], "harbour": ["stone", ""]}, "query": text}, parameters)
            for text in (*TEXTS[:4], ODD[2])
            for parameters in ({}, {"sequential": True})
        ],
    ],
    "text-generation": [
        *[(text, {**GREEDY, "max_new_tokens": 5}) for text in TEXTS[:7]],
        (TEXTS[0], {**GREEDY, "max_new_tokens": 30}),
        (ODD[2], {**GREEDY, "max_new_tokens": 5}),
        (TEXTS[3], {**GREEDY, "max_new_tokens": 4, "return_full_text": False}),
        (TEXTS[4], {**GREEDY, "max_new_tokens": 4, "repetition_penalty": 2.0}),
        (TEXTS[4], {**GREEDY, "max_new_tokens": 9, "stop_sequence": ["harbour", "before"]}),
        (
            [{"role": "user", "content": "the harbour"}, {"role": "assistant", "content": "wall"}],
            {**GREEDY, "max_new_tokens": 4},
        ),
        ([{"role": "user", "content": "the harbour wall"}], {**GREEDY, "max_new_tokens": 4}),
    ],
}


@pytest.fixture(scope="module", params=list(CASES))
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Each task in turn."""
    folder = tmp_path_factory.mktemp(request.param)
    save_model(folder, request.param)
    torch.set_num_threads(1)
    with inside(load_pipeline) as line:
        yield Served(TASKS[request.param], folder, line)


def test_facts(served: Served) -> None:
    """The model's limit is known, and padding was proved to change nothing."""
    facts = served.facts
    whole = served.task.way == "whole"
    assert (facts.task, facts.batchable) == (served.task.name, not whole)
    assert whole or facts.max_tokens == POSITIONS
    assert facts.typical_units > 0
    assert served.line.ask(Probe(1)).ok


def test_alone_as_the_stock_call(served: Served) -> None:
    """One input alone gives what ``pipe(input, **parameters)`` gives."""
    for case in CASES[served.task.name]:
        [answer] = served.run([case])
        same(served.lone(case, answer), served.expected(*case))


def test_a_list_as_the_stock_call(served: Served) -> None:
    """A list of one and a list of two give what ``pipe([...], **parameters)`` gives."""
    value, parameters = CASES[served.task.name][1]
    other, _ = CASES[served.task.name][2]
    for inputs in ([value], [value, other]):
        if served.task.way == "whole" and len(inputs) == 1:
            continue  # the stock call unwraps it; here a list stays a list
        answers = served.run([(one, parameters) for one in inputs])
        same(answers, served.expected(inputs, parameters))


def test_in_mixed_batches_as_alone(served: Served) -> None:
    """In batches of any make each answer is what it is alone: no padding, no neighbour shows."""
    assert served.mixed_as_alone(CASES[served.task.name]) > 4


def test_examples_are_served(served: Served) -> None:
    """The entry's example and canary work on a model of the task."""
    task = served.task
    for value, parameters in (
        (task.example, task.example_parameters),
        (task.canary, task.canary_parameters),
    ):
        assert served.run([(value, dict(parameters))])


def test_bad_examples_name_the_field(served: Served) -> None:
    """What the entry calls bad is refused, at the input or inside it."""
    for bad, _ in served.task.bad_examples:
        with pytest.raises(Refused) as caught:
            served.item((bad, dict(served.task.example_parameters)))
        assert caught.value.problem.code == "invalid_input"
        assert caught.value.problem.errors[0].pointer.startswith("/inputs")


def test_too_long_is_told(served: Served) -> None:
    """A text beyond the model's limit is refused with limit and number; never cut unasked."""
    if served.task.way == "whole":
        pytest.skip("the stock call drops rows by itself")
    item = served.item((text_of(POSITIONS + 5), dict(served.task.example_parameters)))
    answer = served.line.ask(Prepare(item))
    assert isinstance(answer, Unfit), answer
    assert answer.code == "invalid_input"
    assert answer.limit in {POSITIONS, POSITIONS - 1}
    assert str(POSITIONS) in answer.message


def test_nothing_that_a_client_names_is_opened(served: Served, tmp_path: Path) -> None:
    """Addresses and paths, wherever they stand, are refused or text: nobody connects or opens."""
    trap = Trap(tmp_path)
    assert leave_untouched(served, trap) > 0
    trap.close()
