"""The Hugging Face client, pointed at the server, gets what it promises for every task of sound."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from service.tasks import TASKS
from tests.e2e.conftest import PATIENT
from tests.e2e.server import LONG_S, Server, clean_environment
from tests.e2e.test_clients_oip import answers, client_of, files, numbers, refusal
from tests.e2e.test_images import same_labels
from tests.tools import ROOT

pytestmark = pytest.mark.e2e

CLASSES = "audio-classification"
TASK_NAMES = ("audio-classification", "automatic-speech-recognition", "text-to-audio")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model for each; made by a program of its own: pytest's process needs no torch."""
    folder = tmp_path_factory.mktemp("models")
    subprocess.run(
        [sys.executable, "-m", "tests.worker.small_sounds", str(folder), *TASK_NAMES],
        env=clean_environment(), cwd=ROOT, capture_output=True, check=True, timeout=LONG_S,
    )  # fmt: skip
    return folder


@contextmanager
def serving(task: str, models: Path) -> Iterator[tuple[Server, InferenceClient]]:
    """A server with the task's model, and the client."""
    flags = ("--task", task, "--model", str(models / task), "--torch-threads", "1")
    with Server(*PATIENT, *flags) as server:
        yield server, InferenceClient(server.url, timeout=LONG_S)


def wav() -> bytes:
    """The entry's own example."""
    return base64.b64decode(TASKS["audio-classification"].example)


@pytest.fixture(scope="module")
def classifier(models: Path) -> Iterator[tuple[Server, InferenceClient]]:
    """A server that says what a sound is."""
    with serving(CLASSES, models) as served:
        yield served


def samples() -> tuple[Any, int]:
    """The numbers of the example, from -1 to 1, and their rate."""
    with wave.open(io.BytesIO(wav())) as file:
        data = np.frombuffer(file.readframes(file.getnframes()), np.uint8)
        return (data.astype(np.float32) - 128) / 128, file.getframerate()


def refused(server: Server, body: bytes, kind: str) -> str:
    """The pointer of a 422."""
    answer = server.client.post("/", content=body, headers={"Content-Type": kind})
    assert answer.status_code == 422, answer.text
    pointer: str = answer.json()["errors"][0]["pointer"]
    return pointer


def test_audio_classification(classifier: tuple[Server, InferenceClient], tmp_path: Path) -> None:
    """Bytes, a file of the client's own and parameters beside them have the pipeline's labels."""
    server, client = classifier
    right = server.predict_json({"inputs": base64.b64encode(wav()).decode()}).json()
    found = client.audio_classification(wav())
    assert [dict(label) for label in found] == right
    path = tmp_path / "a.wav"
    path.write_bytes(wav())
    assert [dict(label) for label in client.audio_classification(str(path))] == right
    best = client.audio_classification(wav(), top_k=2)
    assert [dict(label) for label in best] == right[:2]
    for kind in ("audio/wav", "audio/x-wav", "application/octet-stream"):
        answer = server.client.post("/", content=wav(), headers={"Content-Type": kind})
        assert answer.json() == right
    listed = server.predict_json({"inputs": [TASKS["audio-classification"].example] * 2})
    assert [label["label"] for one in listed.json() for label in one] == 2 * [
        label["label"] for label in right
    ]
    for body in (wav()[:-100], wav()[:50], b"http://127.0.0.1/a.wav", b"/etc/hostname"):
        assert refused(server, body, "audio/wav").startswith("/inputs")
    with pytest.raises(HfHubHTTPError) as caught:
        client.audio_classification(b"no sound")
    assert caught.value.response.status_code == 422


def test_triton_sends_samples_and_files(classifier: tuple[Server, InferenceClient]) -> None:
    """Samples and files in a tensor have the answers of the same sound sent plainly."""
    server, _ = classifier
    example = TASKS[CLASSES].example
    right = server.predict_json({"inputs": [example] * 2, "parameters": {"top_k": 2}}).json()
    floats, rate_hz = samples()
    whole = (floats * 32768).astype(np.int16)
    asked = {"top_k": 2, "sampling_rate": rate_hz}
    same_labels(answers(server, CLASSES, files(wav(), wav()), top_k=2), right)
    for data, datatype in ((floats, "FP32"), (whole, "INT16")):
        for binary in (True, False):
            two = numbers(np.stack([data, data]), datatype, binary=binary)
            same_labels(answers(server, CLASSES, two, **asked), right)
        same_labels(answers(server, CLASSES, numbers(data, datatype), **asked), right[:1])
    shown = client_of(server).get_model_metadata(CLASSES)["inputs"]
    assert [(one["datatype"], one["shape"]) for one in shown] == [
        ("BYTES", [-1]), ("FP32", [-1, -1]), ("INT16", [-1, -1]),
    ]  # fmt: skip
    hears_hz = shown[1]["parameters"]["sampling_rate"]
    loud = numbers(np.resize(floats, hears_hz), "FP32")
    said = answers(server, CLASSES, loud, sampling_rate=hears_hz)
    same_labels(answers(server, CLASSES, loud), said)
    for tensor, place in (
        (numbers(floats[:10], "FP32"), "inputs/0: send a sound of at least"),
        (numbers(floats * np.float32("nan"), "FP32"), "inputs/0: send samples that are numbers"),
        (numbers(floats.astype(np.float64), "FP64"), "inputs/0/datatype: send BYTES"),
        (numbers(floats.reshape(1, 1, -1), "FP32"), "inputs/0/shape: send [n] for n samples"),
        (files(wav()[:-100]), "inputs/0/data/0: send the whole file"),
    ):
        status, sentence = refusal(server, tensor, model=CLASSES)
        assert (status, place in sentence) == ("422", True), sentence


def test_automatic_speech_recognition(models: Path) -> None:
    """The client has the pipeline's text, in one piece and in several, and the times of words."""
    with serving("automatic-speech-recognition", models) as (server, client):
        sound = base64.b64encode(wav()).decode()
        right = server.predict_json({"inputs": sound}).json()
        assert right["text"]
        floats, rate_hz = samples()
        heard = answers(server, TASK_NAMES[1], numbers(floats, "FP32"), sampling_rate=rate_hz)
        assert heard == [right]
        assert client.automatic_speech_recognition(wav()).text == right["text"]
        asked = {"return_timestamps": "word", "chunk_length_s": 5}
        found = client.automatic_speech_recognition(wav(), extra_body=asked)
        body = {"inputs": sound, "parameters": asked}
        answer = server.predict_json(body).json()
        assert found.chunks is not None
        assert [chunk.text for chunk in found.chunks] == [one["text"] for one in answer["chunks"]]
        with pytest.raises(HfHubHTTPError) as caught:
            client.automatic_speech_recognition(wav(), extra_body={"num_beams": 2})
        assert caught.value.response.json()["errors"][0]["pointer"] == "/parameters/num_beams"


def test_text_to_speech(models: Path) -> None:
    """The client gets a WAV that plays; others get it in base64 beside its rate, or ask for it."""
    with serving("text-to-audio", models) as (server, client):
        played = client.text_to_speech("the harbour wall")
        answer = server.predict_json({"inputs": "the harbour wall"})
        assert answer.headers["content-type"] == "application/json"
        assert base64.b64decode(answer.json()["audio"]) == played
        with wave.open(io.BytesIO(played)) as file:
            assert file.getframerate() == answer.json()["sampling_rate"]
            assert file.getnframes() > 0
        asked = server.client.post(
            "/", json={"inputs": "the harbour wall"}, headers={"Accept": "audio/wav"}
        )
        assert asked.headers["content-type"] == "audio/wav"
        assert asked.content == played
        with pytest.raises(HfHubHTTPError) as caught:
            client.text_to_speech("a", max_new_tokens=5)
        assert caught.value.response.json()["errors"][0]["pointer"] == "/parameters/max_new_tokens"
