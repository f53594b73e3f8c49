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

import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from service.tasks import TASKS
from tests.e2e.conftest import PATIENT
from tests.e2e.server import LONG_S, Server, clean_environment
from tests.tools import ROOT

pytestmark = pytest.mark.e2e

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


def refused(server: Server, body: bytes, kind: str) -> str:
    """The pointer of a 422."""
    answer = server.client.post("/", content=body, headers={"Content-Type": kind})
    assert answer.status_code == 422, answer.text
    pointer: str = answer.json()["errors"][0]["pointer"]
    return pointer


def test_audio_classification(models: Path, tmp_path: Path) -> None:
    """Bytes, a file of the client's own and parameters beside them have the pipeline's labels."""
    with serving("audio-classification", models) as (server, client):
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


def test_automatic_speech_recognition(models: Path) -> None:
    """The client has the pipeline's text, in one piece and in several, and the times of words."""
    with serving("automatic-speech-recognition", models) as (server, client):
        sound = base64.b64encode(wav()).decode()
        right = server.predict_json({"inputs": sound}).json()
        assert right["text"]
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
