"""Images by every way that a client sends them, to real servers with small models."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from huggingface_hub import InferenceClient
from PIL import Image

from service.tasks import TASKS
from service.tasks.examples import HARBOUR, NIGHT
from tests.e2e.conftest import PATIENT
from tests.e2e.server import LONG_S, Server, clean_environment
from tests.e2e.test_clients_oip import answers, client_of, files, numbers, refusal
from tests.tools import ROOT

pytestmark = pytest.mark.e2e

CLASSES = "image-classification"
OTHERS = (
    "image-segmentation", "object-detection", "zero-shot-image-classification",
    "document-question-answering",
)  # fmt: skip
IMAGE = base64.b64decode(HARBOUR.partition(",")[2])
BOXES = [["harbour", [0, 0, 100, 20]], ["wall", [110, 0, 200, 20]]]
MIB = 2**20


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model for each; made by a program of its own: pytest's process needs no torch."""
    folder = tmp_path_factory.mktemp("models")
    program = "tests.worker.small_image_models"
    subprocess.run(
        [sys.executable, "-m", program, str(folder), CLASSES, *OTHERS],
        env=clean_environment(), cwd=ROOT, capture_output=True, check=True, timeout=LONG_S,
    )  # fmt: skip
    return folder


def server_of(models: Path, task: str, *flags: str) -> Server:
    """Its server."""
    model = ("--task", task, "--model", str(models / task), "--torch-threads", "1")
    return Server(*PATIENT, *model, *flags)


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    """One that classifies."""
    with server_of(models, CLASSES, "--workers", "1") as server:
        yield server


def sent(server: Server, body: bytes, kind: str | None) -> Any:
    """The answer to a body of this type."""
    headers = {} if kind is None else {"Content-Type": kind}
    return server.client.post("/", content=body, headers=headers)


def asked(server: Server, inputs: Any, **parameters: Any) -> Any:
    """The answer to JSON."""
    return server.predict_json({"inputs": inputs, "parameters": parameters})


def test_every_way_of_sending_gives_the_same(server: Server) -> None:
    """Raw bytes under any fitting type, base64 and a data: URL have one answer; a list has two."""
    right = asked(server, HARBOUR).json()
    assert [sorted(one) for one in right] == [["label", "score"]] * 5
    for kind in (
        "image/png", "IMAGE/Anything", "application/octet-stream", None,
        "application/x-www-form-urlencoded",  # curl --data-binary
    ):  # fmt: skip
        answer = sent(server, IMAGE, kind)
        assert (answer.status_code, answer.json()) == (200, right), kind
    assert asked(server, base64.b64encode(IMAGE).decode()).json() == right
    assert asked(server, base64.encodebytes(IMAGE).decode()).json() == right
    both = asked(server, [HARBOUR, NIGHT], top_k=1).json()
    assert both[0] == right[:1]
    assert len(both) == 2
    assert asked(server, [HARBOUR]).json() == [right]


def same_labels(found: Any, right: Any) -> None:
    """The same labels, with scores that differ by rounding at most."""
    for ours, theirs in zip(found, right, strict=True):
        assert [one["label"] for one in ours] == [one["label"] for one in theirs]
        assert [one["score"] for one in ours] == pytest.approx([one["score"] for one in theirs])


def test_triton_sends_pixels_and_files(server: Server) -> None:
    """Pixels and files in a tensor have the answers of the same images sent plainly."""
    right = asked(server, [HARBOUR, NIGHT], top_k=2).json()
    both = [base64.b64decode(one.partition(",")[2]) for one in (HARBOUR, NIGHT)]
    pixels = np.stack([np.asarray(Image.open(BytesIO(one)).convert("RGB")) for one in both])
    same_labels(answers(server, CLASSES, files(*both), top_k=2), right)
    for binary in (True, False):
        tensor = numbers(pixels, "UINT8", binary=binary)
        same_labels(answers(server, CLASSES, tensor, top_k=2), right)
    same_labels(answers(server, CLASSES, numbers(pixels[1], "UINT8"), top_k=2), right[1:])
    shown = client_of(server).get_model_metadata(CLASSES)["inputs"]
    assert [(one["datatype"], one["shape"]) for one in shown] == [
        ("BYTES", [-1]), ("UINT8", [-1, -1, -1, 3]),
    ]  # fmt: skip
    line = np.zeros((2, 1, 200, 3), np.uint8)
    for tensor, place in (
        (numbers(line[0], "UINT8"), "inputs/0: send an image whose long side"),
        (numbers(line, "UINT8"), "inputs/0/data/0: send an image whose long side"),
        (numbers(pixels.astype(np.float32), "FP32"), "inputs/0/datatype: send BYTES"),
        (numbers(pixels.transpose(0, 3, 1, 2), "UINT8"), "inputs/0/shape: send [height, width, 3]"),
        (files(b"no image"), "inputs/0/data/0: send an image as PNG"),
    ):
        status, sentence = refusal(server, tensor, model=CLASSES)
        assert (status, place in sentence) == ("422", True), sentence


def test_what_is_no_image_names_the_field(server: Server) -> None:
    """A wrong type is 415; no image, half an image and too large an image are 422 with a place."""
    for kind in ("text/plain", "audio/wav", "video/mp4", "application/pdf", "multipart/form-data"):
        answer = sent(server, IMAGE, kind)
        assert answer.status_code == 415, kind
        assert "base64" in answer.json()["detail"]
    half = f"data:image/png;base64,{base64.b64encode(IMAGE[:-40]).decode()}"
    for inputs, pointer in (
        ("http://localhost/a.png", "/inputs"),
        ([HARBOUR, "/etc/hostname"], "/inputs/1"),
        ([HARBOUR, half], "/inputs/1"),
        (half, "/inputs"),
        ({"image": HARBOUR}, "/inputs"),
    ):
        answer = asked(server, inputs)
        assert answer.status_code == 422, inputs
        assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    for body in (b"", b"text", IMAGE[:60], b"<svg xmlns='http://www.w3.org/2000/svg'/>"):
        answer = sent(server, body, "image/png")
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert asked(server, HARBOUR).status_code == 200


def test_the_limit_on_bodies_is_that_of_media(server: Server) -> None:
    """A body of two megabytes is received, one of more than sixteen is not."""
    noise = base64.b64encode(bytes(2 * MIB))
    assert sent(server, noise, "image/png").status_code == 422
    assert sent(server, bytes(16 * MIB + 1), "image/png").status_code == 413
    assert server.status()["settings"]["max_body_bytes"] == 16 * MIB


def bomb(side: int) -> bytes:
    """A small PNG of one colour that is so wide and high."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes(side * (side + 1)), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_a_bomb_takes_no_memory(server: Server) -> None:
    """Twenty small files of huge pictures at a time are refused; memory stays as it was."""
    data = bomb(13_000)
    assert len(data) < MIB
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    worker = psutil.Process(server.worker_pid)
    before = worker.memory_info().rss
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: asked(server, url), range(20)))
    assert {answer.status_code for answer in answers} == {422}
    assert answers[0].json()["limit"] == TASKS[CLASSES].max_pixels
    assert worker.memory_info().rss - before < 200 * MIB
    assert server.worker_pid == worker.pid
    assert asked(server, HARBOUR).status_code == 200


def test_the_client_classifies(server: Server, tmp_path: Path) -> None:
    """The Hugging Face client with bytes and a file of its own, with and without parameters."""
    client = InferenceClient(server.url, timeout=LONG_S)
    file = tmp_path / "a.png"
    file.write_bytes(IMAGE)
    right = asked(server, HARBOUR).json()
    for image in (IMAGE, file, str(file)):
        assert [dict(one) for one in client.image_classification(image)] == right
    found = client.image_classification(IMAGE, top_k=2, function_to_apply="sigmoid")
    assert [dict(one) for one in found] == asked(
        server, HARBOUR, top_k=2, function_to_apply="sigmoid"
    ).json()


def _segmentation(client: InferenceClient, server: Server) -> None:
    found = client.image_segmentation(
        IMAGE,
        subtask="instance",
        threshold=0.0,
        mask_threshold=0.3,
        overlap_mask_area_threshold=0.0,
    )
    right = asked(
        server, HARBOUR, subtask="instance", threshold=0.0, mask_threshold=0.3,
        overlap_mask_area_threshold=0.0,
    ).json()  # fmt: skip
    assert right
    assert [one.label for one in found] == [one["label"] for one in right]
    masks: list[Any] = [one.mask for one in found]
    assert {mask.size for mask in masks} == {(32, 32)}


def _detection(client: InferenceClient, server: Server) -> None:
    found = client.object_detection(IMAGE, threshold=0.1)
    right = asked(server, HARBOUR, threshold=0.1).json()
    assert right
    assert [dict(one.box) for one in found] == [one["box"] for one in right]


def _zero_shot(client: InferenceClient, server: Server) -> None:
    labels = ["wall", "the harbour", "noon"]
    found = client.zero_shot_image_classification(IMAGE, labels, hypothesis_template="the {}")
    right = asked(server, HARBOUR, candidate_labels=labels, hypothesis_template="the {}").json()
    assert [dict(one) for one in found] == right
    for given in (labels, ",".join(labels)):  # the protocol's own parameters hold no lists
        asks = {"candidate_labels": given, "hypothesis_template": "the {}"}
        same_labels(answers(server, OTHERS[2], files(IMAGE), **asks), [right])


def _documents(client: InferenceClient, server: Server) -> None:
    found = client.document_question_answering(
        IMAGE, "what wall", word_boxes=BOXES, top_k=2  # type: ignore[arg-type]
    )  # fmt: skip
    value = {"question": "what wall", "image": HARBOUR, "word_boxes": BOXES}
    right = asked(server, value, top_k=2).json()
    assert [(one.answer, one.start) for one in found] == [(o["answer"], o["start"]) for o in right]
    [said] = answers(server, OTHERS[3], files(json.dumps(value).encode()), top_k=2)
    assert [one["answer"] for one in said] == [one["answer"] for one in right]


@pytest.mark.parametrize("task", OTHERS)
def test_the_client_gets_what_the_server_says(models: Path, task: str) -> None:
    """Whatever the Hugging Face client makes of the answer, its content is the pipeline's."""
    ask = dict(
        zip(OTHERS, (_segmentation, _detection, _zero_shot, _documents), strict=True)
    )[task]  # fmt: skip
    with server_of(models, task) as server:
        ask(InferenceClient(server.url, timeout=LONG_S), server)
        about = server.client.get("/", headers={"accept": "*/*"}).json()
        assert asked(server, about["example"], **about["parameters"]).status_code == 200
