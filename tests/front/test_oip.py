"""The Open Inference Protocol through the ASGI interface: bodies, tensors, pages, refusals."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from service.core.errors import FieldError, problem
from service.core.lifecycle import ServiceState
from tests.front.http_stage import Answer, Stage, ask
from tests.front.test_http_api import refused

INFER = "/v2/models/fill-mask-small/infer"
VERSIONED = "/v2/models/fill-mask-small/versions/1/infer"
MODEL = "/v2/models/fill-mask-small"


def tensor(*data: Any, **other: Any) -> dict[str, Any]:
    """The one input tensor."""
    return {"name": "inputs", "datatype": "BYTES", "shape": [len(data)], "data": list(data)} | other


def request(*data: Any, **other: Any) -> str:
    """A request of that tensor."""
    return json.dumps({"inputs": [tensor(*data)]} | other)


def packed(*elements: bytes) -> bytes:
    """A BYTES tensor as bytes."""
    return b"".join(struct.pack("<I", len(one)) + one for one in elements)


def unpacked(data: bytes) -> list[bytes]:
    """Its elements."""
    found = []
    while data:
        (length,) = struct.unpack("<I", data[:4])
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


def with_bytes(head: dict[str, Any], raw: bytes, path: str = INFER, **settings: Any) -> Answer:
    """A request whose tensor follows its JSON."""
    text = json.dumps(head).encode()
    headers = [("Inference-Header-Content-Length", str(len(text)))]
    return ask(Stage(**settings).app, text + raw, path=path, headers=headers)


def binary(*elements: bytes, **other: Any) -> tuple[dict[str, Any], bytes]:
    """A request of elements as bytes."""
    raw = packed(*elements)
    one = tensor(**other, parameters={"binary_data_size": len(raw)}, shape=[len(elements)])
    del one["data"]
    return {"inputs": [one], "parameters": {"binary_data_output": True}}, raw


def faults(answer: Answer) -> list[str]:
    """The fields that a 422 names; they stand in the sentence too."""
    shown = refused(answer, 422, "invalid_input")
    found = [error["pointer"] for error in shown["errors"]]
    assert all(pointer.lstrip("/") in shown["error"] for pointer in found)
    return found


# ---------------------------------------------------------------- requests and answers


@pytest.mark.parametrize("path", [INFER, VERSIONED])
def test_a_request_of_json(path: str) -> None:
    """N texts in, n answers out, each the JSON of one; id and parameters are taken over."""
    stage = Stage()
    body = request("a M", "héllo M", id="mine", parameters={"top_k": 3})
    answer = ask(stage.app, body, path=path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["server-timing"].startswith("queue;dur=")
    assert answer.json == {
        "model_name": "fill-mask-small",
        "model_version": "1",
        "id": "mine",
        "outputs": [
            {
                "name": "outputs", "datatype": "BYTES", "shape": [2],
                "data": ['{"bytes": 3, "top_k": 3}', '{"bytes": 8, "top_k": 3}'],
            }
        ],
    }  # fmt: skip
    (asked,) = stage.dispatcher.asks
    assert (asked.inputs, asked.parameters, asked.is_list) == (
        ("a M", "héllo M"), b'{"top_k":3}', True,
    )  # fmt: skip
    assert (stage.outcomes(), stage.samples) == ({"ok": 1}, 1)
    [line] = stage.lines("request.done")
    assert (line["items"], line["status"]) == (2, 200)


def test_a_request_of_bytes() -> None:
    """Elements behind the JSON are taken as bytes, and answers come back so where it is wanted."""
    answer = with_bytes(*binary(b"a M", "héllo M".encode()))
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "application/octet-stream"
    length = int(answer.headers["inference-header-content-length"])
    [out] = json.loads(answer.body[:length])["outputs"]
    raw = answer.body[length:]
    assert out == {
        "name": "outputs", "datatype": "BYTES", "shape": [2],
        "parameters": {"binary_data_size": len(raw)},
    }  # fmt: skip
    assert unpacked(raw) == [b'{"bytes": 3}', b'{"bytes": 8}']


@pytest.mark.parametrize(
    "wanted,overall,comes",
    [(None, True, True), (None, None, False), (True, None, True), (False, True, False)],
)
def test_the_form_of_the_answer(wanted: Any, overall: Any, comes: bool) -> None:
    """What is said of an output rules over what is said of all; without a word it is JSON."""
    parameters = {} if overall is None else {"binary_data_output": overall}
    output: dict[str, Any] = {"name": "outputs"}
    if wanted is not None:
        output["parameters"] = {"binary_data": wanted}
    body = request("a M", parameters=parameters, outputs=[output])
    answer = ask(Stage().app, body, path=INFER)
    assert answer.status == 200, answer.body
    assert ("inference-header-content-length" in answer.headers) == comes


def test_members_that_are_null() -> None:
    """Clients that write every member are understood."""
    empty = {"id": None, "parameters": None, "outputs": None, "raw_input_contents": None}
    one = tensor("a M", parameters=None)
    answer = ask(Stage().app, json.dumps({"inputs": [one], **empty}), path=INFER)
    assert answer.status == 200
    assert "id" not in answer.json


@pytest.mark.parametrize("data", [[["a M"], ["b M"]], ["a M", "b M"]])
def test_one_column(data: Any) -> None:
    """A batch of one column comes back as one, nested or flat."""
    body = json.dumps({"inputs": [tensor() | {"shape": [2, 1], "data": data}]})
    [out] = ask(Stage().app, body, path=INFER).json["outputs"]
    assert (out["shape"], out["data"]) == ([2, 1], ['{"bytes": 3}'] * 2)


@pytest.mark.parametrize(
    "kind",
    ["", "application/json; charset=utf-8", "application/octet-stream",
     "application/x-www-form-urlencoded", "application/vnd.x+json"],
)  # fmt: skip
def test_types_that_are_json(kind: str) -> None:
    """JSON is JSON whatever a client calls it, or if it says nothing."""
    headers = [("Content-Type", kind)]
    assert ask(Stage().app, request("a M"), path=INFER, headers=headers).status == 200


def test_other_types() -> None:
    """Another type is 415."""
    headers = [("Content-Type", "text/plain")]
    answer = ask(Stage().app, request("a M"), path=INFER, headers=headers)
    refused(answer, 415, "unsupported_media_type")


def test_content_type_of_texts() -> None:
    """What some clients say of texts is known; another kind of content is refused."""
    said = {"content_type": "str"}
    body = {"inputs": [tensor("a M", parameters=said)], "parameters": said}
    assert ask(Stage().app, json.dumps(body), path=INFER).status == 200
    body["parameters"] = {"content_type": "np"}
    assert faults(ask(Stage().app, json.dumps(body), path=INFER)) == ["/parameters/content_type"]


@pytest.mark.parametrize(
    "header,body,allowed",
    [(None, 250_000, 0.25), ("100", 250_000, 0.1), ("1000", 250_000, 0.25), (None, 10**400, 1e9)],
)
def test_a_timeout_in_the_body(header: str | None, body: int, allowed: float) -> None:
    """A time-out in microseconds is a deadline like that of a header; the smaller one holds."""
    stage = Stage()
    headers = [] if header is None else [("X-Request-Timeout-Ms", header)]
    ask(stage.app, request("a M", parameters={"timeout": body}), path=INFER, headers=headers)
    assert stage.dispatcher.asks[0].timeout_s == pytest.approx(allowed)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "body,pointer",
    [
        ({}, "/inputs"),
        ({"inputs": None}, "/inputs"),
        ({"inputs": "a M"}, "/inputs"),
        ({"inputs": ["a M"]}, "/inputs"),
        ({"inputs": []}, "/inputs"),
        ({"inputs": [tensor("a M"), tensor("a M")]}, "/inputs"),
        ({"inputs": [tensor("a M")], "more": 1}, ""),
        ({"inputs": [tensor("a M", more=1)]}, "/inputs/0"),
        ({"inputs": [tensor("a M", name="text")]}, "/inputs/0/name"),
        ({"inputs": [tensor(1, 2, datatype="INT64")]}, "/inputs/0/datatype"),
        ({"inputs": [tensor("a M", datatype=None)]}, "/inputs/0/datatype"),
        ({"inputs": [tensor("a M", shape=None)]}, "/inputs/0/shape"),
        ({"inputs": [tensor("a M", shape=[])]}, "/inputs/0/shape"),
        ({"inputs": [tensor("a M", shape=[1, 2])]}, "/inputs/0/shape"),
        ({"inputs": [tensor("a M", shape=[1, 1, 1])]}, "/inputs/0/shape"),
        ({"inputs": [tensor("a M", shape=[-1])]}, "/inputs/0/shape"),
        ({"inputs": [tensor("a M", shape=[True])]}, "/inputs/0/shape"),
        ({"inputs": [tensor("a M", shape=[10**30])]}, "/inputs/0/shape"),
        ({"inputs": [tensor(shape=[0])]}, "/inputs/0/shape"),
        ({"inputs": [tensor("a M", shape=[2])]}, "/inputs/0/data"),
        ({"inputs": [tensor("a M", data="a M")]}, "/inputs/0/data"),
        ({"inputs": [tensor("a M", data=None)]}, "/inputs/0/data"),
        ({"inputs": [tensor("a M", 5)]}, "/inputs/0/data/1"),
        ({"inputs": [tensor("a M", None)]}, "/inputs/0/data/1"),
        ({"inputs": [tensor("a M", ["b M"])]}, "/inputs/0/data/1"),
        ({"inputs": [tensor("a M", "")]}, "/inputs/0/data/1"),
        ({"inputs": [tensor("a M", "\ud800")]}, "/inputs/0/data/1"),
        ({"inputs": [tensor("a M", parameters=[])]}, "/inputs/0/parameters"),
        (
            {"inputs": [tensor("a M", parameters={"shared_memory_region": "r"})]},
            "/inputs/0/parameters",
        ),
        (
            {"inputs": [tensor("a M", parameters={"binary_data_size": 7})]},
            "/inputs/0/parameters/binary_data_size",
        ),
        ({"inputs": [tensor("a M")], "parameters": []}, "/parameters"),
        ({"inputs": [tensor("a M")], "parameters": {"top_k": 0}}, "/parameters/top_k"),
        ({"inputs": [tensor("a M")], "parameters": {"priority": 1}}, "/parameters"),
        ({"inputs": [tensor("a M")], "parameters": {"timeout": 0}}, "/parameters/timeout"),
        ({"inputs": [tensor("a M")], "parameters": {"timeout": 0.5}}, "/parameters/timeout"),
        (
            {"inputs": [tensor("a M")], "parameters": {"binary_data_output": 1}},
            "/parameters/binary_data_output",
        ),
        ({"inputs": [tensor("a M")], "id": 5}, "/id"),
        ({"inputs": [tensor("a M")], "id": "a" * 1025}, "/id"),
        ({"inputs": [tensor("a M")], "outputs": "outputs"}, "/outputs"),
        ({"inputs": [tensor("a M")], "outputs": [{}, {}]}, "/outputs"),
        ({"inputs": [tensor("a M")], "outputs": [{"name": "o"}]}, "/outputs/0/name"),
        (
            {
                "inputs": [tensor("a M")],
                "outputs": [{"name": "outputs", "parameters": {"classification": 2}}],
            },
            "/outputs/0/parameters",
        ),
    ],
)
def test_bad_requests(body: Any, pointer: str) -> None:
    """Each fault is a 422 that names the field in the client's own body; nothing is guessed."""
    stage = Stage()
    assert faults(ask(stage.app, json.dumps(body), path=INFER)) == [pointer]
    assert stage.outcomes() == {"invalid_input": 1}
    assert not stage.dispatcher.asks


@pytest.mark.parametrize(
    "body", ["", " ", "null", "[]", '"x"', "12", '{"inputs":', "{'inputs':[]}", "[" * 100_000]
)
def test_no_request_at_all(body: str) -> None:
    """What is no JSON object is refused, and told what one looks like."""
    answer = ask(Stage().app, body, path=INFER)
    assert answer.status in {400, 422}
    assert "BYTES" in answer.json["error"]


@pytest.mark.parametrize("value", ["NaN", "1e999"])
def test_numbers_that_are_none(value: str) -> None:
    """What a strict parser does not take is named, never served."""
    body = request("a M", parameters={"top_k": 5}).replace("5", value)
    assert faults(ask(Stage().app, body, path=INFER)) == ["/parameters/top_k"]


@pytest.mark.parametrize(
    "raw", [b"", b"\x03\0\0\0a M", packed(b"a M", b"b M", b"c M"), packed(b"a M") + b"\x09\0\0\0b",
            packed(b"a M", b"b M") + b"\0", b"\xff\xff\xff\xff" * 2]
)  # fmt: skip
def test_torn_elements(raw: bytes) -> None:
    """Bytes that are not as many elements as the shape says are refused as a whole."""
    head, _ = binary(b"a M", b"b M")
    head["inputs"][0]["parameters"]["binary_data_size"] = len(raw)
    assert faults(with_bytes(head, raw)) == ["/inputs/0"]


def test_a_wrong_size() -> None:
    """A size that is not that of the bytes is refused; so are bytes that nothing speaks of."""
    head, raw = binary(b"a M")
    head["inputs"][0]["parameters"]["binary_data_size"] += 1
    assert faults(with_bytes(head, raw)) == ["/inputs/0/parameters/binary_data_size"]
    head["inputs"][0]["parameters"]["binary_data_size"] = True
    assert faults(with_bytes(head, raw[:1])) == ["/inputs/0/parameters/binary_data_size"]
    answer = with_bytes({"inputs": [tensor("a M")]}, raw)
    assert faults(answer) == ["/inputs/0/parameters/binary_data_size"]
    head, raw = binary(b"a M")
    head["inputs"][0]["data"] = ["a M"]
    assert faults(with_bytes(head, raw)) == ["/inputs/0/data"]


def test_elements_that_are_no_text() -> None:
    """Bytes that are no UTF-8 are refused by their place."""
    assert faults(with_bytes(*binary(b"a M", b"\xff"))) == ["/inputs/0/data/1"]


@pytest.mark.parametrize("length", ["", "0", "-1", "x", "1.5", "99999", "9" * 30, "\xb2"])
def test_a_bad_length_of_json(length: str) -> None:
    """A length of the JSON that cannot be is a 400 that names the header."""
    headers = [("Inference-Header-Content-Length", length.encode("latin-1"))]
    answer = ask(Stage().app, request("a M"), path=INFER, headers=headers)
    shown = refused(answer, 400, "malformed_request")
    assert "Inference-Header-Content-Length" in shown["error"]


def test_limits() -> None:
    """Elements are inputs: the limits on them hold, with the number in the answer."""
    stage = Stage(max_items=2)
    shown = refused(ask(stage.app, request(*["a M"] * 3), path=INFER), 413, "payload_too_large")
    assert (shown["limit"], shown["error"]) == (2, shown["detail"])
    long = request("a" * 100_001)
    refused(ask(stage.app, long, path=INFER), 413, "payload_too_large")
    stage = Stage(max_body_bytes=1000)
    refused(ask(stage.app, request("a" * 1000), path=INFER), 413, "payload_too_large")


@pytest.mark.parametrize(
    "path",
    ["/v2/models/other/infer", "/v2/models/fill-mask-small/versions/2/infer",
     "/v2/models/../infer", "/v2/models/%00/infer"],
)  # fmt: skip
def test_another_model(path: str) -> None:
    """Another name or version is 404 that says which there is, and a prediction that ended so."""
    stage = Stage()
    shown = refused(ask(stage.app, request("a M"), path=path), 404, "not_found")
    assert "'fill-mask-small'" in shown["error"]
    assert (stage.outcomes(), stage.samples) == ({"not_found": 1}, 1)


@pytest.mark.parametrize("path", ["/v2/models/other/infer", "/v1/embeddings"])
@pytest.mark.parametrize("code", ["model_loading", "queue_full", "circuit_open", "draining"])
def test_the_address_comes_before_the_load(path: str, code: str) -> None:
    """Who asks for what is not here is told so at once, not to come again when there is room."""
    stage = Stage()
    stage.dispatcher.gate_says = problem(code, retry_after_s=2.0)
    answer = ask(stage.app, request("a M"), path=path)
    refused(answer, 404, "not_found")
    assert "retry-after" not in answer.headers
    assert stage.outcomes() == {"not_found": 1}
    assert stage.door is not None
    assert stage.door.refusal(b"POST", path.encode(), [(b"content-length", b"9")]) is None


def test_what_the_model_finds_later() -> None:
    """A refusal of one item points at its element; one of the whole points nowhere."""
    stage = Stage()
    stage.dispatcher.mode = "hold"
    stage.dispatcher.end_with = problem(
        "invalid_input", errors=(FieldError("/inputs/1", "too long"),)
    )
    assert faults(ask(stage.app, request("a M", "b M"), path=INFER)) == ["/inputs/0/data/1"]
    stage.dispatcher.end_with = problem("deadline_exceeded")
    shown = refused(ask(stage.app, request("a M"), path=INFER), 504, "deadline_exceeded")
    assert shown["error"] == shown["detail"]


def test_load_is_told_as_everywhere() -> None:
    """A full queue is a 503 that says when to come back, with its body unread."""
    stage = Stage()
    stage.dispatcher.gate_says = problem("queue_full", retry_after_s=2.5)
    answer = ask(stage.app, request("a M"), path=INFER)
    shown = refused(answer, 503, "queue_full")
    assert (answer.headers["retry-after"], shown["error"]) == ("3", shown["detail"])
    assert answer.headers["x-envoy-ratelimited"] == "true"
    assert stage.door is not None
    refusal = stage.door.refusal(b"POST", INFER.encode(), [(b"content-length", b"9")])
    assert refusal is not None
    assert json.loads(refusal[2])["error"] == shown["error"]


# ---------------------------------------------------------------- one vector for each text


def test_vectors() -> None:
    """Where each answer is one vector the output is FP32, of a row for each text."""
    stage = Stage(task="feature-extraction", model="vectors")
    body = request("ab", "abcd", parameters={"pooling": "model"})
    [out] = ask(stage.app, body, path="/v2/models/vectors/infer").json["outputs"]
    assert out == {
        "name": "outputs", "datatype": "FP32", "shape": [2, 3],
        "data": [2.0, 0.5, -0.25, 4.0, 0.5, -0.25],
    }  # fmt: skip
    head, raw = binary(b"ab", b"abcd")
    head["parameters"]["pooling"] = "mean"
    answer = with_bytes(
        head, raw, "/v2/models/vectors/infer", task="feature-extraction", model="vectors"
    )
    length = int(answer.headers["inference-header-content-length"])
    assert struct.unpack("<6f", answer.body[length:]) == (2.0, 0.5, -0.25, 4.0, 0.5, -0.25)


# ---------------------------------------------------------------- inputs that are JSON themselves


@pytest.mark.parametrize(
    "element,travels",
    [
        ('[{"role": "user", "content": "a"}]', '\0[{"role":"user","content":"a"}]'),
        ("[INST] a", "[INST] a"),
        ("[1, 2]", "[1, 2]"),
        ('{"text": "a"}', '{"text": "a"}'),
        ('{"text":', '{"text":'),
        ("[" * 30_000, "[" * 30_000),
    ],
)
def test_an_element_that_is_json(element: str, travels: str) -> None:
    """JSON that is an input of the task is taken as that; any other text is itself."""
    stage = Stage(task="text-generation", model="words", max_chars=100_000)
    answer = ask(stage.app, request(element, "b"), path="/v2/models/words/infer")
    assert answer.status == 200, answer.body
    assert stage.dispatcher.asks[0].inputs == (travels, "b")


def test_an_element_that_must_be_json() -> None:
    """A task that takes nothing but JSON names what is wrong inside, by the element."""
    stage = Stage(task="table-question-answering", model="tables")
    body = request('{"table": {"a": []}, "query": "a"}')
    assert faults(ask(stage.app, body, path="/v2/models/tables/infer")) == [
        "/inputs/0/data/0/table"
    ]


# ---------------------------------------------------------------- health and metadata


def get(stage: Stage, path: str, method: str = "GET") -> Answer:
    """A page."""
    return ask(stage.app, method=method, path=path)


def test_health() -> None:
    """The probes follow the server's own, also by HEAD, and never speak of another model."""
    stage = Stage()
    paths = ("/v2/health/ready", f"{MODEL}/ready", f"{MODEL}/versions/1/ready")
    assert get(stage, "/v2/health/live").json == {"live": True}
    for path in paths:
        assert (get(stage, path).status, get(stage, path).json["ready"]) == (200, True)
        assert get(stage, path, "HEAD").body == b""
    assert get(stage, f"{MODEL}/ready").json["name"] == "fill-mask-small"
    stage.dispatcher.readiness = (False, "loading the model")
    for path in paths:
        assert (get(stage, path).status, get(stage, path).json["ready"]) == (503, False)
    stage.dispatcher.state = ServiceState.FAILED
    assert get(stage, "/v2/health/live").status == 503
    stage.dispatcher.readiness = (True, "ready for traffic")
    stage.context.closing = True
    assert get(stage, paths[0]).status == 503


def test_metadata() -> None:
    """The server and its model say what they are and take, while the model loads too."""
    stage = Stage()
    stage.dispatcher.readiness = (False, "loading the model")
    assert get(stage, "/v2").json == {
        "name": "seawall", "version": "1.2.3", "extensions": ["binary_tensor_data"],
    }  # fmt: skip
    shown = get(stage, MODEL).json
    assert shown == get(stage, f"{MODEL}/versions/1").json
    assert (shown["name"], shown["versions"]) == ("fill-mask-small", ["1"])
    assert shown["inputs"] == [{"name": "inputs", "datatype": "BYTES", "shape": [-1]}]
    assert shown["outputs"] == [{"name": "outputs", "datatype": "BYTES", "shape": [-1]}]


@pytest.mark.parametrize(
    "path", ["/v2/models/other", "/v2/models/other/ready", f"{MODEL}/versions/2", "/v2/nothing"]
)
def test_pages_of_nothing(path: str) -> None:
    """A page that is not there is 404 with a sentence where such clients read it."""
    stage = Stage()
    shown = refused(get(stage, path), 404, "not_found")
    assert shown["error"] == shown["detail"]
    assert not stage.samples


@pytest.mark.parametrize("path", [INFER, VERSIONED])
def test_only_post(path: str) -> None:
    """Inference is a POST; nothing else is counted as a prediction."""
    stage = Stage()
    answer = get(stage, path)
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"
    assert stage.value("http_responses_total", route="/v2/{page}", status="405") == 1
    assert not stage.samples


def test_keys(tmp_path: Any) -> None:
    """Inference wants a key where there are keys, before a word about names; probes want none."""
    (tmp_path / "keys").write_text("secret\n")
    stage = Stage(api_keys_file=str(tmp_path / "keys"))
    for path in (INFER, "/v2/models/other/infer"):
        shown = refused(ask(stage.app, request("a M"), path=path), 401, "unauthorized")
        assert shown["error"] == shown["detail"]
    assert get(stage, "/v2/health/ready").status == 200
    headers = [("Authorization", "Bearer secret")]
    assert ask(stage.app, request("a M"), path=INFER, headers=headers).status == 200
