"""``POST /`` through the ASGI interface: bodies, headers, limits, what reaches the dispatcher."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
from typing import Any

import pytest

from service.core.admission import due
from service.core.errors import FieldError, problem
from service.http.context import WAITED_S
from tests.front.http_stage import MAX_TOKENS, VOCABULARY, Answer, Client, Stage, ask, until
from tests.virtual import run_virtual

SECRET = "SECRET-7731"
FORM = ("Content-Type", "application/x-www-form-urlencoded")


def refused(answer: Answer, status: int, code: str) -> dict[str, Any]:
    """The answer is this problem; nothing of a library or a machine is in it."""
    assert answer.status == status, answer.body
    shown: dict[str, Any] = answer.json
    assert shown["code"] == code, shown
    assert shown["type"] == f"/errors/{code}"
    assert shown["status"] == status
    assert shown["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["content-type"] == "application/problem+json"
    text = answer.body.decode()
    for word in ("Traceback", "Error(", "msgspec", "site-packages", ".py", "/usr", SECRET):
        assert word not in text
    return shown


def raw(body: bytes, *headers: tuple[str, str | bytes], **settings: Any) -> tuple[Stage, Answer]:
    """One request with exactly these headers."""
    stage = Stage(**settings)
    client = Client(stage.app, headers=headers)
    client.send(body)
    return stage, asyncio.run(client.run())


# ---------------------------------------------------------------- shapes of JSON


def test_one_input() -> None:
    """One input is answered with the model's answer for one, byte for byte, and with its times."""
    stage = Stage()
    answer = ask(stage.app, '{"inputs": "héllo", "parameters": {"top_k": 3}}')
    assert (answer.status, answer.body) == (200, b'{"bytes": 6, "top_k": 3}')
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.body))
    timing = answer.headers["server-timing"]
    assert timing.startswith("queue;dur=2.000, infer;dur=4.000, total;dur=")
    (asked,) = stage.dispatcher.asks
    assert (asked.inputs, asked.is_list, asked.parameters) == (("héllo",), False, b'{"top_k":3}')
    assert asked.request_id == answer.headers["x-request-id"]
    assert (asked.timeout_s, asked.rehearse) == (None, "")
    assert asked.nbytes == len('{"inputs": "héllo", "parameters": {"top_k": 3}}'.encode())
    assert asked.headers_at <= asked.body_at


@pytest.mark.parametrize("count", [1, 2, 64])
def test_list(count: int) -> None:
    """A list of n is one request with n answers in order, for n = 1 too."""
    stage = Stage()
    answer = ask(stage.app, json.dumps({"inputs": ["x" * (i + 1) for i in range(count)]}))
    assert answer.json == [{"bytes": i + 1} for i in range(count)]
    assert stage.dispatcher.asks[0].is_list


@pytest.mark.parametrize(
    "body,pointer,word",
    [
        ("{}", "/inputs", "inputs"),
        ('{"inputs":null}', "/inputs", "inputs"),
        ('{"inputs":5}', "/inputs", "string"),
        ('{"inputs":true}', "/inputs", "string"),
        ('{"inputs":{"text":"a M"}}', "/inputs", "string"),
        ('{"inputs":[null]}', "/inputs/0", "string"),
        ('{"inputs":["a M",7]}', "/inputs/1", "string"),
        ('{"inputs":["a M",["b M"]]}', "/inputs/1", "string"),
        ('{"Inputs":"a M"}', "/inputs", "inputs"),
        ('{"inputs":"a M","top_k":1}', "", "parameters"),
        (f'{{"inputs":"a M","{SECRET}":1}}', "", "parameters"),
        ('{"inputs":[]}', "/inputs", "at least one"),
        ('{"inputs":""}', "/inputs", "not empty"),
        ('{"inputs":"  "}', "/inputs", "not empty"),
        ('{"inputs":"a M","parameters":[]}', "/parameters", "object"),
        ('{"inputs":"a M","parameters":"x"}', "/parameters", "object"),
        ("null", "/inputs", "inputs"),
        ("[]", "/inputs", "inputs"),
        ('"x"', "/inputs", "inputs"),
        ("12", "/inputs", "inputs"),
        ('{"inputs":"a \\ud800 M"}', "/inputs", "Unicode"),
        ('{"inputs":["a M","a \\ud800 M and more text behind it"]}', "/inputs/1", "Unicode"),
        ('{"inputs":"a M","a \\ud800":1}', "", "parameters"),
        ('{"inputs":"a M","parameters":{"targets":"\\ud800"}}', "/parameters/targets", "word"),
        ('{"inputs":"a M","parameters":{"\\ud800":1}}', "/parameters", "unknown"),
    ],
)
def test_wrong_shape(body: str, pointer: str, word: str) -> None:
    """A body of another shape is 422 with the pointer at fault and what to send instead."""
    stage = Stage()
    shown = refused(ask(stage.app, body), 422, "invalid_input")
    found = {error["pointer"]: error["message"] for error in shown["errors"]}
    assert word in found[pointer]
    assert stage.dispatcher.asks == []
    assert stage.outcomes() == {"invalid_input": 1}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{'inputs':'a M'}",
        b'{"inputs":"a M"',
        b'{"inputs":"a M"} x',
        b'{"inputs":"a M"}{"inputs":"b M"}',
        b'{"inputs":"a \xff M"}',
        b"\xff\xfe{\x00}\x00",
        b'{"inputs":"a M","parameters":{"targets":NaN}} ' + SECRET.encode(),
        b"[" * 100_000 + b"]" * 100_000,
        b'{"inputs":"a M","parameters":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"inputs":' * 50_000,
        b'{"inputs":"a\x00M"}',
        b'{"inputs":"a M","parameters":{"top_k":' + b"1" * 10_000 + b"}}",
        '{"inputs":"a M"}'.encode("utf-16"),
    ],
)
def test_no_json(body: bytes) -> None:
    """What is no JSON is 400 that says what to send, however it is broken."""
    stage, answer = raw(body, ("Content-Type", "application/json"))
    shown = refused(answer, 400, "malformed_request")
    assert "'inputs'" in shown["detail"]
    assert stage.outcomes() == {"malformed_request": 1}


def test_position_of_the_fault() -> None:
    """The message says at which byte the JSON breaks."""
    shown = refused(ask(Stage().app, '{"inputs": oops}'), 400, "malformed_request")
    assert "at byte 11" in shown["detail"]


def test_byte_order_mark() -> None:
    """A UTF-8 mark in front is no part of the body."""
    stage = Stage()
    assert ask(stage.app, b'\xef\xbb\xbf{"inputs":"a M"}').status == 200
    assert (
        ask(stage.app, b"\xef\xbb\xbfa M", headers=[("Content-Type", "text/plain")]).status == 200
    )
    assert [asked.inputs for asked in stage.dispatcher.asks] == [("a M",), ("a M",)]


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    "value",
    ["1000000000", "-1", "0", "1" + "0" * 30, '"5"', "2.5", "true", "[]", "{}", "NaN", "1e999",
     "Infinity", "-Infinity", str(VOCABULARY + 1)],
)  # fmt: skip
def test_top_k_out_of_range(value: str) -> None:
    """A top_k that does not fit is refused with its name and range, NaN and infinity too."""
    stage = Stage()
    shown = refused(
        ask(stage.app, f'{{"inputs":"a M","parameters":{{"top_k":{value}}}}}'),
        422,
        "invalid_input",
    )
    (error,) = shown["errors"]
    assert error["pointer"] == "/parameters/top_k"
    assert f"1 to {VOCABULARY}" in error["message"]
    assert stage.dispatcher.asks == []


def test_null_parameters_are_absent() -> None:
    """A null stands for a parameter left out, and for all of them."""
    stage = Stage()
    for given in ("null", "{}", '{"top_k":null}', '{"top_k":null,"targets":null}'):
        assert ask(stage.app, f'{{"inputs":"a M","parameters":{given}}}').json == {"bytes": 3}
    assert {asked.parameters for asked in stage.dispatcher.asks} == {b"{}"}


@pytest.mark.parametrize(
    "parameters",
    [
        {"num_workers": 6},
        {"batch_size": 100_000},
        {"tokenizer_kwargs": {"max_length": 100_000, "padding": "max_length"}},
        {"model_kwargs": {}},
        {"device": "cpu"},
        {SECRET: 1},
    ],
)
def test_unknown_parameters(parameters: dict[str, Any]) -> None:
    """Only listed parameters pass; another is 422 that says which are known."""
    stage = Stage()
    body = json.dumps({"inputs": ["a M"] * 3, "parameters": parameters})
    (error,) = refused(ask(stage.app, body), 422, "invalid_input")["errors"]
    assert "targets, top_k" in error["message"]
    assert stage.dispatcher.asks == []


def test_all_parameters_at_fault_are_named() -> None:
    """One answer names every parameter at fault."""
    body = '{"inputs":"a M","parameters":{"top_k":0,"targets":[],"x":1}}'
    shown = refused(ask(Stage().app, body), 422, "invalid_input")
    found = {error["pointer"] for error in shown["errors"]}
    assert found == {"/parameters/top_k", "/parameters/targets", "/parameters"}


def test_nothing_lenient_is_served() -> None:
    """A body that only a lenient parser takes is refused, if no better reason is found."""
    stage = Stage()
    refused(ask(stage.app, '{"inputs":NaN}'), 422, "invalid_input")
    body = '{"inputs":"a M","parameters":{"top_k":5, "targets":null}}'.replace("null", "nul")
    refused(ask(stage.app, body), 400, "malformed_request")
    refused(ask(stage.app, '{"inputs":NaN,"inputs":"a M"}'), 400, "malformed_request")
    utf_16 = ask(stage.app, '{"inputs":"a M"}'.encode("utf-16-le"))
    refused(utf_16, 400, "malformed_request")
    assert stage.dispatcher.asks == []


# ---------------------------------------------------------------- media types


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", "Application/JSON",
     'application/json;charset="UTF-8"', "application/vnd.x+json", "application/json;",
     "application/json ; charset=latin-1", "application/problem+json"],
)  # fmt: skip
def test_json_types(content_type: str) -> None:
    """JSON is taken whatever the case, the charset and the suffix family of its type."""
    stage, answer = raw(b'{"inputs":"a M"}', ("Content-Type", content_type))
    assert (answer.status, stage.dispatcher.asks[0].inputs) == (200, ("a M",))


TEXT = "Paris is the [MASK] of France."


@pytest.mark.parametrize(
    "headers",
    [(), (("Content-Type", ""),), (FORM,), (("Content-Type", "text/plain"),),
     (("Content-Type", "text/markdown; charset=UTF-8"),), (("Content-Type", "TEXT/HTML"),),
     (("Content-Type", 'text/plain; charset="us-ascii"'),)],
)  # fmt: skip
def test_text(headers: tuple[tuple[str, str], ...]) -> None:
    """A textual type, or none, makes the body the text; curl's form type too."""
    stage, answer = raw(TEXT.encode(), *headers)
    assert answer.status == 200
    assert (stage.dispatcher.asks[0].inputs, stage.dispatcher.asks[0].is_list) == ((TEXT,), False)


def test_text_that_looks_like_json() -> None:
    """Under text/plain a body is text whatever it looks like."""
    stage, answer = raw(b'{"inputs":"a M"}', ("Content-Type", "text/plain"))
    assert answer.status == 200
    assert stage.dispatcher.asks[0].inputs == ('{"inputs":"a M"}',)


@pytest.mark.parametrize("headers", [(), (FORM,)])
def test_json_without_its_type(headers: tuple[tuple[str, str], ...]) -> None:
    """An object with ``inputs`` is JSON under curl's form type and without any type."""
    body = b' \n{"inputs": ["a M", "b M"], "parameters": {"top_k": 2}}'
    stage, answer = raw(body, *headers)
    assert answer.status == 200
    assert stage.dispatcher.asks[0].inputs == ("a M", "b M")
    _, answer = raw(b'{"inputs": oops}', *headers)
    refused(answer, 400, "malformed_request")


@pytest.mark.parametrize(
    "body",
    [b"inputs=Paris+is+the+%5BMASK%5D", b"inputs=Paris is the [MASK].", b"a=1&b=2", b"text=x",
     b"parameters=x&inputs=y", b"user[name]=x&user[age]=3\n"],
)  # fmt: skip
def test_form_fields(body: bytes) -> None:
    """Form fields are 422 that says what to send."""
    _, answer = raw(body, FORM)
    shown = refused(answer, 422, "invalid_input")
    assert "form fields" in shown["detail"]
    assert "application/json" in shown["detail"]


@pytest.mark.parametrize("body", [b"a = b and [MASK]", b"2+2=4, says the [MASK]", b"[MASK]"])
def test_text_is_no_form(body: bytes) -> None:
    """A text with an equals sign is a text."""
    stage, answer = raw(body, FORM)
    assert answer.status == 200
    assert stage.dispatcher.asks[0].inputs == (body.decode(),)


@pytest.mark.parametrize(
    "content_type",
    ["image/png", "audio/wav", "application/octet-stream", "multipart/form-data; boundary=x",
     "application/xml", "json", "application/", "/", "text", "a b/c", "application/jsonx", "\x85"],
)  # fmt: skip
def test_unsupported_types(content_type: str) -> None:
    """What a text task cannot take is 415, before the body is read."""
    stage = Stage()
    client = Client(stage.app, headers=[("Content-Type", content_type)])
    shown = refused(asyncio.run(client.run()), 415, "unsupported_media_type")
    assert "text/plain" in shown["detail"]
    assert client.reads == 0


def test_charset_of_text() -> None:
    """Text in another charset than UTF-8 is 415, and bytes that are not UTF-8 are 400."""
    _, answer = raw("héllo".encode("latin-1"), ("Content-Type", "text/plain; charset=ISO-8859-1"))
    assert "UTF-8" in refused(answer, 415, "unsupported_media_type")["detail"]
    _, answer = raw("héllo".encode("latin-1"), ("Content-Type", "text/plain"))
    assert "UTF-8" in refused(answer, 400, "malformed_request")["detail"]


def test_empty_text() -> None:
    """No text at all is 422."""
    for headers in ((), (FORM,), (("Content-Type", "text/plain"),)):
        _, answer = raw(b"", *headers)
        assert refused(answer, 422, "invalid_input")["errors"][0]["pointer"] == "/inputs"


def test_repeated_type() -> None:
    """Two content types are 400 that names the header."""
    _, answer = raw(b"x", ("Content-Type", "text/plain"), ("Content-Type", "image/png"))
    assert "Content-Type" in refused(answer, 400, "malformed_request")["detail"]


@pytest.mark.parametrize(
    "encodings,status",
    [(["gzip"], 415), (["br"], 415), (["foo"], 415), (["identity"], 200), (["Identity"], 200),
     ([""], 200), (["gzip, identity"], 415), (["identity", "gzip"], 415)],
)  # fmt: skip
def test_content_encoding(encodings: list[str], status: int) -> None:
    """A body in any encoding but identity is 415, and no word is said about JSON."""
    body = gzip.compress(b'{"inputs":"a M"}') if "gzip" in encodings else b'{"inputs":"a M"}'
    headers = [("Content-Type", "application/json")]
    _, answer = raw(body, *headers, *[("Content-Encoding", one) for one in encodings])
    if status == 200:
        assert answer.status == 200
    else:
        assert "JSON" not in refused(answer, 415, "unsupported_media_type")["detail"]


# ---------------------------------------------------------------- sizes


def test_items() -> None:
    """Exactly the maximum of items passes; one more, or very many, are 413 that names it."""
    stage = Stage(max_chars=10_000)
    assert len(ask(stage.app, json.dumps({"inputs": ["a M"] * 64})).json) == 64
    for count in (65, 100_000):
        shown = refused(ask(stage.app, json.dumps({"inputs": ["a M"] * count})), 413,
                        "payload_too_large")  # fmt: skip
        assert shown["limit"] == 64
        assert "64 inputs" in shown["detail"]
    assert len(stage.dispatcher.asks) == 1


def test_list_longer_than_the_queue() -> None:
    """A list that could never fit the queue is 413."""
    stage = Stage(queue_limit=4)
    shown = refused(ask(stage.app, json.dumps({"inputs": ["a M"] * 5})), 413, "payload_too_large")
    assert shown["limit"] == 4


def test_characters() -> None:
    """Characters are bounded for all inputs together, before anything is tokenised."""
    stage = Stage()
    most = 32 * MAX_TOKENS
    assert ask(stage.app, json.dumps({"inputs": "é" * most})).status == 200
    shown = refused(ask(stage.app, json.dumps({"inputs": "." * (most + 1)})), 413,
                    "payload_too_large")  # fmt: skip
    assert shown["limit"] == most
    assert ask(stage.app, json.dumps({"inputs": ["." * most] * 2})).status == 200
    refused(ask(stage.app, json.dumps({"inputs": ["." * most, "." * (most + 1)]})), 413,
            "payload_too_large")  # fmt: skip
    assert len(stage.dispatcher.asks) == 2


def test_declared_length() -> None:
    """A length over the limit is refused unread; an unreadable one is left to the bytes."""
    stage = Stage(max_body_bytes=100)
    client = Client(stage.app, headers=[("Content-Length", "101"), ("Content-Type", "text/plain")])
    shown = refused(asyncio.run(client.run()), 413, "payload_too_large")
    assert (shown["limit"], client.reads) == (100, 0)
    assert "100 bytes" in shown["detail"]
    huge = [("Content-Length", "9" * 5000)]
    refused(ask(stage.app, "x", headers=huge), 413, "payload_too_large")
    text = ("Content-Type", "text/plain")
    assert ask(stage.app, "x", headers=[("Content-Length", "-7"), text]).status == 200
    assert ask(stage.app, "x" * 100, headers=[("Content-Length", "100"), text]).status == 200


def test_length_as_it_comes() -> None:
    """Without a length the byte that passes the limit ends it; what was held is given back."""
    stage = Stage(max_body_bytes=100)

    async def run() -> Answer:
        client = Client(stage.app, headers=[("Content-Type", "text/plain")])
        client.send(b"x" * 60, more=True)
        client.send(b"x" * 41, more=True)
        return await client.run()

    refused(asyncio.run(run()), 413, "payload_too_large")
    assert stage.context.receiving_bytes == 0
    assert stage.value("requests_in_flight", stage="receiving") == 0


def test_bytes_of_all_bodies() -> None:
    """Bodies of all connections share one bound: over it 503, room again when one is through."""
    stage = Stage(max_receiving_bytes=1_000, max_body_bytes=800, max_chars=800)

    async def run() -> list[Answer]:
        first = Client(stage.app, headers=[("Content-Type", "text/plain")])
        first.send(b"x" * 700, more=True)
        task = asyncio.create_task(first.run())
        await until(lambda: stage.context.receiving_bytes)
        assert stage.value("requests_in_flight", stage="receiving") == 1
        answers = []
        for size in (301, 300):
            other = Client(stage.app, headers=[("Content-Type", "text/plain")])
            other.send(b"x" * size)
            answers.append(await other.run())
        first.send(b"")
        return [*answers, await task]

    over, fits, first = asyncio.run(run())
    shown = refused(over, 503, "queue_full")
    assert over.headers["retry-after"] == "1"
    assert shown["retryable"]
    assert (fits.status, first.status) == (200, 200)
    assert stage.context.receiving_bytes == 0


# ---------------------------------------------------------------- deadlines

DEADLINES = ("X-Request-Timeout-Ms", "x-envoy-expected-rq-timeout-ms")


@pytest.mark.parametrize("name", DEADLINES)
@pytest.mark.parametrize(
    "value",
    ["nan", "inf", "-1", "0", "00", "1e999", "5s", "", "0.000001", "+5", "5,5", "0x10", "1_000",
     "٣".encode(), b"\xff", "1 000"],
)  # fmt: skip
def test_bad_deadline(name: str, value: str | bytes) -> None:
    """A deadline that is no positive integer is 400 that names the header."""
    stage = Stage()
    answer = ask(stage.app, '{"inputs":"a M"}', headers=[(name, value)])
    assert name in refused(answer, 400, "malformed_request")["detail"]
    assert stage.dispatcher.asks == []


@pytest.mark.parametrize("name", DEADLINES)
def test_repeated_deadline(name: str) -> None:
    """A deadline given twice is 400, equal or not."""
    headers = [(name, "500"), (name, "500")]
    answer = ask(Stage().app, '{"inputs":"a M"}', headers=headers)
    assert name in refused(answer, 400, "malformed_request")["detail"]


@pytest.mark.parametrize(
    "first,second,seconds",
    [("500", None, 0.5), (None, "250", 0.25), ("500", "250", 0.25), ("250", "500", 0.25),
     ("999999", None, 60.0), ("9" * 5_000, None, 60.0), ("1", None, 0.001), ("0070", None, 0.07),
     ("9" * 30, "40", 0.04)],
)  # fmt: skip
def test_deadline(first: str | None, second: str | None, seconds: float) -> None:
    """The client's and the proxy's time are told apart; neither is more than the server allows."""
    stage = Stage()
    pairs = zip(DEADLINES, (first, second), strict=True)
    given = [(name, value) for name, value in pairs if value is not None]
    assert ask(stage.app, '{"inputs":"a M"}', headers=given).status == 200
    [asked] = stage.dispatcher.asks
    assert due(asked, 60.0, 60.0).allowed_s == seconds
    assert (asked.timeout_s is None) == (first is None)
    assert (asked.proxy_s == math.inf) == (second is None)


def in_pieces(stage: Stage, *headers: tuple[str, str], pause_s: float) -> tuple[Answer, float]:
    """A body whose second half comes late, in virtual time; the answer and when it came."""

    async def run() -> tuple[Answer, float]:
        loop = asyncio.get_running_loop()
        stage.context.clock = loop.time
        began = loop.time()
        client = Client(stage.app, headers=[("Content-Type", "text/plain"), *headers])
        client.send(b"half", more=True)
        loop.call_later(pause_s, client.send, b"half")
        answer = await client.run()
        return answer, loop.time() - began

    return run_virtual(run())


def test_body_too_slow() -> None:
    """A body that is not whole in time is 408, exactly then."""
    stage = Stage(receive_timeout_ms=2_000)
    answer, took_s = in_pieces(stage, pause_s=3.0)
    refused(answer, 408, "request_timeout")
    assert answer.headers["connection"] == "close"
    assert took_s == pytest.approx(2.0)
    answer, _ = in_pieces(Stage(receive_timeout_ms=2_000), pause_s=1.9)
    assert answer.status == 200


def test_deadline_while_receiving() -> None:
    """A client's own deadline ends the receiving too: 504 then, with the value in force."""
    stage = Stage(receive_timeout_ms=2_000)
    answer, took_s = in_pieces(stage, (DEADLINES[0], "500"), pause_s=3.0)
    assert "500 ms" in refused(answer, 504, "deadline_exceeded")["detail"]
    assert took_s == pytest.approx(0.5)
    assert stage.value("deadline_exceeded_total", stage="receive") == 1
    answer, took_s = in_pieces(stage, (DEADLINES[0], "50000"), pause_s=3.0)
    refused(answer, 408, "request_timeout")
    assert took_s == pytest.approx(2.0)


def test_what_a_request_waited_elsewhere_counts() -> None:
    """A wait that is told shifts both starts; longer than anybody waits is 504, the body unread."""
    stage = Stage()

    async def carried(scope: Any, receive: Any, send: Any) -> None:
        await stage.app({**scope, WAITED_S: 3.0}, receive, send)

    assert ask(carried, '{"inputs":"a M"}', headers=[(DEADLINES[0], "5000")]).status == 200
    [asked] = stage.dispatcher.asks
    now = stage.context.clock()
    assert now - 4 < asked.headers_at <= asked.body_at <= now - 3
    assert asked.timeout_s == 5.0
    for name in DEADLINES:
        answer = ask(carried, '{"inputs":"a M"}', headers=[(name, "3000")])
        assert "3000 ms" in refused(answer, 504, "deadline_exceeded")["detail"]
    assert stage.value("deadline_exceeded_total", stage="receive") == 2
    assert len(stage.dispatcher.asks) == 1


# ---------------------------------------------------------------- rehearsal


def test_rehearsed_fault() -> None:
    """With the setting a fault goes along; one that does not exist is 400 that says which do."""
    stage = Stage(rehearsal=True)
    for fault in ("slow=100", "raise", "device-lost"):
        answer = ask(stage.app, '{"inputs":"a M"}', headers=[("X-Rehearse-Fault", fault)])
        assert answer.status == 200
        assert stage.dispatcher.asks[-1].rehearse == fault
    for headers in (["slow"], ["explode"], [""], ["raise", "raise"], [b"\xff"]):
        given = [("X-Rehearse-Fault", one) for one in headers]
        answer = ask(stage.app, '{"inputs":"a M"}', headers=given)
        detail = refused(answer, 400, "malformed_request")["detail"]
        assert "X-Rehearse-Fault" in detail
        assert "slow=MS" in detail


def test_no_rehearsal() -> None:
    """Without the setting the header is ignored, whatever it says."""
    stage = Stage()
    for fault in ("exit", "nonsense"):
        answer = ask(stage.app, '{"inputs":"a M"}', headers=[("X-Rehearse-Fault", fault)])
        assert answer.status == 200
    assert {asked.rehearse for asked in stage.dispatcher.asks} == {""}


# ---------------------------------------------------------------- the order of refusals


def test_gate_comes_before_the_body() -> None:
    """The gate's refusal is out before a byte of the body is read, and before it is judged."""
    stage = Stage()
    stage.dispatcher.gate_says = problem("overloaded", retry_after_s=4.2)
    client = Client(stage.app, headers=[("Content-Type", "image/png"), (DEADLINES[0], "bad")])
    answer = asyncio.run(client.run())
    shown = refused(answer, 503, "overloaded")
    assert client.reads == 0
    assert (answer.headers["retry-after"], shown["retry_after_ms"]) == ("5", 4200)
    assert answer.headers["x-envoy-ratelimited"] == "true"


def test_admission_comes_after_the_checks() -> None:
    """What is wrong with a request is said before admission is asked."""
    stage = Stage()
    stage.dispatcher.admit_says = problem("queue_full")
    refused(ask(stage.app, '{"inputs":5}'), 422, "invalid_input")
    answer = ask(stage.app, '{"inputs":"a M"}')
    refused(answer, 503, "queue_full")
    assert stage.dispatcher.gates == 2


def test_problem_with_every_member() -> None:
    """What the dispatcher says of a refusal reaches the client, member by member."""
    stage = Stage()
    stage.dispatcher.mode = "refuse"
    stage.dispatcher.end_with = problem(
        "deadline_too_short",
        errors=(FieldError("/inputs/1", "send less"),),
        limit=7,
        min_timeout_ms=120,
    )
    shown = refused(ask(stage.app, '{"inputs":["a M","b M"]}'), 504, "deadline_too_short")
    assert shown["errors"] == [{"pointer": "/inputs/1", "message": "send less"}]
    assert (shown["limit"], shown["min_timeout_ms"]) == (7, 120)
    assert set(shown) == {
        "type", "title", "status", "detail", "code", "retryable", "request_id", "errors", "limit",
        "min_timeout_ms",
    }  # fmt: skip


def test_two_hundred_bad_requests_leave_nothing() -> None:
    """After 200 bad requests the next good one is answered and nothing is held."""
    stage = Stage()
    for turn in range(200):
        body = ("{}", '{"inputs":[]}', "oops", '{"inputs":"a M","parameters":{"top_k":0}}')[
            turn % 4
        ]
        assert 400 <= ask(stage.app, body).status < 500
    assert ask(stage.app, '{"inputs":"a M"}').status == 200
    assert stage.outcomes() == {"ok": 1, "invalid_input": 150, "malformed_request": 50}
    assert stage.context.receiving_bytes == 0
    assert stage.value("requests_in_flight", stage="receiving") == 0
