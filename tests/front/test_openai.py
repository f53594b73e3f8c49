"""``/v1`` through the ASGI interface: what the ``openai`` client sends, and what it is told."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from service.core.errors import FieldError, problem
from tests.front.http_stage import Answer, Stage, ask
from tests.front.test_http_api import refused

PATH = "/v1/embeddings"


def stage(**settings: Any) -> Stage:
    """A server of vectors."""
    return Stage(task="feature-extraction", model="org/vectors", **settings)


def embed(on: Stage | None = None, **members: Any) -> Answer:
    """A request as the client sends it."""
    return ask((on or stage()).app, json.dumps({"model": "vectors", **members}), path=PATH)


def faults(answer: Answer) -> list[str]:
    """The fields that a 422 names; the first is the client's ``param``."""
    shown = refused(answer, 422, "invalid_input")
    error = shown["error"]
    found = [one["pointer"] for one in shown["errors"]]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_input")
    assert error["param"] == (found[0].lstrip("/") or None)
    assert all(one["message"] in error["message"] for one in shown["errors"])
    return found


def test_a_list() -> None:
    """A vector for each text, in order, with what they took, as numbers."""
    on = stage()
    answer = embed(on, input=["ab", "abcd"])
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["server-timing"].startswith("queue;dur=")
    assert answer.json == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [2, 0.5, -0.25]},
            {"object": "embedding", "index": 1, "embedding": [4, 0.5, -0.25]},
        ],
        "model": "vectors",
        "usage": {"prompt_tokens": 2, "total_tokens": 2},
    }
    (asked,) = on.dispatcher.asks
    assert (asked.is_list, asked.parameters) == (True, b'{"pooling":"model"}')
    assert (on.outcomes(), on.samples) == ({"ok": 1}, 1)


def test_one_text_as_bytes() -> None:
    """One text is a list of one vector; in base64 it is 32-bit numbers, little-endian."""
    on = stage()
    answer = embed(on, input="ab", encoding_format="base64", user="me", dimensions=3)
    [data] = answer.json["data"]
    assert struct.unpack("<3f", base64.b64decode(data["embedding"])) == (2.0, 0.5, -0.25)
    assert not on.dispatcher.asks[0].is_list


@pytest.mark.parametrize("name", ["vectors", "org/vectors", "other/vectors"])
def test_the_name_of_the_model(name: str) -> None:
    """What stands before the last part of its name is nothing that a client must know."""
    assert embed(model=name, input="a").json["model"] == "vectors"


@pytest.mark.parametrize("name", ["", "text-embedding-3-small", "vectors/", "Vectors"])
def test_another_model(name: str) -> None:
    """Vectors of another model are not to be had, and nobody gets these in their place."""
    on = stage()
    error = refused(embed(on, model=name, input="a"), 404, "not_found")["error"]
    assert (error["code"], error["param"]) == ("not_found", None)
    assert "'vectors'" in error["message"]
    assert on.outcomes() == {"not_found": 1}


@pytest.mark.parametrize(
    "members,pointer",
    [
        ({}, "/input"),
        ({"input": None}, "/input"),
        ({"input": 5}, "/input"),
        ({"input": {"text": "a"}}, "/input"),
        ({"input": []}, "/input"),
        ({"input": ""}, "/input"),
        ({"input": " "}, "/input"),
        ({"input": ["a", ""]}, "/input/1"),
        ({"input": ["a", None]}, "/input/1"),
        ({"input": ["a", {"a": 1}]}, "/input/1"),
        ({"input": "\ud800"}, "/input"),
        ({"input": [1, 2, 3]}, "/input/0"),
        ({"input": [[1, 2], [3]]}, "/input/0"),
        ({"input": "a", "model": None}, "/model"),
        ({"input": "a", "model": 5}, "/model"),
        ({"input": "a", "encoding_format": "int8"}, "/encoding_format"),
        ({"input": "a", "encoding_format": ["float"]}, "/encoding_format"),
        ({"input": "a", "dimensions": 2}, "/dimensions"),
        ({"input": "a", "dimensions": 3.0}, "/dimensions"),
        ({"input": "a", "dimensions": "3"}, "/dimensions"),
        ({"input": "a", "user": 5}, "/user"),
        ({"input": "a", "pooling": "cls"}, ""),
    ],
)
def test_bad_requests(members: dict[str, Any], pointer: str) -> None:
    """Each fault names the field of the client's own body; members are never passed over."""
    on = stage()
    assert faults(embed(on, **members)) == [pointer]
    assert not on.dispatcher.asks


def test_token_numbers_are_refused_with_words() -> None:
    """Whoever sends token numbers is told to send text."""
    error = embed(input=[[1, 2]]).json["error"]
    assert "text, not token numbers" in error["message"]


def test_all_faults_at_once() -> None:
    """Every field at fault is named in one answer."""
    answer = embed(input=[1], model=None, dimensions=1, encoding_format="x", user=1, more=1)
    pointers = ["", "/model", "/input/0", "/encoding_format", "/dimensions", "/user"]
    assert faults(answer) == pointers


@pytest.mark.parametrize("body", ["", "[]", "null", '"a"', "{", "[" * 100_000])
def test_no_request_at_all(body: str) -> None:
    """What is no JSON object is refused and told what to send."""
    answer = ask(stage().app, body, path=PATH)
    assert answer.status in {400, 422}
    assert "'model' and 'input'" in answer.json["error"]["message"]


def test_other_types() -> None:
    """Only JSON is taken, by that name or by none."""
    body = json.dumps({"model": "vectors", "input": "a"})
    headers = [("Content-Type", "text/plain")]
    refused(ask(stage().app, body, path=PATH, headers=headers), 415, "unsupported_media_type")
    assert ask(stage().app, body, path=PATH, headers=[("Content-Type", "")]).status == 200


def test_limits() -> None:
    """The limits of every prediction hold."""
    on = stage(max_items=2)
    shown = refused(embed(on, input=["a"] * 3), 413, "payload_too_large")
    assert (shown["limit"], shown["error"]["message"]) == (2, shown["detail"])


@pytest.mark.parametrize(
    "field,pointer",
    [("/inputs/1", "/input/1"), ("/inputs", "/input"), ("/parameters/pooling", "/model")],
)
def test_what_the_model_finds_later(field: str, pointer: str) -> None:
    """A refusal of one text points at it in the client's own body."""
    on = stage()
    on.dispatcher.mode = "hold"
    on.dispatcher.end_with = problem("invalid_input", errors=(FieldError(field, "too long"),))
    assert faults(embed(on, input=["a", "b"])) == [pointer]


@pytest.mark.parametrize(
    "code,retry", [("model_error", "false"), ("deadline_exceeded", None), ("queue_full", None)]
)
def test_what_is_worth_another_try(code: str, retry: str | None) -> None:
    """The client tries every 5xx again, but for those that it is told not to."""
    on = stage()
    on.dispatcher.admit_says = problem(code, retry_after_s=1.0)
    answer = embed(on, input="a")
    assert answer.json["error"]["type"] == "server_error"
    assert answer.headers.get("x-should-retry") == retry
    assert ("retry-after" in answer.headers) == (code == "queue_full")


def test_load_is_told_at_the_door() -> None:
    """A refusal unread has the client's own words too."""
    on = stage()
    on.dispatcher.gate_says = problem("queue_full", retry_after_s=2.5)
    assert on.door is not None
    refusal = on.door.refusal(b"POST", PATH.encode(), [(b"content-length", b"9")])
    assert refusal is not None
    assert json.loads(refusal[2])["error"]["code"] == "queue_full"


def test_another_task() -> None:
    """A server of another task says so, as a prediction that was asked for and is not there."""
    on = Stage()
    answer = ask(on.app, '{"model":"fill-mask-small","input":"a"}', path=PATH)
    message = refused(answer, 404, "not_found")["error"]["message"]
    assert "fill-mask" in message
    assert "feature-extraction" in message
    assert (on.outcomes(), on.samples) == ({"not_found": 1}, 1)


def test_models() -> None:
    """There is one model, by its name; anything else is 404 in the client's own words."""
    on = stage()
    [listed] = ask(on.app, method="GET", path="/v1/models").json["data"]
    assert (listed["id"], listed["object"], listed["owned_by"]) == ("vectors", "model", "seawall")
    for name in ("vectors", "org/vectors"):
        assert ask(on.app, method="GET", path=f"/v1/models/{name}").json == listed
    answer = ask(on.app, method="GET", path="/v1/models/other")
    assert refused(answer, 404, "not_found")["error"]["code"] == "not_found"
    assert not on.samples


def test_keys(tmp_path: Any) -> None:
    """Embeddings want a key where there are keys; the client's own header carries it."""
    (tmp_path / "keys").write_text("secret\n")
    on = stage(api_keys_file=str(tmp_path / "keys"))
    error = refused(embed(on, input="a"), 401, "unauthorized")["error"]
    assert error["type"] == "invalid_request_error"
    body = json.dumps({"model": "vectors", "input": "a"})
    headers = [("Authorization", "Bearer secret")]
    assert ask(on.app, body, path=PATH, headers=headers).status == 200


def test_only_post() -> None:
    """Embeddings are a POST."""
    answer = ask(stage().app, method="GET", path=PATH)
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"
