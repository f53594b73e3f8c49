"""Sound made of texts and labels of films are the stock pipeline's."""

from __future__ import annotations

import base64
import io
import itertools
import json
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import msgspec
import numpy as np
import pytest
import torch
from transformers import pipeline

from service.core.errors import Refused
from service.tasks import TASKS
from service.worker.interface import CannotLoad
from service.worker.pipelines import load_pipeline
from service.worker.wire import Load, Prepare, Prepared, Probe, Result, Run, Unfit, WireItem
from tests.trap import Trap
from tests.worker.line import Line, inside
from tests.worker.named import leave_untouched
from tests.worker.served import same
from tests.worker.small_sounds import MAKERS

ids = itertools.count(1)
TEXTS = ["the harbour wall", "a", "it rained all day and the ferry leaves at noon"]


def item(task: str, value: Any, parameters: dict[str, Any] | None = None) -> WireItem:
    """An input as it comes from the front."""
    entry = TASKS[task]
    text, media = entry.taken(value, "/inputs")
    checked = entry.parse_parameters(parameters or {}, {})
    return WireItem(next(ids), text, msgspec.json.encode(checked), media=media)


def run(line: Line, *items: WireItem) -> list[Any]:
    """The answers of one batch."""
    for one in items:
        answer = line.ask(Prepare(one))
        assert isinstance(answer, Prepared), answer
    result = line.ask(Run(next(ids), list(items)))
    assert isinstance(result, Result), result
    return [json.loads(output) for output in result.outputs]


def film(frames: int, seed: int = 0, side: int = 48, kind: str = "mp4") -> bytes:
    """A film of noise that changes slowly."""
    chance = np.random.default_rng(seed)
    written = io.BytesIO()
    with av.open(written, "w", format=kind) as file:
        stream = file.add_stream("mpeg4", rate=8)
        stream.width = stream.height = side
        stream.pix_fmt = "yuv420p"
        blocks = chance.integers(0, 256, (4, 4, 3))
        for _ in range(frames):
            blocks = (blocks + chance.integers(0, 20, (4, 4, 3))) % 256
            picture = np.kron(blocks, np.ones((side // 4, side // 4, 1))).astype(np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode())
    return written.getvalue()


def sent(data: bytes) -> str:
    """As in JSON."""
    return base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A voice and a model of films."""
    folder = tmp_path_factory.mktemp("models")
    for task in ("text-to-audio", "video-classification"):
        (folder / task).mkdir()
        MAKERS[task](folder / task)
    torch.set_num_threads(1)
    return folder


@pytest.fixture(scope="module")
def voice(models: Path) -> Iterator[Line]:
    """A worker that speaks."""
    with inside(load_pipeline) as line:
        facts = line.load(str(models / "text-to-audio"), "text-to-audio")
        assert (facts.batchable, facts.step_units) == (False, 0.0)
        yield line


@pytest.fixture(scope="module")
def watcher(models: Path) -> Iterator[Line]:
    """A worker that watches."""
    with inside(load_pipeline) as line:
        facts = line.load(str(models / "video-classification"), "video-classification")
        assert facts.batchable
        yield line


def test_a_text_sounds_as_in_the_stock_call(voice: Line, models: Path) -> None:
    """The WAV holds the stock call's samples, to 16 bits, and says their rate; in a batch too."""
    stock = pipeline("text-to-audio", model=str(models / "text-to-audio"), device="cpu")
    answers = run(voice, *(item("text-to-audio", text) for text in TEXTS))
    for text, answer in zip(TEXTS, answers, strict=True):
        right = stock(text)
        assert list(answer) == ["audio", "sampling_rate"]
        assert answer["sampling_rate"] == right["sampling_rate"]
        with wave.open(io.BytesIO(base64.b64decode(answer["audio"]))) as file:
            assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
            assert file.getframerate() == right["sampling_rate"]
            heard = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32767
        assert len(heard) == len(right["audio"]) > 0
        assert np.abs(heard - right["audio"]).max() < 1e-4
    assert voice.ask(Probe(1)).ok


def test_a_voice_takes_no_parameters_of_generation(voice: Line) -> None:
    """A model that speaks in one go refuses them by name."""
    answer = voice.ask(Prepare(item("text-to-audio", "a", {"max_new_tokens": 5})))
    assert isinstance(answer, Unfit)
    assert answer.pointer == "/parameters/max_new_tokens"


def test_the_hub_gets_the_wav_itself(voice: Line) -> None:
    """The shape for the hub's client is the file."""
    [answer] = run(voice, item("text-to-audio", "the wall"))
    made = TASKS["text-to-audio"].hub(json.dumps(answer).encode(), "", {})
    assert made[:4] == b"RIFF"


def test_a_model_of_spectrograms_is_refused(tmp_path: Path) -> None:
    """Its vocoder would come from the hub: it is refused before anything is fetched."""
    MAKERS["text-to-audio"](tmp_path)
    config = {"model_type": "speecht5", "architectures": ["SpeechT5ForTextToSpeech"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CannotLoad) as caught:
        load_pipeline(Load(str(tmp_path), "text-to-audio"))
    assert caught.value.reason == "wrong_task"


def test_films_as_in_the_stock_call(watcher: Line, models: Path, tmp_path: Path) -> None:
    """Alone and in one batch a film has the labels that the stock call gives it from a file."""
    stock = pipeline("video-classification", model=str(models / "video-classification"))
    files = [film(20, seed, side) for seed, side in ((1, 48), (2, 48), (3, 64))]
    files.append(film(24, 4, kind="matroska"))
    for parameters in ({}, {"top_k": 2}, {"frame_sampling_rate": 2, "function_to_apply": "none"}):
        items = [item("video-classification", sent(data), parameters) for data in files]
        together = run(watcher, *items)
        for index, (data, answer) in enumerate(zip(files, together, strict=True)):
            path = tmp_path / f"{index}.film"
            path.write_bytes(data)
            right = stock(str(path), **parameters)
            same(answer, right)
            [alone] = run(watcher, item("video-classification", sent(data), parameters))
            same(alone, right)
    assert watcher.ask(Probe(1)).ok


@pytest.mark.parametrize(
    "data,parameters,pointer",
    [
        (film(5), {}, ""),
        (film(8), {"frame_sampling_rate": 2}, ""),
        (film(20), {"num_frames": 4}, "/parameters/num_frames"),
        (film(20)[:900], {}, ""),
        (film(1, side=2304), {}, ""),
        (b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n", {}, ""),
        (b"ffconcat version 1.0\nfile /etc/hostname\n", {}, ""),
        (b"RIFF\0\0\0\0AVI " + bytes(90), {}, ""),
    ],
    ids=["short", "too few", "number", "cut", "large", "playlist", "list", "empty"],
)
def test_what_is_no_film_is_refused(
    watcher: Line, data: bytes, parameters: dict[str, Any], pointer: str
) -> None:
    """A film that is too short, cut off, too large or no film is the client's to change."""
    answer = watcher.ask(Prepare(item("video-classification", sent(data), parameters)))
    assert isinstance(answer, Unfit), answer
    assert (answer.code, answer.pointer) == ("invalid_input", pointer)
    assert "send" in answer.message


@pytest.mark.parametrize("task", ["text-to-audio", "video-classification"])
def test_bad_examples_name_the_field(task: str) -> None:
    """What the entry calls bad is refused at the input."""
    for bad, _ in TASKS[task].bad_examples:
        with pytest.raises(Refused) as caught:
            TASKS[task].taken(bad, "/inputs")
        assert caught.value.problem.errors[0].pointer.startswith("/inputs")


class Anything:
    """As the other tasks are asked: with any value."""

    def __init__(self, task: str, line: Line) -> None:
        self.task, self.line = TASKS[task], line

    def item(self, case: tuple[Any, dict[str, Any]]) -> WireItem:
        """The item, or a refusal."""
        return item(self.task.name, *case)


def test_nothing_that_a_client_names_is_opened(voice: Line, watcher: Line, tmp_path: Path) -> None:
    """Addresses and paths, wherever they stand, are refused or spoken: nobody connects or opens."""
    trap = Trap(tmp_path)
    leave_untouched(Anything("video-classification", watcher), trap)
    assert leave_untouched(Anything("text-to-audio", voice), trap) > 0
    trap.close()


@pytest.mark.parametrize("text", ["東京", "...", "🙂"])
def test_nothing_to_say(voice: Line, text: str) -> None:
    """A text of which the tokenizer leaves nothing is the client's to change."""
    answer = voice.ask(Prepare(item("text-to-audio", text)))
    assert isinstance(answer, Unfit), answer
    assert answer.code == "invalid_input"
