"""Sounds and images as tensors of numbers, and as files in a tensor of BYTES."""

from __future__ import annotations

import base64
import io
import json
import struct
import wave
import zlib
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from service.core.errors import FieldError, problem
from service.http.oip.numbers import MAX_IN_JSON
from service.tasks import TASKS
from service.tasks.examples import HARBOUR
from tests.front.http_stage import Answer, Stage, ask
from tests.front.test_http_api import refused
from tests.front.test_oip import faults, packed

MODEL = "/v2/models/seen"
INFER = f"{MODEL}/infer"
HEARS_HZ = 16_000
SOUNDS = ("audio-classification", "automatic-speech-recognition", "zero-shot-audio-classification")
IMAGES = (
    "image-classification", "object-detection", "image-segmentation", "depth-estimation",
    "image-feature-extraction", "zero-shot-image-classification", "zero-shot-object-detection",
)  # fmt: skip
SAMPLES = [0.0, 0.5, -0.25, 1.0]
PIXELS = [*range(18)]
"""Of an image of two rows and three columns."""


def stage_of(task: str = "audio-classification", **settings: Any) -> Stage:
    """A server of the task whose model hears 16 kHz, if it hears."""
    stage = Stage(task=task, model="seen", **settings)
    if TASKS[task].media == "audio":
        stage.dispatcher.int_facts["rate_hz"] = HEARS_HZ
    return stage


def tensor(datatype: str, shape: list[int], data: Any = None, **members: Any) -> dict[str, Any]:
    """An input tensor."""
    given = {} if data is None else {"data": data}
    return {"name": "inputs", "datatype": datatype, "shape": shape, **given, **members}


def sent(stage: Stage, one: dict[str, Any], raw: bytes | None = None, **parameters: Any) -> Answer:
    """The answer to a request of one tensor, whose numbers may follow it as bytes."""
    if raw is not None:
        one = {**one, "parameters": {"binary_data_size": len(raw), **one.get("parameters", {})}}
    head = json.dumps({"inputs": [one], "parameters": parameters}).encode()
    headers = [] if raw is None else [("Inference-Header-Content-Length", str(len(head)))]
    return ask(stage.app, head + (raw or b""), path=INFER, headers=headers)


def media(stage: Stage) -> tuple[bytes, ...]:
    """What the one request brought to the dispatcher."""
    [asked] = stage.dispatcher.asks
    assert asked.nbytes >= sum(map(len, asked.media))
    return asked.media


def heard(data: bytes) -> tuple[int, list[float]]:
    """Rate and samples of a WAV of one channel, read by hand."""
    riff, size, kind, fmt, head, code, channels, rate, speed, step, bits, name, length = (
        struct.unpack_from("<4sI4s4sIHHIIHH4sI", data)
    )
    assert (riff, kind, fmt, head, channels, name) == (b"RIFF", b"WAVE", b"fmt ", 16, 1, b"data")
    assert (size, length, step, speed) == (len(data) - 8, len(data) - 44, bits // 8, rate * step)
    letter = {(3, 32): "f", (1, 16): "h"}[code, bits]
    return rate, [*struct.unpack(f"<{length // step}{letter}", data[44:])]


def seen(data: bytes) -> tuple[int, int, list[int]]:
    """Width, height and the red, green and blue of a PNG, read by hand."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        chunks[kind] = data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length) == (zlib.crc32(kind + chunks[kind]),)
        at += 12 + length
    assert [*chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert rest == [8, 2, 0, 0, 0]
    rows = zlib.decompress(chunks[b"IDAT"])
    step = 3 * width + 1
    assert not any(rows[::step])
    return width, height, [value for place, value in enumerate(rows) if place % step]


def example(task: str) -> dict[str, Any]:
    """The parameters without which the task does nothing."""
    return dict(TASKS[task].example_parameters)


# ---------------------------------------------------------------- what is taken


@pytest.mark.parametrize("task", SOUNDS)
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("datatype,letter", [("FP32", "f"), ("INT16", "h")])
@pytest.mark.parametrize("items", [None, 1, 2])
def test_sounds(task: str, binary: bool, datatype: str, letter: str, items: int | None) -> None:
    """Samples arrive as they were sent, one sound or several, beside the task's parameters."""
    numbers = SAMPLES if letter == "f" else [0, 32767, -32768, 5]
    shape = [4] if items is None else [items, 4]
    flat = numbers * (items or 1)
    raw = struct.pack(f"<{len(flat)}{letter}", *flat) if binary else None
    stage = stage_of(task)
    one = tensor(datatype, shape, None if binary else flat)
    answer = sent(stage, one, raw, **example(task), sampling_rate=8000)
    assert answer.status == 200, answer.body
    assert [heard(found) for found in media(stage)] == [(8000, numbers)] * (items or 1)
    [asked] = stage.dispatcher.asks
    assert (json.loads(asked.parameters), asked.is_list) == (example(task), True)
    [out] = answer.json["outputs"]
    assert (out["shape"], len(out["data"])) == ([items or 1], items or 1)


def test_a_wav_is_what_the_library_writes() -> None:
    """Whole samples become the file that the standard library makes of them."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(HEARS_HZ)
        file.writeframes(struct.pack("<3h", 1, -2, 3))
    stage = stage_of()
    assert sent(stage, tensor("INT16", [3], [1, -2, 3])).status == 200
    assert media(stage) == (written.getvalue(),)


@pytest.mark.parametrize(
    "own,overall,rate_hz",
    [(None, None, HEARS_HZ), (None, 8000, 8000), (44100, None, 44100), (44100, 8000, 44100),
     (4000, None, 4000), (192_000, None, 192_000)],
)  # fmt: skip
def test_the_rate(own: int | None, overall: int | None, rate_hz: int) -> None:
    """It is that of the tensor, else that of the request, else the one that the model hears."""
    said = {} if own is None else {"parameters": {"sampling_rate": own}}
    parameters = {} if overall is None else {"sampling_rate": overall}
    stage = stage_of()
    assert sent(stage, tensor("FP32", [4], SAMPLES, **said), None, **parameters).status == 200
    assert [heard(one)[0] for one in media(stage)] == [rate_hz]


def test_a_rate_that_nobody_knows() -> None:
    """Where the model has not said what it hears, the client has to."""
    stage = stage_of()
    del stage.dispatcher.int_facts["rate_hz"]
    assert faults(sent(stage, tensor("FP32", [4], SAMPLES))) == ["/parameters/sampling_rate"]


@pytest.mark.parametrize("task", IMAGES)
@pytest.mark.parametrize("form", ["bytes", "flat", "nested"])
@pytest.mark.parametrize("items", [None, 1, 2])
def test_images(task: str, form: str, items: int | None) -> None:
    """Pixels arrive as they were sent, one image or several, flat or nested or as bytes."""
    shape = [2, 3, 3] if items is None else [items, 2, 3, 3]
    flat = PIXELS * (items or 1)
    rows = [flat[at : at + 3] for at in range(0, len(flat), 3)]
    images = [[rows[at : at + 3], rows[at + 3 : at + 6]] for at in range(0, len(rows), 6)]
    data = {"bytes": None, "flat": flat, "nested": images if items else images[0]}[form]
    stage = stage_of(task)
    raw = bytes(flat) if form == "bytes" else None
    answer = sent(stage, tensor("UINT8", shape, data), raw, **example(task))
    assert answer.status == 200, answer.body
    assert [seen(found) for found in media(stage)] == [(3, 2, PIXELS)] * (items or 1)


@pytest.mark.parametrize("task", ["image-classification", *SOUNDS[:1], "video-classification"])
@pytest.mark.parametrize("binary", [True, False])
def test_files(task: str, binary: bool) -> None:
    """Files in a tensor of BYTES arrive as they are: as bytes, and in base64 as JSON has them."""
    files = [b"\x89PNG", b"RIFF\0\xff"]
    stage = stage_of(task)
    if binary:
        answer = sent(stage, tensor("BYTES", [2]), packed(*files))
    else:
        data = [base64.b64encode(one).decode() for one in files]
        answer = sent(stage, tensor("BYTES", [2], data))
    assert answer.status == 200, answer.body
    assert media(stage) == tuple(files)
    assert faults(sent(stage, tensor("BYTES", [1]), packed(b""))) == ["/inputs/0/data/0"]


@pytest.mark.parametrize("binary", [True, False])
def test_a_question_with_a_picture(binary: bool) -> None:
    """Where an input is more than a file, an element is its JSON, as bytes too."""
    value = json.dumps({"question": "how many", "image": HARBOUR})
    stage = stage_of("document-question-answering")
    one = tensor("BYTES", [1], None if binary else [value])
    answer = sent(stage, one, packed(value.encode()) if binary else None)
    assert answer.status == 200, answer.body
    assert media(stage) == (base64.b64decode(HARBOUR.partition(",")[2]),)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "one,pointer",
    [
        (tensor("FP64", [4], SAMPLES), "datatype"),
        (tensor("UINT8", [4], [1, 2, 3, 4]), "datatype"),
        (tensor("FP32", [], []), "shape"),
        (tensor("FP32", [0], []), "shape"),
        (tensor("FP32", [0, 4], []), "shape"),
        (tensor("FP32", [1, 1, 4], SAMPLES), "shape"),
        (tensor("FP32", [-1], SAMPLES), "shape"),
        (tensor("FP32", [4.0], SAMPLES), "shape"),  # type: ignore[list-item]
        (tensor("FP32", [True], [0.5]), "shape"),
        (tensor("FP32", [3], SAMPLES), "data"),
        (tensor("FP32", [2, 2], [SAMPLES]), "data"),
        (tensor("FP32", [2, 2], [[0.5], [0.5, 0.5, 0.5]]), "data"),
        (tensor("FP32", [4], None), "data"),
        (tensor("FP32", [4], "abcd"), "data"),
        (tensor("FP32", [1], [True]), "data"),
        (tensor("FP32", [1], ["0.5"]), "data"),
        (tensor("FP32", [1], [None]), "data"),
        (tensor("FP32", [2], [0.5, [0.5]]), "data"),
        (tensor("FP32", [1], [10**400]), "data"),
        (tensor("INT16", [1], [0.5]), "data"),
        (tensor("INT16", [1], [32768]), "data"),
        (tensor("FP32", [4], SAMPLES, parameters={"content_type": "np"}), "parameters"),
        *(
            (tensor("FP32", [4], SAMPLES, parameters={"sampling_rate": rate}),
             "parameters/sampling_rate")
            for rate in (0, -1, 3999, 192_001, 16_000.0, "16000", True, 10**30)
        ),
    ],
)  # fmt: skip
def test_bad_sounds(one: dict[str, Any], pointer: str) -> None:
    """Each fault is a 422 that names the member of the tensor and says what to send."""
    stage = stage_of()
    answer = sent(stage, one)
    assert faults(answer) == [f"/inputs/0/{pointer}"]
    assert "send " in answer.json["error"] or "can be said" in answer.json["error"]
    assert not stage.dispatcher.asks


@pytest.mark.parametrize(
    "one,pointer",
    [
        (tensor("FP32", [1, 1, 3], [0.5, 0.5, 0.5]), "datatype"),
        (tensor("UINT8", [3], [1, 2, 3]), "shape"),
        (tensor("UINT8", [1, 3], [1, 2, 3]), "shape"),
        (tensor("UINT8", [3, 1, 1], [1, 2, 3]), "shape"),
        (tensor("UINT8", [1, 1, 4], [1, 2, 3, 4]), "shape"),
        (tensor("UINT8", [0, 1, 3], []), "shape"),
        (tensor("UINT8", [1, 1, 1, 1, 3], [1, 2, 3]), "shape"),
        (tensor("UINT8", [1, 1, 3], [1, 2, 256]), "data"),
        (tensor("UINT8", [1, 1, 3], [1, 2, -1]), "data"),
        (tensor("UINT8", [1, 1, 3], [1, 2, 0.5]), "data"),
        (tensor("UINT8", [1, 1, 3], [[1, 2, 3]]), "data"),
        (tensor("UINT8", [1, 1, 3], [1, 2, 3], parameters={"sampling_rate": 8000}), "parameters"),
    ],
)
def test_bad_images(one: dict[str, Any], pointer: str) -> None:
    """The same for images."""
    stage = stage_of("image-classification")
    assert faults(sent(stage, one)) == [f"/inputs/0/{pointer}"]
    assert not stage.dispatcher.asks


def test_bytes_that_do_not_fit() -> None:
    """As many bytes as the shape says, or a 422 that says how many those are."""
    for raw in (b"", b"\0" * 15, b"\0" * 17):
        answer = sent(stage_of(), tensor("FP32", [4]), raw)
        assert faults(answer) == ["/inputs/0"]
        assert "must be 16" in answer.json["error"]


@pytest.mark.parametrize(
    "task", ["text-classification", "text-generation", "keypoint-matching", "video-classification"]
)
@pytest.mark.parametrize("datatype", ["FP32", "UINT8", "INT64"])
def test_tasks_that_take_no_numbers(task: str, datatype: str) -> None:
    """Any number is a 422 that says what the task takes instead."""
    answer = sent(stage_of(task), tensor(datatype, [1], [1]))
    assert faults(answer) == ["/inputs/0/datatype"]
    assert "BYTES" in answer.json["error"]


def test_token_numbers() -> None:
    """Who sends what a tokenizer has made is told to send the text, and why."""
    ids = {"name": "input_ids", "datatype": "INT64", "shape": [1, 2], "data": [101, 102]}
    mask = {**ids, "name": "attention_mask"}
    for tensors, pointer in (([ids], "/inputs/0/name"), ([ids, mask], "/inputs")):
        stage = stage_of("text-classification")
        answer = ask(stage.app, json.dumps({"inputs": tensors}), path=INFER)
        assert faults(answer) == [pointer]
        assert "token numbers mean something only to" in answer.json["error"]


@pytest.mark.parametrize("task", ["image-classification", "text-classification"])
def test_a_rate_of_what_is_no_sound(task: str) -> None:
    """A rate means nothing to another task, nor beside files."""
    stage = stage_of(task)
    data = "aGk=" if task.startswith("image") else "a"
    answer = sent(stage, tensor("BYTES", [1], [data]), sampling_rate=8000)
    assert faults(answer) == ["/parameters"]
    answer = sent(stage_of(), tensor("BYTES", [1], ["aGk="]), sampling_rate=8000)
    assert faults(answer) == ["/parameters"]


def test_parameters_are_asked_as_ever() -> None:
    """What the task needs or does not take is a 422 beside numbers as beside files."""
    answer = sent(stage_of("zero-shot-audio-classification"), tensor("FP32", [4], SAMPLES))
    assert faults(answer) == ["/parameters/candidate_labels"]
    answer = sent(stage_of("image-classification"), tensor("UINT8", [1, 1, 3], [1] * 3), top_k=0)
    assert faults(answer) == ["/parameters/top_k"]


def test_limits() -> None:
    """Items, numbers as JSON and bytes are counted before one number is looked at."""
    for shape in ([3, 1], [2**40, 2**10]):
        answer = sent(stage_of(max_items=2), tensor("FP32", shape, []))
        assert refused(answer, 413, "payload_too_large")["limit"] == 2
    answer = sent(stage_of(), tensor("FP32", [MAX_IN_JSON + 1], []))
    assert refused(answer, 413, "payload_too_large")["limit"] == MAX_IN_JSON
    assert "binary" in answer.json["error"]
    answer = sent(stage_of(max_body_bytes=1000), tensor("FP32", [251], [0] * 251))
    assert refused(answer, 413, "payload_too_large")["limit"] == 1000
    # A row of one pixel has a third of its bytes more as a file.
    thin = stage_of("image-classification", max_body_bytes=1000)
    raw = bytes(3 * 250)
    answer = sent(thin, tensor("UINT8", [250, 1, 3]), raw)
    assert refused(answer, 413, "payload_too_large")["limit"] == 1000


def test_what_the_model_finds_later() -> None:
    """A lone sound is the tensor; one of several is an element of it, as a file is."""
    stage = stage_of()
    stage.dispatcher.mode = "hold"
    for shape, item, place in (
        ([4], 0, "/inputs/0"), ([1, 4], 0, "/inputs/0/data/0"), ([2, 2], 1, "/inputs/0/data/1")
    ):  # fmt: skip
        late = (FieldError(f"/inputs/{item}", "send a sound of at least 100 ms"),)
        stage.dispatcher.end_with = problem("invalid_input", errors=late)
        assert faults(sent(stage, tensor("FP32", shape, SAMPLES))) == [place]


# ---------------------------------------------------------------- what is said of it


@pytest.mark.parametrize("task", [*SOUNDS, *IMAGES, "text-classification", "keypoint-matching"])
def test_the_metadata_says_what_is_taken(task: str) -> None:
    """Each input of the model's page is taken as it stands there, and described as it is."""
    stage = stage_of(task)
    paths = json.loads(ask(stage.app, method="GET", path="/openapi.json").body)["paths"]
    shown = ask(stage.app, method="GET", path=MODEL).json
    described = paths["/v2/models/{name}"]["get"]["responses"]["200"]["content"]
    Draft202012Validator(described["application/json"]["schema"]).validate(shown)
    infer = paths["/v2/models/{name}/infer"]["post"]["requestBody"]["content"]
    validator = Draft202012Validator(infer["application/json"]["schema"])
    number_kinds = {"FP32", "INT16"} if task in SOUNDS else {"UINT8"} if task in IMAGES else set()
    assert {one["datatype"] for one in shown["inputs"]} == {"BYTES"} | number_kinds
    assert {one["name"] for one in shown["inputs"]} == {"inputs"}
    for one in shown["inputs"]:
        whole = [axis if axis > 0 else 1 for axis in one["shape"]]
        if one["datatype"] == "BYTES":
            continue
        assert ("parameters" in one) == (task in SOUNDS)
        for shape in (whole, whole[1:]):
            good = tensor(one["datatype"], shape, [1] * (3 if shape[-1] == 3 else 1))
            assert validator.is_valid({"inputs": [good]})
            assert sent(stage, good, **example(task)).status == 200
        bad = tensor(one["datatype"], [1, *whole], [1] * whole[-1])
        assert not validator.is_valid({"inputs": [bad]})
    assert not validator.is_valid({"inputs": [tensor("FP64", [1], [1])]})


def test_the_rate_that_the_model_hears() -> None:
    """It stands in the metadata of a sound as soon as it is known."""
    stage = stage_of()
    rates = [
        one.get("parameters") for one in ask(stage.app, method="GET", path=MODEL).json["inputs"]
    ]
    assert rates == [None, {"sampling_rate": HEARS_HZ}, {"sampling_rate": HEARS_HZ}]
    stage.dispatcher.int_facts = {}
    rates = [
        one.get("parameters") for one in ask(stage.app, method="GET", path=MODEL).json["inputs"]
    ]
    assert rates == [None] * 3
