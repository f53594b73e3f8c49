"""The pages beside predictions: probes, metrics, status, errors, and who may see them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from service.core.errors import ERRORS, problem
from service.core.lifecycle import ServiceState
from service.http import PLACES
from service.metrics import ROUTES
from tests.front.http_stage import Answer, Stage, ask

GOOD = '{"inputs":"a M"}'
HTML = ("Accept", "text/html,application/xhtml+xml;q=0.9")


def get(stage: Stage, path: str, *headers: tuple[str, str], method: str = "GET") -> Answer:
    """A page of the main listener."""
    return ask(stage.app, method=method, path=path, headers=headers)


def test_probes() -> None:
    """Alive always; ready as the dispatcher says, with the reason; started once ever ready."""
    stage = Stage()
    stage.dispatcher.readiness = (False, "the model is being loaded")
    stage.dispatcher.ever_ready = False
    assert get(stage, "/livez").json == {"alive": True}
    for path, shown in (
        ("/readyz", {"ready": False, "reason": "the model is being loaded"}),
        ("/startupz", {"started": False}),
    ):
        answer = get(stage, path)
        assert (answer.status, answer.json) == (503, shown)
        assert answer.headers["retry-after"] == "1"
    stage.dispatcher.readiness = (True, "ready for traffic")
    stage.dispatcher.ever_ready = True
    assert get(stage, "/readyz").json == {"ready": True, "reason": "ready for traffic"}
    assert get(stage, "/startupz").status == 200
    assert get(stage, "/readyz").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("state", ServiceState)
def test_livez_fails_only_when_given_up(state: ServiceState) -> None:
    """No state of worker, model or load costs the process its life; only giving up does."""
    stage = Stage()
    stage.dispatcher.state = state
    stage.dispatcher.gate_says = problem("queue_full")
    alive = state is not ServiceState.FAILED
    answer = get(stage, "/livez")
    assert (answer.status, answer.json) == (200 if alive else 503, {"alive": alive})


PAGES = ["/", "/livez", "/readyz", "/startupz", "/metrics", "/status", "/errors/queue_full"]


@pytest.mark.parametrize("path", PAGES)
def test_head(path: str) -> None:
    """HEAD answers as GET does, without a body."""
    stage = Stage()
    stage.dispatcher.readiness = (False, "draining")
    full, bare = get(stage, path), get(stage, path, method="HEAD")
    assert (bare.status, bare.body) == (full.status, b"")
    assert bare.headers["content-type"] == full.headers["content-type"]
    if path != "/metrics":  # which counts the first of the two
        assert bare.headers["content-length"] == full.headers["content-length"]


def test_head_of_an_error() -> None:
    """HEAD of what is not there is 404 without a body."""
    answer = get(Stage(), "/none", method="HEAD")
    assert (answer.status, answer.body) == (404, b"")
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize(
    "method,path,allow",
    [("POST", "/livez", "GET, HEAD"), ("PUT", "/", "GET, HEAD, POST"),
     ("DELETE", "/errors/queue_full", "GET, HEAD"), ("OPTIONS", "/", "GET, HEAD, POST"),
     ("POST", "/metrics", "GET, HEAD")],
)  # fmt: skip
def test_wrong_method(method: str, path: str, allow: str) -> None:
    """Another method is 405 that names those there are."""
    answer = get(Stage(), path, method=method)
    assert (answer.status, answer.json["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize(
    "path", ["/none", "//", "/livez/", "/LIVEZ", "/errors", "/errors/", "/errors/a/b", "/../livez"]
)
def test_unknown_path(path: str) -> None:
    """Anything else is 404 and never a redirect, whatever the method."""
    for method in ("GET", "POST", "HEAD"):
        answer = get(Stage(), path, method=method)
        assert answer.status == 404
        assert "location" not in answer.headers


def _families(page: bytes) -> list[Metric]:
    return list(plain_text(page.decode()))


def test_metrics_by_negotiation() -> None:
    """A scrape gets Prometheus text, or OpenMetrics if it asks for it; both parse."""
    stage = Stage()
    ask(stage.app, GOOD)
    text = get(stage, "/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in _families(text.body)}
    done = {s.labels["outcome"]: s.value for s in families["seawall_requests"].samples}
    assert done["ok"] == 1
    modern = get(stage, "/metrics", ("Accept", "application/openmetrics-text; version=1.0.0"))
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    assert list(openmetrics(modern.body.decode()))  # type: ignore[no-untyped-call]


def test_root_says_what_there_is() -> None:
    """GET / names the server, the task and the model, and its links lead to pages."""
    stage = Stage()
    shown = get(stage, "/").json
    assert {key: shown[key] for key in ("name", "version", "task", "model")} == {
        "name": "seawall", "version": "1.2.3", "task": "fill-mask", "model": "fill-mask-small",
    }  # fmt: skip
    for link in shown["links"].values():
        assert get(stage, link.replace("{code}", "queue_full")).status == 200
        assert link in ROUTES or PLACES[link].label in ROUTES


def test_status() -> None:
    """/status shows what the dispatcher tells."""
    assert get(Stage(), "/status").json == {"state": "ready"}


@pytest.mark.parametrize("code", ERRORS)
def test_error_page(code: str) -> None:
    """Every error has its page, for people and for programs, and says what to do."""
    stage, kind = Stage(), ERRORS[code]
    shown = get(stage, f"/errors/{code}")
    assert shown.headers["content-type"] == "application/json"
    assert (shown.json["status"], shown.json["retryable"]) == (kind.status, kind.retryable)
    page = get(stage, f"/errors/{code}", HTML)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    text = page.body.decode()
    for word in (kind.title, code, str(kind.status)):
        assert word in text
    for sentence in (kind.caller, kind.operator):
        assert sentence.replace("'", "&#x27;") in text
        assert sentence in (shown.json["caller"], shown.json["operator"])


def test_unknown_error() -> None:
    """A code that does not exist is 404, for people too."""
    for headers in ((), (HTML,)):
        answer = get(Stage(), "/errors/<script>", *headers)
        assert (answer.status, answer.json["code"]) == (404, "not_found")
        assert b"script" not in answer.body


# ---------------------------------------------------------------- the second listener


def test_second_listener() -> None:
    """With metrics_bind metrics and status move there; probes are on both, predictions on one."""
    stage = Stage(metrics_bind="127.0.0.1:9")
    for path in ("/metrics", "/status"):
        assert get(stage, path).status == 404
        assert ask(stage.metrics_app, method="GET", path=path).status == 200
    assert get(stage, "/livez").status == 200
    assert ask(stage.metrics_app, method="GET", path="/livez").status == 200
    assert "metrics" not in get(stage, "/").json["links"]
    for method in ("GET", "POST"):
        answer = ask(stage.metrics_app, GOOD, method=method, path="/")
        assert answer.status == 404
    assert stage.outcomes() == {}
    assert stage.dispatcher.gates == 0


# ---------------------------------------------------------------- keys


def bearer(key: str) -> tuple[str, str]:
    """The header that carries a key."""
    return ("Authorization", f"Bearer {key}")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A key file with two keys."""
    path = tmp_path / "keys"
    path.write_text("# who\n\nkey-one\n  key-two  \n# old-key\n")
    return path


def test_keys(keys: Path) -> None:
    """With a key file predictions and status need one of its keys; probes and metrics do not."""
    stage = Stage(api_keys_file=str(keys))
    for key in ("key-one", "key-two"):
        assert ask(stage.app, GOOD, headers=[bearer(key)]).status == 200
        assert get(stage, "/status", bearer(key)).status == 200
    assert ask(stage.app, GOOD, headers=[("authorization", "bearer   key-one ")]).status == 200
    for path in ("/livez", "/readyz", "/startupz", "/metrics", "/"):
        assert get(stage, path).status == 200
    assert stage.outcomes() == {"ok": 3}


@pytest.mark.parametrize(
    "headers",
    [[], [bearer("key-on")], [bearer("key-one2")], [bearer("")], [bearer("# who")],
     [bearer("old-key")], [("Authorization", "key-one")], [("Authorization", "Basic key-one")],
     [bearer("key-one"), bearer("key-one")], [("X-Api-Key", "key-one")], [bearer("kéy")]],
)  # fmt: skip
def test_no_key(keys: Path, headers: list[tuple[str, str]]) -> None:
    """Without one it is 401 with a challenge, before the gate is asked or a body read."""
    stage = Stage(api_keys_file=str(keys))
    answer = ask(stage.app, GOOD, headers=headers)
    assert (answer.status, answer.json["code"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == 'Bearer realm="seawall"'
    assert get(stage, "/status", *headers).status == 401
    assert stage.outcomes() == {"unauthorized": 1}
    assert stage.dispatcher.gates == 0
    for word in ("key-on", "old-key"):
        assert word not in stage.log_text
        assert word not in answer.body.decode()


def test_keys_are_read_again(keys: Path) -> None:
    """A changed file counts at once; an empty or missing one leaves the keys in force."""
    stage = Stage(api_keys_file=str(keys))

    def admitted(key: str) -> bool:
        return ask(stage.app, GOOD, headers=[bearer(key)]).status == 200

    keys.write_text("key-three-is-new\n")
    assert (admitted("key-three-is-new"), admitted("key-one")) == (True, False)
    keys.write_text("# nothing\n")
    assert admitted("key-three-is-new")
    keys.unlink()
    assert admitted("key-three-is-new")
    keys.write_text("key-4\n")
    os.utime(keys, (1, 1))
    assert (admitted("key-4"), admitted("key-three-is-new")) == (True, False)


def test_key_file_must_be_there(tmp_path: Path) -> None:
    """A key file that is missing or holds no key is an error at the start, never an open server."""
    with pytest.raises(FileNotFoundError):
        Stage(api_keys_file=str(tmp_path / "none"))
    (tmp_path / "empty").write_text("# no key\n")
    with pytest.raises(ValueError, match="holds no key"):
        Stage(api_keys_file=str(tmp_path / "empty"))
