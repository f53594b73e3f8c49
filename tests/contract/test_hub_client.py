"""Every method of the Hugging Face client has a served task and a test, or a reason why not."""

from __future__ import annotations

import inspect

import pytest
from huggingface_hub import InferenceClient

from service.tasks import ALIASES, REASONS, TASKS
from tests.tools import ROOT

TEXTS, SOUNDS, IMAGES = "test_clients.py", "test_clients_sound.py", "test_images.py"

COVERED = {
    "audio_classification": SOUNDS,
    "automatic_speech_recognition": SOUNDS,
    "document_question_answering": IMAGES,
    "feature_extraction": TEXTS,
    "fill_mask": TEXTS,
    "image_classification": IMAGES,
    "image_segmentation": IMAGES,
    "object_detection": IMAGES,
    "table_question_answering": TEXTS,
    "text_classification": TEXTS,
    "text_generation": TEXTS,
    "text_to_speech": SOUNDS,
    "token_classification": TEXTS,
    "zero_shot_classification": TEXTS,
    "zero_shot_image_classification": IMAGES,
}
"""A method, named as its task is, and the file of end-to-end tests in which it is called."""

NO_PIPELINE = "transformers has no pipeline of this task"

NOT_SERVED = {
    "audio_to_audio": NO_PIPELINE,
    "image_to_image": NO_PIPELINE,
    "image_to_text": NO_PIPELINE,
    "image_to_video": NO_PIPELINE,
    "question_answering": REASONS["question-answering"],
    "sentence_similarity": NO_PIPELINE,
    "summarization": REASONS["summarization"],
    "tabular_classification": NO_PIPELINE,
    "tabular_regression": NO_PIPELINE,
    "text_to_image": NO_PIPELINE,
    "text_to_video": NO_PIPELINE,
    "translation": REASONS["translation"],
    "visual_question_answering": NO_PIPELINE,
}
"""A method whose task is not served, and why."""

OTHERWISE = {
    "chat": "the same as chat_completion",
    "chat_completion": "it asks POST /v1/chat/completions, which is not there; text-generation and "
    "image-text-to-text take messages at POST /",
    "close": "it asks nobody",
    "get_endpoint_info": "it asks GET /info, which is not there; GET / says what is served",
    "health_check": "it asks GET /health, which is not there; GET /readyz is",
}
"""A method that is of no task."""


def task_of(method: str) -> str:
    """The task that a method is named after."""
    name = method.replace("_", "-")
    return ALIASES.get(name, name)


def test_no_method_is_forgotten() -> None:
    """A method that a new version of the client brings is served and tested, or has a reason."""
    methods = {name for name in dir(InferenceClient) if not name.startswith("_")}
    assert methods == COVERED.keys() | NOT_SERVED.keys() | OTHERWISE.keys()
    assert len(methods) == len(COVERED) + len(NOT_SERVED) + len(OTHERWISE)


@pytest.mark.parametrize("method", COVERED)
def test_a_served_method_is_called_by_a_test(method: str) -> None:
    """Its task is served, it is a method to call, and the file named beside it calls it."""
    assert task_of(method) in TASKS
    assert inspect.isfunction(getattr(InferenceClient, method))
    assert f"client.{method}(" in (ROOT / "tests" / "e2e" / COVERED[method]).read_text()


@pytest.mark.parametrize("method", NOT_SERVED)
def test_what_is_not_served_is_no_task(method: str) -> None:
    """A reason is given only for a task that is not served."""
    assert task_of(method) not in TASKS
