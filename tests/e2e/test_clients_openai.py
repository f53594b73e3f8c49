"""The ``openai`` client, pointed at a server of a real model of sentence embeddings."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest
import tritonclient.http as triton

from tests.e2e.conftest import PATIENT
from tests.e2e.server import LONG_S, Server, clean_environment
from tests.tools import ROOT, sentence_model

pytestmark = pytest.mark.e2e

TEXTS = ["Hello harbour", "The quick brown fox jumps over the lazy dog.", "naïve 東京 🙂", "a"]
NAME = sentence_model().name

RIGHT = """
import json, sys, torch
from transformers import pipeline
pipe = pipeline("feature-extraction", model=sys.argv[1], device="cpu")
means = [torch.tensor(pipe(text)[0]) for text in json.load(sys.stdin)]
vectors = [(mean.mean(0) / mean.mean(0).norm()).tolist() for mean in means]
json.dump([vectors, [len(mean) for mean in means]], sys.stdout)
"""
"""A program of its own: pytest's process needs no torch."""


@pytest.fixture(scope="module")
def right() -> tuple[Any, list[int]]:
    """The mean of the stock pipeline's vectors, of length 1, and how many tokens each text has."""
    done = subprocess.run(
        [sys.executable, "-c", RIGHT, str(sentence_model())], input=json.dumps(TEXTS), text=True,
        env=clean_environment(), cwd=ROOT, capture_output=True, check=True, timeout=LONG_S,
    )  # fmt: skip
    vectors, tokens = json.loads(done.stdout)
    return np.array(vectors), tokens


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The real model."""
    flags = ("--task", "feature-extraction", "--model", str(sentence_model()))
    with Server(*PATIENT, *flags, "--torch-threads", "1") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    """The client as everybody makes it, but that it tries everything once."""
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", timeout=LONG_S, max_retries=0
    ) as made:
        yield made


@pytest.mark.parametrize("form", [None, "float", "base64"])
def test_vectors_are_those_of_the_stock_pipeline(client: Any, right: Any, form: Any) -> None:
    """Each vector is the stock pipeline's, pooled as the folder says, in whatever form it comes."""
    vectors, tokens = right
    form = {} if form is None else {"encoding_format": form}
    answer = client.embeddings.create(model=NAME, input=TEXTS, **form)
    found = [one.embedding for one in answer.data]
    if form == {"encoding_format": "base64"}:  # asked for by name it is not unpacked
        import base64

        found = [np.frombuffer(base64.b64decode(one), dtype="<f4") for one in found]
    assert np.abs(np.array(found) - vectors).max() < 1e-4
    assert [one.index for one in answer.data] == [0, 1, 2, 3]
    assert (answer.model, answer.usage.prompt_tokens) == (NAME, sum(tokens))


def test_one_text_and_many_clients(server: Server, right: Any) -> None:
    """One text is one vector; what many ask at once is each one's own."""
    vectors, _ = right

    async def many() -> Any:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", timeout=LONG_S, max_retries=0
        ) as client:
            asked = [client.embeddings.create(model=NAME, input=text) for text in TEXTS * 8]
            return await asyncio.gather(*asked)

    found = np.array([answer.data[0].embedding for answer in asyncio.run(many())])
    assert np.abs(found - np.tile(vectors, (8, 1))).max() < 1e-4


def test_models(client: Any) -> None:
    """The client finds the model by asking."""
    [found] = client.models.list().data
    assert found.id == NAME
    assert client.models.retrieve(NAME).id == NAME


def test_what_the_client_raises(client: Any, model: Server) -> None:
    """Each refusal is the client's own class for it, with our sentence, code and field."""

    def ask(**members: Any) -> Any:
        return client.embeddings.create(**{"model": NAME, "input": "a", **members})

    with pytest.raises(openai.NotFoundError) as gone:
        ask(model="text-embedding-3-small")
    assert gone.value.code == "not_found"
    assert f"'{NAME}'" in gone.value.message
    for members, param in (
        ({"input": ["a", ""]}, "input/1"),
        ({"input": [[1, 2], [3]]}, "input/0"),
        ({"input": "word " * 300}, "input"),
        ({"dimensions": 64}, "dimensions"),
    ):
        with pytest.raises(openai.UnprocessableEntityError) as bad:
            ask(**members)
        assert (bad.value.code, bad.value.param) == ("invalid_input", param)
    with openai.OpenAI(base_url=f"{model.url}/v1", api_key="none", max_retries=0) as other:
        with pytest.raises(openai.NotFoundError) as wrong:
            other.embeddings.create(model="fill-mask-small", input="a")
        assert "fill-mask" in wrong.value.message


def test_pooled_vectors_everywhere(server: Server, right: Any) -> None:
    """The same vectors come by ``POST /`` and, as a tensor of numbers, by Triton's client."""
    vectors, _ = right
    body = {"inputs": TEXTS, "parameters": {"pooling": "model"}}
    assert np.abs(np.array(server.predict_json(body).json()) - vectors).max() < 1e-4
    lone = server.predict_json({"inputs": TEXTS[1], "parameters": {"pooling": "model"}}).json()
    assert np.abs(np.array(lone) - vectors[1]).max() < 1e-4
    tensor = triton.InferInput("inputs", [4], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode() for text in TEXTS], dtype=np.object_))
    asked = triton.InferenceServerClient(f"127.0.0.1:{server.port}", network_timeout=LONG_S)
    answer = asked.infer(NAME, [tensor], parameters={"pooling": "model"})
    found = answer.as_numpy("outputs")
    assert (found.dtype, found.shape) == (np.float32, (4, 384))
    assert np.abs(found - vectors).max() < 1e-4
