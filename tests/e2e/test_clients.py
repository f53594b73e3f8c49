"""The Hugging Face client, pointed at the server, gets what it promises for every text task."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from playwright.sync_api import Browser

from service.tasks import TASKS
from tests.e2e.browser import chromium, visit
from tests.e2e.conftest import PATIENT
from tests.e2e.fuzzer import fuzz
from tests.e2e.server import LONG_S, Server, clean_environment
from tests.tools import ROOT

pytestmark = pytest.mark.e2e

TASK_NAMES = (
    "text-classification", "token-classification", "feature-extraction",
    "zero-shot-classification", "text-generation", "table-question-answering",
)  # fmt: skip
TEXT = "anna lives in the harbour of hamburg ."
TABLE = {"harbour": ["hamburg", "paris"], "all": ["12", "30"]}


class Asked:
    """A server with a small model of one task, and the client."""

    def __init__(self, task: str, server: Server) -> None:
        self.task = task
        self.server = server
        self.client = InferenceClient(server.url, timeout=LONG_S)

    def post(self, inputs: Any, **parameters: Any) -> Any:
        """What the server says to anybody else."""
        answer = self.server.predict_json({"inputs": inputs, "parameters": parameters})
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model for each; made by a program of its own: pytest's process needs no torch."""
    folder = tmp_path_factory.mktemp("models")
    subprocess.run(
        [sys.executable, "-m", "tests.worker.small_models", str(folder), *TASK_NAMES],
        env=clean_environment(), cwd=ROOT, capture_output=True, check=True, timeout=LONG_S,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module", params=TASK_NAMES)
def asked(request: pytest.FixtureRequest, models: Path) -> Iterator[Asked]:
    """Each task in turn."""
    task = request.param
    flags = ("--task", task, "--model", str(models / task), "--torch-threads", "1")
    with Server(*PATIENT, *flags) as server:
        yield Asked(task, server)


def test_the_client_gets_what_the_server_says(asked: Asked) -> None:
    """Whatever the client makes of the answer, its content is the pipeline's."""
    {
        "text-classification": _text_classification,
        "token-classification": _token_classification,
        "feature-extraction": _feature_extraction,
        "zero-shot-classification": _zero_shot,
        "text-generation": _text_generation,
        "table-question-answering": _table,
    }[asked.task](asked)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tasks."""
    with chromium() as found:
        yield found


def test_the_page_can_ask(asked: Asked, browser: Browser) -> None:
    """The example stands on the page as the task takes it, with what it needs, and is answered."""
    entry = TASKS[asked.task]
    with visit(browser, asked.server.url) as seen:
        seen.until("() => document.getElementById('text').value !== ''")
        shown = seen.page.input_value("#text")
        assert (shown if isinstance(entry.example, str) else json.loads(shown)) == entry.example
        given = seen.page.input_value("#parameters")
        assert json.loads(given or "{}") == dict(entry.example_parameters)
        seen.page.click("#send")
        seen.says("say", "Answered after")
        seen.page.click("#many")
        seen.says("answer", "answers")
        assert seen.faults == []


def test_the_description_is_true(asked: Asked, tmp_path: Path) -> None:
    """Whatever a fuzzer makes of the task's description is answered as described."""
    fuzz(asked.server, tmp_path, "--phases", "examples,coverage", "--include-path", "/")


def _text_classification(asked: Asked) -> None:
    [label] = asked.client.text_classification(TEXT)
    assert [dict(label)] == asked.post(TEXT)
    labels = asked.client.text_classification(TEXT, top_k=3)
    assert list(map(dict, labels)) == asked.post(TEXT, top_k=3)


def _token_classification(asked: Asked) -> None:
    found = asked.client.token_classification(TEXT)
    assert [one.word for one in found] == [one["word"] for one in asked.post(TEXT)]
    found = asked.client.token_classification(TEXT * 5, aggregation_strategy="simple", stride=4)
    right = asked.post(TEXT * 5, aggregation_strategy="simple", stride=4)
    assert right
    assert [one.entity_group for one in found] == [one["entity_group"] for one in right]


def _feature_extraction(asked: Asked) -> None:
    found, right = asked.client.feature_extraction(TEXT), asked.post(TEXT)
    assert found.shape == (1, len(right[0]), len(right[0][0]))
    assert found.flatten().tolist() == pytest.approx([x for row in right[0] for x in row])


def _zero_shot(asked: Asked) -> None:
    labels = ["travel", "cooking", "politics"]
    found = asked.client.zero_shot_classification(TEXT, labels, multi_label=True)
    right = asked.post(TEXT, candidate_labels=labels, multi_label=True)
    assert [one.label for one in found] == right["labels"]
    assert [one.score for one in found] == right["scores"]


def _text_generation(asked: Asked) -> None:
    text = asked.client.text_generation("the wall", max_new_tokens=5, do_sample=False)
    [right] = asked.post("the wall", max_new_tokens=5, do_sample=False)
    assert text == right["generated_text"]
    new = asked.client.text_generation(
        "the wall", max_new_tokens=9, return_full_text=False, stop=["a"], top_p=0.5
    )
    assert not new.startswith("the wall")


def _table(asked: Asked) -> None:
    found = asked.client.table_question_answering(TABLE, "all in hamburg")
    right = asked.post({"table": TABLE, "query": "all in hamburg"})
    assert (found.answer, found.cells) == (right["answer"], right["cells"])


def test_a_refusal_names_the_field(asked: Asked) -> None:
    """An input of the wrong shape is a 422 that names it, for the client as for anybody."""
    with pytest.raises(HfHubHTTPError) as caught:
        asked.client.text_classification(5)  # type: ignore[arg-type]
    assert caught.value.response.status_code == 422
    assert "/inputs" in {error["pointer"] for error in caught.value.response.json()["errors"]} | {
        "/inputs" if asked.task == "zero-shot-classification" else ""
    }


def test_the_example_works(asked: Asked) -> None:
    """What the server names as its example is answered, alone and as a list of one."""
    about = asked.server.client.get("/", headers={"accept": "*/*"}).json()
    assert about["task"] == asked.task
    assert about["parameters"] == TASKS[asked.task].example_parameters
    alone = asked.post(about["example"], **about["parameters"])
    listed = asked.post([about["example"]], **about["parameters"])
    assert len(listed) == 1
    if asked.task != "text-generation":  # it samples
        assert alone in ([listed[0]], listed[0])


def test_fill_mask_by_the_client(model: Server) -> None:
    """The packaged model by the same client."""
    client = InferenceClient(model.url, timeout=LONG_S)
    found = client.fill_mask("Paris is the [MASK] of France.", top_k=2)
    body = {"inputs": "Paris is the [MASK] of France.", "parameters": {"top_k": 2}}
    right = model.predict_json(body).json()
    assert [one.token_str for one in found] == [one["token_str"] for one in right]
