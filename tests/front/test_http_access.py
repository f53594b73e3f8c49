"""The one entry and exit: ids, traces, one outcome, one line, one sample, and no leak."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from service.app import create_app
from service.core.errors import ERRORS, OutcomeClass, problem
from service.core.errors import Stage as Step
from service.http.access import Access
from service.http.shed_log import LINES_A_SECOND
from service.settings import Settings
from tests.front.http_stage import Answer, Client, Stage, ask, until
from tests.virtual import run_virtual

GOOD = '{"inputs":"a M"}'
TEXT = ("Content-Type", "text/plain")
OURS = re.compile(r"[0-9a-f]{32}")


# ---------------------------------------------------------------- ids and traces


@pytest.mark.parametrize(
    "given", ["5f0c6a3e-8a0e-4b59-9d0c-3a4e0f3f7f11", "a", "A.b_c-9", "x" * 128]
)
def test_fit_id_is_kept(given: str) -> None:
    """A fit id of the client comes back in header, body and log."""
    stage = Stage()
    assert ask(stage.app, GOOD, headers=[("X-Request-ID", given)]).headers["x-request-id"] == given
    refused = ask(stage.app, "oops", headers=[("x-request-id", given)])
    assert refused.headers["x-request-id"] == refused.json["request_id"] == given
    assert [line["id"] for line in stage.lines("request.done")] == [given, given]
    assert stage.dispatcher.asks[0].request_id == given


@pytest.mark.parametrize(
    "given",
    [["x" * 129], ["x" * 10_000], ['a" ,"level":"critical'], ["a b"], ["é".encode()], [b"a\xff"],
     [""], ["one", "two"], ["one", "one"], ["a\tb"], ["a/b"], ["a\n"]],
)  # fmt: skip
def test_unfit_id_is_replaced(given: list[str | bytes]) -> None:
    """Any other id is replaced, each time by another, and stands nowhere."""
    stage = Stage()
    headers = [("X-Request-ID", one) for one in given]
    ids = [ask(stage.app, GOOD, headers=headers).headers["x-request-id"] for _ in range(2)]
    assert all(OURS.fullmatch(one) for one in ids)
    assert ids[0] != ids[1]
    assert [line["id"] for line in stage.lines("request.done")] == ids


@pytest.mark.parametrize(
    "method,path", [("GET", "/livez"), ("GET", "/metrics"), ("HEAD", "/"), ("GET", "/none"),
                    ("PUT", "/"), ("GET", "/errors/none"), ("GET", "/readyz")]
)  # fmt: skip
def test_every_answer_has_an_id(method: str, path: str) -> None:
    """Probes, pages and errors carry the id as well."""
    stage = Stage()
    answer = ask(stage.app, method=method, path=path, headers=[("X-Request-Id", "mine")])
    assert answer.headers["x-request-id"] == "mine"


TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    "given,trace",
    [
        (f"00-{TRACE}-b7ad6b7169203331-01", TRACE),
        (f"cc-{TRACE}-b7ad6b7169203331-00-what-comes", TRACE),
        (f"00-{TRACE}-b7ad6b7169203331-01-more", ""),
        (f"ff-{TRACE}-b7ad6b7169203331-01", ""),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (f"00-{TRACE.upper()}-b7ad6b7169203331-01", ""),
        (f"00-{TRACE}-b7ad6b7169203331", ""),
        ("", ""),
        ("x" * 10_000, ""),
    ],
)
def test_trace(given: str, trace: str) -> None:
    """The trace id of a well-formed traceparent stands in the log; anything else is ignored."""
    stage = Stage()
    assert ask(stage.app, GOOD, headers=[("traceparent", given)]).status == 200
    assert stage.lines("request.done")[0]["trace_id"] == trace


def test_two_traces_are_none() -> None:
    """A repeated traceparent is ignored."""
    stage = Stage()
    given = ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01")
    assert ask(stage.app, GOOD, headers=[given, given]).status == 200
    assert stage.lines("request.done")[0]["trace_id"] == ""


# ---------------------------------------------------------------- one end for each prediction


async def answered(stage: Stage) -> Answer:
    """The way out of most."""
    client = Client(stage.app, headers=[TEXT])
    client.send(b"a M")
    return await client.run()


async def gone_receiving(stage: Stage) -> Answer:
    """Leaves in mid-body."""
    client = Client(stage.app, headers=[TEXT])
    client.send(b"a", more=True)
    client.leave()
    return await client.run()


async def gone_waiting(stage: Stage) -> Answer:
    """Leaves while its request waits."""
    stage.dispatcher.mode = "hold"
    client = Client(stage.app, headers=[TEXT])
    client.send(b"a M")
    task = asyncio.create_task(client.run())
    await until(lambda: stage.dispatcher.tickets)
    client.leave()
    return await task


async def gone_after_noise(stage: Stage) -> Answer:
    """Leaves after the server said something that is no departure."""
    stage.dispatcher.mode = "hold"
    client = Client(stage.app, headers=[TEXT])
    for _ in range(3):
        client.send(b"a M")
    task = asyncio.create_task(client.run())
    await until(lambda: client.reads > 3)
    assert stage.dispatcher.tickets[0].open
    client.leave()
    return await task


async def gone_running(stage: Stage) -> Answer:
    """Leaves while the model runs."""
    stage.dispatcher.mode = "hold"
    client = Client(stage.app, headers=[TEXT])
    client.send(b"a M")
    task = asyncio.create_task(client.run())
    await until(lambda: stage.dispatcher.tickets)
    stage.dispatcher.run(stage.dispatcher.tickets[0])
    client.leave()
    return await task


async def gone_answered(stage: Stage) -> Answer:
    """Leaves in the moment in which the answer comes."""
    stage.dispatcher.mode = "hold"
    client = Client(stage.app, headers=[TEXT])
    client.send(b"a M")
    task = asyncio.create_task(client.run())
    await until(lambda: stage.dispatcher.tickets)
    stage.dispatcher.answer(stage.dispatcher.tickets[0])
    client.leave()
    return await task


async def broken_framing(stage: Stage) -> Answer:
    """The protocol says that the body can never be whole."""
    client = Client(stage.app, headers=[TEXT])
    client.send(b"a", more=True)
    client.leave(malformed=True)
    return await client.run()


async def refused_at_the_gate(stage: Stage) -> Answer:
    """The queue is full."""
    stage.dispatcher.gate_says = problem("queue_full")
    return await answered(stage)


async def refused_late(stage: Stage) -> Answer:
    """Its deadline passes in the model."""
    stage.dispatcher.mode = "refuse"
    stage.dispatcher.end_with = problem("deadline_exceeded", stage=Step.RUNNING)
    return await answered(stage)


async def model_error(stage: Stage) -> Answer:
    """The model fails on it."""
    stage.dispatcher.mode = "refuse"
    stage.dispatcher.end_with = problem("model_error")
    return await answered(stage)


async def our_bug(stage: Stage) -> Answer:
    """An exception that nobody foresaw."""
    stage.dispatcher.mode = "raise"
    return await answered(stage)


async def bad_body(stage: Stage) -> Answer:
    """Nothing of use in it."""
    client = Client(stage.app, headers=[("Content-Type", "application/json")])
    client.send(b"oops")
    return await client.run()


async def cancelled(stage: Stage) -> Answer:
    """The process ends while it waits."""
    stage.dispatcher.mode = "hold"
    client = Client(stage.app, headers=[TEXT])
    client.send(b"a M")
    task = asyncio.create_task(client.run())
    await until(lambda: stage.dispatcher.tickets)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not stage.dispatcher.tickets[0].open
    return client.answer


WayOut = Callable[[Stage], Coroutine[Any, Any, Answer]]

WAYS_OUT: dict[WayOut, tuple[str, int, str | None]] = {
    answered: ("ok", 200, None),
    gone_receiving: ("client_gone", 499, "receive"),
    gone_waiting: ("client_gone", 499, "prepare"),
    gone_after_noise: ("client_gone", 499, "prepare"),
    gone_running: ("client_gone", 499, "running"),
    gone_answered: ("client_gone", 499, "respond"),
    broken_framing: ("malformed_request", 400, None),
    refused_at_the_gate: ("queue_full", 503, None),
    refused_late: ("deadline_exceeded", 504, "running"),
    model_error: ("model_error", 500, None),
    our_bug: ("internal_error", 500, None),
    bad_body: ("malformed_request", 400, None),
    cancelled: ("draining", 503, None),
}


@pytest.mark.parametrize("way_out", WAYS_OUT, ids=lambda way: way.__name__)
def test_one_outcome(way_out: WayOut) -> None:
    """Whatever its way out, a prediction is one outcome, one sample and one line."""
    outcome, status, stage_name = WAYS_OUT[way_out]
    stage = Stage()

    async def run() -> Answer:
        return await way_out(stage)

    answer = asyncio.run(run())
    assert answer.status == (0 if outcome == "client_gone" else status)
    assert stage.outcomes() == {outcome: 1}
    assert stage.samples == 1
    (line,) = stage.lines("request.done")
    assert (line["outcome"], line["status"]) == (outcome, status)
    assert set(line) == {
        "event", "log_level", "id", "outcome", "status", "items", "queue_ms", "infer_ms",
        "total_ms", "batch_items", "trace_id",
    }  # fmt: skip
    if stage_name:
        assert stage.value(f"{outcome}_total", stage=stage_name) == 1
    assert stage.value("http_responses_total", route="/", status="200") == 0
    assert stage.value("requests_in_flight", stage="receiving") == 0
    assert stage.context.receiving_bytes == 0


def test_line_of_an_answer() -> None:
    """The line of a good prediction says how much and how long."""
    stage = Stage()
    ask(stage.app, '{"inputs":["a M","b M"]}')
    (line,) = stage.lines("request.done")
    assert (line["items"], line["batch_items"]) == (2, 2)
    assert (line["queue_ms"], line["infer_ms"]) == (2.0, 4.0)
    assert line["total_ms"] > 0
    assert stage.value("stage_duration_seconds_count", stage="receive") == 1
    assert stage.value("stage_duration_seconds_count", stage="respond") == 1


def test_gone_client_gives_its_place_back() -> None:
    """The dispatcher hears of the departure, and nothing is sent after it."""
    stage = Stage()
    answer = asyncio.run(gone_waiting(stage))
    assert (answer.status, stage.dispatcher.left) == (0, ["prepare"])
    assert not stage.dispatcher.tickets[0].open


# ---------------------------------------------------------------- our bugs


class CauseError(Exception):
    """Stands behind another."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("boom /srv/app/secret.py token=abc123"),
        ExceptionGroup("boom", [ValueError("boom /srv"), KeyError("abc123")]),
        RecursionError("boom"),
        UnicodeDecodeError("utf-8", b"boom abc123", 0, 1, "boom"),
    ],
)
def test_bug_tells_nothing(error: Exception) -> None:
    """Our own bug is a fixed 500; the log has class and frames under the same id, no message."""
    stage = Stage()

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise error from CauseError("token=abc123")

    app = Access(broken, stage.context, {"/"})
    answer = ask(app, GOOD)
    shown = answer.json
    assert (answer.status, shown["code"]) == (500, "internal_error")
    (line,) = stage.lines("internal.error")
    assert (line["id"], line["log_level"]) == (shown["request_id"], "error")
    assert line["error"] == type(error).__name__
    assert any("test_http_access" in frame for frame in line["frames"])
    assert line["caused_by"]["error"].endswith("CauseError")
    for text in (answer.body.decode(), stage.log_text):
        for word in ("boom", "/srv", "abc123"):
            assert word not in text
    assert "Error" not in answer.body.decode().replace("internal_error", "")


def test_bug_on_a_page() -> None:
    """A page that breaks is 500 too, and counts as a response, not as a prediction."""
    stage = Stage()
    stage.dispatcher.readiness = None  # type: ignore[assignment]
    answer = ask(stage.app, method="GET", path="/readyz")
    assert answer.json["code"] == "internal_error"
    assert stage.value("http_responses_total", route="/readyz", status="500") == 1
    assert stage.outcomes() == {}


def test_bug_in_mid_answer() -> None:
    """When an answer has begun no second one is written; it stays cut off and is counted."""
    stage = Stage()

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("boom")

    client = Client(Access(broken, stage.context, {"/"}))
    answer = asyncio.run(client.run())
    assert (answer.status, answer.body) == (200, b"")
    assert stage.outcomes() == {"internal_error": 1}


# ---------------------------------------------------------------- shedding, draining


def test_every_503_says_when() -> None:
    """Retry-After is there on every 503, whole and at least 1; shed ones are marked for proxies."""
    for code, kind in ERRORS.items():
        if kind.outcome_class is OutcomeClass.GONE:
            continue
        for given, header in ((None, "1"), (0.2, "1"), (1.0, "1"), (2.1, "3"), (30.0, "30")):
            stage = Stage()
            stage.dispatcher.gate_says = problem(code, retry_after_s=given)
            answer = ask(stage.app, GOOD)
            assert answer.status == kind.status
            assert answer.json["retryable"] == kind.retryable
            shed = kind.outcome_class is OutcomeClass.SHED
            assert ("x-envoy-ratelimited" in answer.headers) == shed
            if kind.status == 503:
                assert answer.headers["retry-after"] == header
                assert answer.json["retry_after_ms"] == round(1000 * (given or 1))
                assert stage.value("retry_after_seconds_sum") == int(header)
            else:
                assert "retry-after" not in answer.headers
                assert "retry_after_ms" not in answer.json
                assert stage.value("retry_after_seconds_count") == 0


def running_time() -> float:
    """The running loop's clock."""
    return asyncio.get_running_loop().time()


def told(stage: Stage) -> list[dict[str, Any]]:
    """What the summaries say."""
    return [
        {key: line[key] for key in ("requests", "codes")} for line in stage.lines("admission.shed")
    ]


def test_refusals_by_load_are_summed_up() -> None:
    """Ten refusals by load a second have their line, the rest is one count by code."""
    stage = Stage(clock=running_time)

    async def run() -> None:
        for code, count in (("queue_full", 25), ("overloaded", 7)):
            stage.dispatcher.gate_says = problem(code)
            for _ in range(count):
                await Client(stage.app, headers=[TEXT]).run()
        await asyncio.sleep(0.9)
        stage.dispatcher.gate_says = problem("draining")
        await Client(stage.app, headers=[TEXT]).run()
        await asyncio.sleep(0.2)
        await Client(stage.app, headers=[TEXT]).run()
        await asyncio.sleep(5)

    run_virtual(run())
    lines = stage.lines("request.done")
    assert [line["outcome"] for line in lines] == ["queue_full"] * LINES_A_SECOND + ["draining"]
    assert told(stage) == [
        {"requests": 23, "codes": {"queue_full": 15, "overloaded": 7, "draining": 1}}
    ]
    assert stage.outcomes() == {"queue_full": 25, "overloaded": 7, "draining": 2}


def test_no_refusal_is_untold_at_the_end() -> None:
    """What the last second left untold is told when the process ends, and only once."""
    stage = Stage(clock=running_time)

    async def run() -> None:
        stage.dispatcher.gate_says = problem("draining")
        for _ in range(LINES_A_SECOND + 3):
            await Client(stage.app, headers=[TEXT]).run()
        assert told(stage) == []
        stage.context.shed.tell()
        assert told(stage) == [{"requests": 3, "codes": {"draining": 3}}]
        await asyncio.sleep(5)

    run_virtual(run())
    assert len(told(stage)) == 1


def test_the_end_of_the_app_tells_the_last_refusals() -> None:
    """The app tells them itself when it stops: the second that they belong to does not end."""

    async def run() -> None:
        app = create_app(Settings(model="synthetic:cpu"))
        for _ in range(LINES_A_SECOND + 3):
            app.context.shed.may_log("draining")
        await app.stop()

    with capture_logs() as lines:
        asyncio.run(run())
    shed = [line for line in lines if line["event"] == "admission.shed"]
    assert [(line["requests"], line["codes"]) for line in shed] == [(3, {"draining": 3})]


def test_only_load_is_summed_up() -> None:
    """Whatever is no refusal by load has its line, however much of it there is."""
    stage = Stage(clock=running_time)

    async def run() -> None:
        for code in ("model_loading", "circuit_open", "worker_lost", "out_of_memory"):
            stage.dispatcher.gate_says = problem(code)
            for _ in range(20):
                await Client(stage.app, headers=[TEXT]).run()

    run_virtual(run())
    assert len(stage.lines("request.done")) == 80
    assert told(stage) == []


@pytest.mark.parametrize("sign", ["closing", "draining"])
def test_going_away(sign: str) -> None:
    """From the signal on every answer closes its connection and /readyz says no."""
    stage = Stage()
    if sign == "closing":
        stage.context.closing = True
    else:
        stage.dispatcher.draining = True
        stage.dispatcher.readiness = (False, "shutting down")
    for method, path, status in (
        ("POST", "/", 200), ("GET", "/livez", 200), ("GET", "/readyz", 503), ("GET", "/no", 404),
    ):  # fmt: skip
        body = GOOD if method == "POST" else None
        answer = ask(stage.app, body, method=method, path=path)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert ask(Stage().app, GOOD).headers.get("connection") is None


# ---------------------------------------------------------------- everything else


def test_other_answers_are_counted_by_template() -> None:
    """No path, method or host of a client becomes a label; unknown ones share one value."""
    stage = Stage()

    def series() -> int:
        return sum(len(family.samples) for family in stage.metrics.registry.collect())

    before = series()
    for turn in range(300):
        headers = [("Host", f"host-{turn}")]
        ask(stage.app, method="GET", path=f"/scan-{turn}", headers=headers)
        ask(stage.app, method=f"METHOD{turn}", path="/", headers=headers)
        ask(stage.app, method="GET", path=f"/errors/{turn}", headers=headers)
    assert series() == before
    assert stage.value("http_responses_total", route="other", status="404") == 300
    assert stage.value("http_responses_total", route="/", status="405") == 300
    assert stage.value("http_responses_total", route="/errors/{code}", status="404") == 300
    assert stage.outcomes() == {}
    assert stage.lines("request.done") == []
    levels = {line["log_level"] for line in stage.lines("http.done")}
    assert (levels, len(stage.lines("http.done"))) == ({"debug"}, 900)
    assert "scan-" not in stage.log_text


def test_log_holds_no_input() -> None:
    """Nothing that a client sent stands in any line, at any level, or in any metric."""
    secret = "SECRET-7731"
    stage = Stage()
    for body in (
        f'{{"inputs":"{secret} M"}}', f'{{"inputs":["{secret}",7]}}', f'{{"{secret}":1}}', secret,
        f'{{"inputs":"a M","parameters":{{"{secret}":1}}}}', f'{{"inputs":"{secret * 1000}"}}',
    ):  # fmt: skip
        ask(stage.app, body, headers=[("X-Request-Timeout-Ms", "900")])
        ask(stage.app, body, headers=[("X-Request-Timeout-Ms", secret)])
        ask(stage.app, body, path=f"/{secret}")
    stage.dispatcher.mode = "raise"
    ask(stage.app, json.dumps({"inputs": secret}))
    assert secret not in stage.log_text
    assert secret not in stage.metrics.render(None)[0].decode()
