"""Bad input gets a clear refusal that names the field, and leaves the server as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.load import Answer, Call
from tests.e2e.server import GOOD_TEXT, Server

pytestmark = pytest.mark.e2e

JSON = {"Content-Type": "application/json"}
GOOD = Call({"inputs": GOOD_TEXT})
SECRET = "SECRET-7731"

LEAKS = ("Traceback", "Error(", "Exception", "text_target", "TextInputSequence", "/service/", ".py")


def raw(body: str | bytes) -> Call:
    """A body sent as JSON, whatever it is."""
    return Call(body, JSON)


def check_refused(answer: Answer, *codes: int, names: str = "") -> dict[str, Any]:
    """A client fault: documented status, stable code, request id, and nothing of the inside."""
    assert answer.status in codes, (answer.status, answer.body[:300])
    text = answer.body.decode()
    problem: dict[str, Any] = answer.json
    assert problem["status"] == answer.status
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert problem["retryable"] is False
    assert [leak for leak in LEAKS if leak in text] == []
    assert names in text
    return problem


@pytest.mark.parametrize(
    "body,names",
    [
        ("{}", "/inputs"),
        ('{"inputs":null}', "/inputs"),
        ('{"inputs":5}', "/inputs"),
        ('{"inputs":true}', "/inputs"),
        ('{"inputs":{"text":"a [MASK]"}}', "/inputs"),
        ('{"inputs":[null]}', "/inputs/0"),
        ('{"inputs":["a [MASK]",7]}', "/inputs/1"),
        ('{"Inputs":"a [MASK]"}', "inputs"),
        ('{"inputs":[["a [MASK]"]]}', "/inputs/0"),
        ('{"inputs":[]}', "/inputs"),
        ('{"inputs":""}', "/inputs"),
    ],
)
def test_unexpected_shapes_never_reach_the_tokenizer(model: Server, body: str, names: str) -> None:
    """A body of another shape is refused by us, and the message names what is wrong in it."""
    [answer] = model.send(raw(body)).result()
    check_refused(answer, 422, names=names)


def test_fifty_wrong_shapes_leave_the_breaker_closed(model: Server) -> None:
    """Client faults in a row never count against the model."""
    answers = model.send(*[raw('{"inputs":5}')] * 50).result()
    assert {answer.code for answer in answers} == {"invalid_input"}
    assert model.breaker == "closed"


@pytest.mark.parametrize(
    "template", ["%s", '{"inputs":"a [MASK]","parameters":%s}', '{"inputs":%s}']
)
def test_deep_nesting_is_a_client_fault(model: Server, template: str) -> None:
    """100,000 brackets, wherever they stand, are refused by the same process."""
    pid = model.pid
    [answer] = model.send(raw(template % ("[" * 100_000 + "]" * 100_000))).result()
    check_refused(answer, 400, 413, 422)
    assert model.status()["workers"][0]["pid"] == model.worker_pid
    assert model.pid == pid


@pytest.mark.parametrize(
    "body",
    [
        "", " ", "null", "[]", '"x"', "12", '{"inputs":"a [MASK]"} x', "{'inputs':'a [MASK]'}",
        '{"inputs":"a [MASK]"', b"\xff\xfe", b'{"inputs":"\xff [MASK]"}',
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(model: Server, body: str | bytes) -> None:
    """A body that is no JSON, or no object, is a 4xx and never a 500."""
    [answer] = model.send(raw(body)).result()
    check_refused(answer, 400, 422)


@pytest.mark.parametrize(
    "body",
    [
        r'{"inputs":"a \ud800 [MASK]"}',
        r'{"inputs":"a [MASK]","\ud800":1}',
        r'{"inputs":"a [MASK]","parameters":{"targets":["\ud800"]}}',
        r'{"inputs":["a [MASK]","b \ud800 [MASK]"]}',
    ],
)
def test_lone_surrogates_are_refused(model: Server, body: str) -> None:
    """Half a character is refused before anything has to encode it."""
    [answer] = model.send(raw(body)).result()
    check_refused(answer, 400, 422)
    assert model.get("/metrics").status_code == 200


def test_a_text_longer_than_the_model_takes(model: Server) -> None:
    """Too many tokens: refused with limit and actual number; its seven neighbours are served."""
    long = Call({"inputs": "the " * 2000 + "[MASK]"})
    answers = model.send(long, *[GOOD] * 7).result()
    problem = check_refused(answers[0], 422, names="512")
    assert problem["limit"] == 512
    assert "2003" in problem["errors"][0]["message"]
    assert [answer.status for answer in answers[1:]] == [200] * 7


def test_a_huge_text_is_refused_before_tokenising(model: Server) -> None:
    """Bytes and characters are judged first: neither 2 MB of dots nor 0.9 MB is tokenised."""
    answers = model.send(
        *[raw(json.dumps({"inputs": "." * 2_000_000}))] * 4,
        raw(json.dumps({"inputs": "." * 900_000 + "[MASK]"})),
    ).result()
    for answer in answers:
        check_refused(answer, 413)
        assert answer.json["limit"] > 0


def test_the_number_of_items(model: Server) -> None:
    """One over the maximum is refused with the maximum; exactly the maximum gets every answer."""
    most = model.status()["settings"]["max_items"]
    item = "a [MASK]"
    far, over, exact = model.send(
        Call({"inputs": [item] * 10_000}),
        Call({"inputs": [item] * (most + 1)}),
        Call({"inputs": [item] * most}, {"X-Request-Timeout-Ms": "60000"}),
    ).result()
    for answer in (far, over):
        problem = check_refused(answer, 413, names=str(most))
        assert problem["limit"] == most
    assert exact.status == 200
    assert len(exact.json) == most


@pytest.mark.parametrize(
    "value",
    ["1000000000", "-1", "0", "1" + "0" * 30, '"5"', "2.5", "true", "[]", "{}", "NaN", "1e999"],
)
def test_top_k_out_of_range(model: Server, value: str) -> None:
    """A wrong ``top_k`` is refused by name and range; its neighbour is served."""
    body = f'{{"inputs":"a [MASK]","parameters":{{"top_k":{value}}}}}'
    bad, good = model.send(raw(body), GOOD).result()
    check_refused(bad, 400, 422, names="top_k")
    assert good.status == 200


def test_null_is_as_if_absent(model: Server) -> None:
    """``null`` for a parameter is its default."""
    body = '{"inputs":"a [MASK]","parameters":{"top_k":null}}'
    null, absent = model.send(raw(body), GOOD).result()
    assert len(null.json) == len(absent.json) == 5


@pytest.mark.parametrize(
    "parameters",
    [
        {"num_workers": 6},
        {"batch_size": 100_000},
        {"tokenizer_kwargs": {"max_length": 100_000, "padding": "max_length"}},
        {"model_kwargs": {}},
        {"device": "cpu"},
    ],
)
def test_only_listed_parameters_pass(model: Server, parameters: dict[str, Any]) -> None:
    """What is not on the task's list is refused, and starts no process."""
    children = len(model.children())
    [answer] = model.send(Call({"inputs": ["a [MASK]"] * 8, "parameters": parameters})).result()
    check_refused(answer, 422, names="unknown parameter")
    assert len(model.children()) == children


def test_an_unknown_target_is_a_client_fault(model: Server) -> None:
    """Targets of which nothing is left are refused by their own pointer."""
    body = {"inputs": "a [MASK]", "parameters": {"targets": ["\u0001"]}}
    [answer] = model.send(Call(body)).result()
    problem = check_refused(answer, 422)
    assert problem["errors"][0]["pointer"] == "/parameters/targets"


def test_the_first_bad_item_of_a_list_is_named(model: Server) -> None:
    """An item without a mask fails its list, with its place in it."""
    [answer] = model.send(Call({"inputs": ["a [MASK]", "no mask"]})).result()
    problem = check_refused(answer, 422)
    assert problem["errors"] == [
        {"pointer": "/inputs/1", "message": "send a text with at least one mask, written as [MASK]"}
    ]


def test_two_hundred_bad_inputs_in_a_row(model: Server) -> None:
    """200 bad requests of every kind leave the server healthy and the breaker closed."""
    kinds = [
        Call("no mask at all"), raw("{"), raw('{"inputs":7}'), Call({"inputs": "the " * 600}),
        Call("x", {"X-Request-Timeout-Ms": "soon"}), Call("x", {"Content-Type": "image/png"}),
        Call({"inputs": "a [MASK]", "parameters": {"top_k": -1}}), Call("a=b&c=d"),
    ]  # fmt: skip
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    kinds[-1] = Call("a=b&c=d", form)
    before = model.outcomes().get("ok", 0)
    for _ in range(200 // len(kinds)):
        answers = model.send(*kinds).result()
        assert [answer.status for answer in answers] == [422, 400, 422, 422, 400, 415, 422, 422]
    assert model.breaker == "closed"
    assert model.outcomes().get("ok", 0) == before
    assert model.predict(GOOD_TEXT).status_code == 200


def test_no_input_is_ever_logged(model: Server) -> None:
    """Whatever happens to a request, its text is in no log line and in no metric."""
    headers = {"X-Rehearse-Fault": "raise"}
    calls = [
        Call(f"{SECRET} without a mask"),
        Call({"inputs": f"{SECRET} " * 400 + "[MASK]"}),
        Call({"inputs": f"{SECRET} [MASK]", "parameters": {"top_k": SECRET}}),
        Call({"inputs": f"{SECRET} [MASK]", "parameters": {SECRET: 1}}),
        Call(f"{SECRET} [MASK]", headers),
        Call(f"{SECRET} [MASK]", {"X-Rehearse-Fault": "oom-always"}),
        Call(f"{SECRET} [MASK]", {"X-Request-Id": f"{SECRET} {SECRET}"}),
    ]
    answers = model.send(*calls).result()
    model.wait_idle()
    late = {"X-Rehearse-Fault": "slow=400", "X-Request-Timeout-Ms": "50"}
    answers += model.send(Call(f"{SECRET} [MASK]", late)).result()
    assert {answer.status for answer in answers} >= {200, 422, 500, 503, 504}
    model.wait_idle()
    ids = {answer.headers["x-request-id"] for answer in answers}
    for request_id in ids:
        model.wait_event("request.done", id=request_id)
    assert all(SECRET.encode() not in answer.body for answer in answers if answer.status != 200)
    assert SECRET not in model.text
    assert SECRET not in model.get("/metrics").text


def test_a_model_error_tells_nothing_of_the_exception(model: Server) -> None:
    """The client reads our sentence and an id; class and frames stand in the log under that id."""
    call = Call(f"{SECRET} [MASK]", {"X-Rehearse-Fault": "raise", "X-Request-Id": "it-raised"})
    [answer] = model.send(call).result()
    assert (answer.status, answer.code) == (500, "model_error")
    assert answer.json["request_id"] == "it-raised"
    text = answer.body.decode()
    for word in (*LEAKS, SECRET, "rehearsed", "RuntimeError"):
        assert word not in text
    failed = model.wait_event("batch.failed", ids=["it-raised"])
    assert failed["error"] == "RuntimeError"
    assert any("rehearsal.py" in frame for frame in failed["frames"])
    assert model.wait_event("model.error", id="it-raised")["level"] == "error"
    assert "rehearsed failure" not in model.text
