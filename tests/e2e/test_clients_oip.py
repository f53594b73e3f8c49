"""Triton's client, pointed at the server: health, metadata, inference as JSON and as bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from tests.e2e.conftest import PATIENT
from tests.e2e.server import GOOD_TEXT, LONG_S, Server

pytestmark = pytest.mark.e2e

PACKAGED = "fill-mask-small"
SYNTHETIC = "synthetic:cpu"
TEXTS = ["Paris is the [MASK] of France.", "The opposite of black is [MASK].", "[MASK] 東京 🙂"]


@pytest.fixture(scope="module")
def synthetic() -> Iterator[Server]:
    """A server that only sleeps, and can rehearse faults."""
    flags = ("--task", "synthetic", "--model", SYNTHETIC, "--rehearsal", "--queue-limit", "3")
    with Server(*PATIENT, *flags) as server:
        yield server


def client_of(server: Server) -> Any:
    """The client; it is for one thread."""
    return triton.InferenceServerClient(
        f"127.0.0.1:{server.port}", connection_timeout=LONG_S, network_timeout=LONG_S
    )


def texts(*given: str, binary: bool = True, column: bool = False) -> list[Any]:
    """The input tensor."""
    data = np.array([text.encode() for text in given], dtype=np.object_)
    data = data.reshape(-1, 1) if column else data
    tensor = triton.InferInput("inputs", list(data.shape), "BYTES")
    tensor.set_data_from_numpy(data, binary_data=binary)
    return [tensor]


def numbers(data: Any, datatype: str, *, binary: bool = True) -> list[Any]:
    """The input tensor, of numbers."""
    tensor = triton.InferInput("inputs", list(data.shape), datatype)
    tensor.set_data_from_numpy(data, binary_data=binary)
    return [tensor]


def files(*given: bytes) -> list[Any]:
    """The input tensor, of whole files."""
    data = np.array(given, dtype=np.object_)
    return numbers(data, "BYTES")


def answers(server: Server, model: str, inputs: list[Any], **parameters: Any) -> list[Any]:
    """What the model says to each item."""
    found = client_of(server).infer(model, inputs, parameters=parameters).as_numpy("outputs")
    return [json.loads(one) for one in found]


def refusal(server: Server, *inputs: Any, model: str = PACKAGED, **more: Any) -> tuple[str, str]:
    """Status and sentence of a request that is refused."""
    with pytest.raises(InferenceServerException) as caught:
        client_of(server).infer(model, *inputs, **more)
    return caught.value.status(), caught.value.message()


def test_health_and_metadata(model: Server) -> None:
    """What is asked before a model is used is answered as the client expects it."""
    client = client_of(model)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(PACKAGED)
    assert client.is_model_ready(PACKAGED, "1")
    assert not client.is_model_ready("other")
    assert not client.is_model_ready(PACKAGED, "2")
    assert client.get_server_metadata()["name"] == "seawall"
    about = client.get_model_metadata(PACKAGED)
    assert about == client.get_model_metadata(PACKAGED, "1")
    [taken], [given] = about["inputs"], about["outputs"]
    assert (taken["name"], taken["datatype"], taken["shape"]) == ("inputs", "BYTES", [-1])
    assert (given["name"], given["datatype"], given["shape"]) == ("outputs", "BYTES", [-1])
    with pytest.raises(InferenceServerException) as caught:
        client.get_model_metadata("other")
    assert f"'{PACKAGED}'" in caught.value.message()


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("wanted", [None, True, False])
@pytest.mark.parametrize("column", [True, False])
def test_answers_are_those_of_the_plain_way(
    model: Server, binary: bool, wanted: bool | None, column: bool
) -> None:
    """Each answer is the JSON that the same input has in a list at ``POST /``, however it comes."""
    outputs = None
    if wanted is not None:
        outputs = [triton.InferRequestedOutput("outputs", binary_data=wanted)]
    answer = client_of(model).infer(
        PACKAGED, texts(*TEXTS, binary=binary, column=column), outputs=outputs, request_id="mine",
        model_version="1" if column else "", parameters={"top_k": 2},
    )  # fmt: skip
    found = answer.as_numpy("outputs")
    assert found.shape == ((3, 1) if column else (3,))
    body = {"inputs": TEXTS, "parameters": {"top_k": 2}}
    right = model.predict_json(body).json()
    for ours, theirs in zip(map(json.loads, found.flatten()), right, strict=True):
        assert [one["token_str"] for one in ours] == [one["token_str"] for one in theirs]
        assert [one["score"] for one in ours] == pytest.approx([one["score"] for one in theirs])
    shown = answer.get_response()
    assert (shown["model_name"], shown["model_version"], shown["id"]) == (PACKAGED, "1", "mine")


def test_what_the_client_is_told(model: Server) -> None:
    """A refusal has its status and a sentence that names the field; no neighbour suffers."""
    with ThreadPoolExecutor(2) as pool:
        good = pool.submit(lambda: client_of(model).infer(PACKAGED, texts(*TEXTS)))
        bad = pool.submit(refusal, model, texts(TEXTS[0], "no mask here"))
        status, sentence = bad.result()
        assert good.result().as_numpy("outputs").shape == (3,)
    assert status == "422"
    assert "inputs/0/data/1: " in sentence
    assert refusal(model, texts(*TEXTS), model="other")[0] == "404"
    status, sentence = refusal(model, texts(*TEXTS), parameters={"top_k": 0})
    assert (status, "parameters/top_k: send an integer from 1 to" in sentence) == ("422", True)
    tokens = triton.InferInput("input_ids", [1, 2], "INT64")
    tokens.set_data_from_numpy(np.array([[101, 102]]))
    status, sentence = refusal(model, [tokens])
    assert (status, "inputs/0/name: " in sentence) == ("422", True)
    wanted = [triton.InferRequestedOutput("outputs", class_count=3)]
    assert refusal(model, texts(*TEXTS), outputs=wanted)[0] == "422"
    packed = {"request_compression_algorithm": "gzip"}
    assert refusal(model, texts(*TEXTS), **packed)[0] == "415"


def test_each_request_is_counted_and_logged_once(model: Server) -> None:
    """An inference is a prediction in metrics and log, under the id that the client sent."""
    before = model.outcomes()
    headers = {"X-Request-Id": "triton-1"}
    client_of(model).infer(PACKAGED, texts(TEXTS[0]), headers=headers)
    refusal(model, texts(TEXTS[0]), model="other", headers={"X-Request-Id": "triton-2"})
    line = model.wait_event("request.done", id="triton-1")
    assert (line["outcome"], line["items"]) == ("ok", 1)
    assert model.wait_event("request.done", id="triton-2")["outcome"] == "not_found"
    after = model.outcomes()
    assert after["ok"] - before.get("ok", 0) == 1
    assert after["not_found"] - before.get("not_found", 0) == 1


def test_a_model_that_loads_nothing(synthetic: Server) -> None:
    """The synthetic model is served under its name, answers and limits and all."""
    client = client_of(synthetic)
    assert client.is_model_ready(SYNTHETIC)
    found = client.infer(SYNTHETIC, texts("one two", "one two three")).as_numpy("outputs")
    assert [json.loads(one)["tokens"] for one in found] == [2, 3]
    status, sentence = refusal(synthetic, texts(*["a"] * 4), model=SYNTHETIC)
    assert (status, "at most 3" in sentence) == ("413", True)


@pytest.mark.parametrize("more", [{"timeout": 50_000}, {"headers": {"X-Request-Timeout-Ms": "50"}}])
def test_a_deadline(synthetic: Server, more: dict[str, Any]) -> None:
    """A deadline that passes is 504, whether a header or the body has named it."""
    synthetic.wait_idle()
    slow = {"X-Rehearse-Fault": "slow=500"}
    more = more | {"headers": slow | more.get("headers", {})}
    status, sentence = refusal(synthetic, texts(GOOD_TEXT), model=SYNTHETIC, **more)
    assert (status, "deadline of 50 ms" in sentence) == ("504", True)
