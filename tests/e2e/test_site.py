"""The status page as a person meets it: a real Chromium before a real server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Request, Route

from service.worker.rehearsal import FaultName
from tests.e2e.browser import Visit, chromium, visit
from tests.e2e.conftest import PATIENT
from tests.e2e.faulty import faulty
from tests.e2e.held import busy
from tests.e2e.load import Call
from tests.e2e.prometheus import free_port
from tests.e2e.server import GOOD_TEXT, Server, scripted, wait_for

pytestmark = pytest.mark.e2e

SYNTHETIC = (*PATIENT, "--model", "synthetic:cpu")
KEY = "a-key-of-this-test"
STICKING_OUT = """() => [...document.querySelectorAll('.card :not(svg *, pre *, .only-heard)')]
    .filter((one) => one.getBoundingClientRect().right
        > one.closest('.card').getBoundingClientRect().right - 14)
    .map((one) => one.outerHTML)"""
"""What does not keep within its card, in the page's language."""

STOP = """() => { const button = document.getElementById('overload');
    if (button.innerText === 'Stop') button.click(); }"""
"""It ends by itself after a while: a second press would begin another."""

FIGURES = ("arrive", "depth-text", "wait-text", "running", "answer-rate")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all visits."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server's batches are held."""
    return tmp_path_factory.mktemp("held")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """A server that can rehearse faults."""
    with Server(command=faulty(folder, *SYNTHETIC, "--rehearsal")) as found:
        yield found


@pytest.fixture
def seen(browser: Browser, server: Server) -> Iterator[Visit]:
    """A visit that must end without a complaint of the browser, and without a foreign host."""
    with visit(browser, server.url) as found:
        found.says("state", "ready")
        yield found
        assert found.faults == []
        assert found.hosts == {f"127.0.0.1:{server.port}"}
    server.healthy()


def accessible(seen: Visit) -> bool:
    """Whether the page has no violation of WCAG 2.2 A and AA; raises with the report if it has."""
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    found = Axe().run(seen.page, options={"runOnly": {"type": "tag", "values": tags}})
    assert found.response["violations"] == [], found.generate_report()
    return len(found.response["passes"]) > 15  # it has looked


def test_first_look(seen: Visit, server: Server) -> None:
    """Without a click the page says what is served and how it goes, in figures and in words."""
    seen.says("reason", "ready for traffic")
    seen.says("model", "synthetic:cpu", "synthetic")
    seen.until("() => document.getElementById('text').value !== ''")
    assert "one two three" in seen.page.locator("#text").input_value()
    limits = server.status()["limits"]
    assert seen.text("depth-text") == "0 of 256 inputs"
    assert seen.text("wait-text") == f"0.00 of {limits['wait_cap_s']:.2f} s"
    assert seen.text("breaker") == "closed"
    seen.says("refuse", "nobody is refused")
    for chart in ("fill-chart", "ends-chart"):
        assert seen.page.locator(f"#{chart} path").count() >= 2
        assert seen.page.locator(f"#{chart}").get_attribute("aria-label")
    assert seen.page.title().startswith("synthetic:cpu")


def test_it_keeps_looking(seen: Visit, server: Server) -> None:
    """Without a reload the figures follow what other clients do."""
    seen.says("outcomes", "ok")
    before = server.outcomes().get("ok", 0)
    server.send(*[Call("one two three")] * 5).result()
    seen.until(  # all in one look: a rate is one of the last few seconds
        "(n) => document.querySelector('#outcomes .number:last-child').innerText === String(n)"
        " && Number(document.getElementById('answer-rate').innerText) > 0"
        " && /batches of.*% busy/.test(document.getElementById('batch').innerText)",
        before + 5,
    )
    seen.until("() => document.getElementById('answer-rate').innerText === '0'")


def test_try_the_model(browser: Browser, model_server: Server) -> None:
    """The example stands ready; one press shows the model's answer and where its time went."""
    with visit(browser, model_server.url) as seen:
        seen.until("() => document.getElementById('text').value.includes('[MASK]')")
        seen.page.locator("#send").press("Enter")
        seen.says("answer", "capital", "%", "waited", "model", "seen from here")
        seen.says("say", "Answered after")
        seen.says("outcomes", "ok")
        seen.page.get_by_text("As JSON", exact=True).click()
        seen.says("answer", '"token_str": "capital"')
        seen.page.fill("#text", "The [MASK] of [MASK].")
        seen.page.click("#send")
        seen.until("() => document.querySelectorAll('#answer .scores').length === 2")
        seen.page.click("#many")
        seen.says("answer", "50 answers, the first of them")
        assert seen.faults == []


def test_parameters(browser: Browser, model_server: Server) -> None:
    """Parameters go with the input; what is no JSON is said at the field, and not sent."""
    with visit(browser, model_server.url) as seen:
        seen.until("() => document.getElementById('text').value.includes('[MASK]')")
        assert seen.page.input_value("#parameters") == ""
        seen.page.fill("#parameters", '{"top_k": 2}')
        seen.page.get_by_text("The same with curl").click()
        seen.says("curl", "application/json", '"parameters":{"top_k":2}')
        seen.page.click("#send")
        seen.until("() => document.querySelectorAll('#answer .scores li').length === 2")
        seen.page.fill("#parameters", "{")
        with seen.page.expect_event("requestfinished", lambda request: "status" in request.url):
            seen.page.click("#send")
        said = "document.getElementById('parameters').validationMessage"
        assert "no valid JSON" in seen.page.evaluate(said)
        posts = [one for one in seen.sent if one.method == "POST"]
        assert [(one.post_data_json or {})["parameters"] for one in posts] == [{"top_k": 2}]
        seen.page.fill("#parameters", '{"top_k": 0}')
        seen.page.click("#send")
        seen.says("answer", "422", "/parameters/top_k")


@pytest.mark.parametrize("parameters", ["", '{"top_k": 1}'])
def test_a_file(seen: Visit, parameters: str) -> None:
    """Where a task takes bytes a file can be chosen; it goes as it is, with parameters as JSON."""
    assert not seen.page.locator("#file").is_visible()
    asked: list[Request] = []
    about = {
        "name": "seawall", "version": "1", "task": "seeing", "media": "image", "model": "m",
        "example": "data:image/png;base64,AAAA", "parameters": {}, "links": {},
    }  # fmt: skip

    def in_its_place(route: Route) -> None:
        if route.request.method == "POST":
            asked.append(route.request)
            route.fulfill(json={"seen": "a wall"})
        elif "html" in (route.request.headers["accept"]):
            route.continue_()
        else:
            route.fulfill(json=about)

    seen.page.route("**/", in_its_place)
    seen.page.reload()
    seen.until("() => document.getElementById('text').value.startsWith('data:')")
    seen.page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"PNG"})
    seen.page.fill("#parameters", parameters)
    seen.page.click("#send")
    seen.says("answer", "a wall")
    [one] = asked
    if parameters:
        assert one.post_data_json == {
            "inputs": "data:image/png;base64,UE5H", "parameters": {"top_k": 1},
        }  # fmt: skip
    else:
        assert (one.post_data_buffer, one.headers["content-type"]) == (b"PNG", "image/png")
        seen.page.get_by_text("The same with curl").click()
        seen.says("curl", "--data-binary '@a.png'", "Content-Type: image/png")
    assert seen.page.get_attribute("#file", "accept") == "image/*"


def test_many_at_once(seen: Visit, server: Server, folder: Path) -> None:
    """Fifty inputs go as one list: they wait in the queue, and all of them are answered."""
    with busy(server, folder):
        seen.page.fill("#text", "one two three four five six seven eight")
        seen.page.click("#many")
        seen.until("() => document.getElementById('depth').ariaValueNow === '50'")
        assert seen.text("depth-text") == "50 of 256 inputs"
    seen.until("() => document.getElementById('answer').innerText.includes('\"batch\"')")
    assert seen.page.locator("#answer pre").inner_text().count('"tokens": 8') == 50
    seen.until("() => document.getElementById('depth').ariaValueNow === '0'")


def test_overload(browser: Browser) -> None:
    """Under overload a bar reaches its limit, refusals show with codes, and it ends as it began."""
    with Server(*SYNTHETIC, "--queue-limit", "20") as server, visit(browser, server.url) as seen:
        seen.says("state", "ready")
        button = seen.page.locator("#overload")
        assert button.is_disabled()  # nobody overloads a server by a slip of the hand
        seen.page.check("#alone")
        button.click()
        assert button.inner_text() == "Stop"
        seen.until("() => document.getElementById('depth').ariaValueNow > 5")
        seen.says("refuse", "of them refused (503)")
        seen.says("reason", "more work than can be done")
        seen.says("tally", "answered, typically in", "refused, typically after", "queue_full")
        seen.until(  # each of the five comes back after a refusal
            "() => document.getElementById('tally').innerText.match(/(\\d+) refused/)?.[1] > 5"
        )
        seen.says("outcomes", "queue_full", "refused")
        seen.page.evaluate(STOP)
        seen.says("say", "Overload is over")
        assert button.inner_text().startswith("Overload it")
        seen.until("() => document.getElementById('depth').ariaValueNow === '0'")
        seen.says("refuse", "nobody is refused")
        peak = seen.page.locator("#depth u")
        assert peak.is_visible()
        assert server.outcomes().keys() == {"ok", "queue_full"}
        with seen.page.expect_navigation():
            seen.page.click("#outcomes a")
        assert "Queue full" in seen.page.inner_text("h1")
        assert seen.faults == []
        assert seen.hosts == {f"127.0.0.1:{server.port}"}


def test_bad_input_is_explained(seen: Visit) -> None:
    """A problem is shown with status, code, sentence and field, and leads to its page."""
    seen.page.fill("#text", "word " * 600)
    seen.page.click("#send")
    seen.says("answer", "422", "invalid_input", "The input does not fit the task.", "/inputs")
    with seen.page.expect_navigation():
        seen.page.click("#answer a")
    assert seen.page.url.endswith("/errors/invalid_input")
    assert "Invalid input" in seen.page.inner_text("h1")


def test_an_answer_of_somebody_else(seen: Visit) -> None:
    """What a proxy says in the server's place is not taken for the server's word."""

    def in_its_place(route: Route) -> None:
        if route.request.method == "POST":
            route.fulfill(status=502, body="<h1>Bad gateway</h1>")
        else:
            route.continue_()

    seen.page.route("**/", in_its_place)
    seen.page.fill("#text", "one two")
    seen.page.click("#send")
    seen.says("answer", "502", "something on the way has answered")
    assert "Bad gateway" not in seen.text("answer")


def test_an_answer_is_never_markup(seen: Visit) -> None:
    """What a person writes comes back as text wherever it is shown."""
    seen.page.fill("#text", "<img src=x onerror=boom()> it's")
    seen.page.get_by_text("The same with curl").click()
    seen.says("curl", "-d '<img src=x onerror=boom()> it'\\''s'")
    assert seen.page.locator("#curl img").count() == 0


def test_while_the_model_loads(browser: Browser) -> None:
    """A refusal counts down to the moment of coming back; unknown figures are no zeros."""
    with (
        Server(command=scripted({"load": "never"}), ready=False) as server,
        visit(browser, server.url) as seen,
    ):
        seen.says("state", "loading")
        seen.says("wait-text", "not known yet")
        seen.page.fill("#text", "one two")
        seen.page.click("#send")
        seen.says("answer", "503", "model_loading", "Come back in")
        seen.says("answer", "Now is the time to come back.")
        assert seen.faults == []


def test_a_fault_is_seen(seen: Visit, server: Server) -> None:
    """A lost worker shows as itself: the problem, the restart and its reason."""
    seen.page.select_option("#fault", "exit")
    seen.page.click("#send")
    seen.says("answer", "503", "worker_lost")
    seen.says("restarts", "1 × crashed")
    seen.says("outcomes", "worker_lost")
    server.wait_ready()
    seen.says("workers", "ready")


def test_faults_on_offer(seen: Visit) -> None:
    """In rehearsal every fault that there is can be chosen, and no other."""
    options = seen.page.locator("#fault option").all_inner_texts()
    assert [option.partition("=")[0] for option in options[1:]] == [*FaultName]
    with_fault = seen.page.locator("#fault-row")
    assert with_fault.is_visible()
    seen.says("notice", "Rehearsal")


def test_keys(browser: Browser, tmp_path: Path) -> None:
    """Where keys are configured the page asks for one, uses it, and keeps it nowhere."""
    (tmp_path / "keys").write_text(f"{KEY}\n")
    flags = ("--api-keys-file", str(tmp_path / "keys"))
    with Server(*SYNTHETIC, *flags) as server, visit(browser, server.url) as seen:
        seen.says("state", "ready")
        assert seen.page.locator("#key-form").is_visible()
        assert not seen.page.locator("#now").is_visible()  # no figures, and no zeros either
        seen.page.fill("#text", "one two")
        seen.page.click("#send")
        seen.says("answer", "401", "unauthorized")
        seen.page.fill("#key", "another-key")
        seen.page.locator("#key").press("Enter")
        seen.says("key-fault", "none of the server's keys")
        seen.page.fill("#key", KEY)
        seen.page.locator("#key").press("Enter")
        seen.says("depth-text", "0 of 256 inputs")
        assert not seen.page.locator("#key-form").is_visible()
        seen.page.click("#send")
        seen.says("answer", '"tokens": 2')
        assert seen.page.evaluate("localStorage.length + sessionStorage.length") == 0
        assert seen.page.evaluate("document.cookie") == ""
        assert KEY not in seen.page.content()
        assert not [address for address in seen.requests if KEY in address]
        assert KEY not in seen.text("curl")
        assert seen.faults == []


def test_figures_elsewhere(browser: Browser) -> None:
    """With ``metrics_bind`` the page says why it has no figures, shows none, and still asks."""
    flags = ("--metrics-bind", "127.0.0.1:0")
    with Server(*SYNTHETIC, *flags, ready=False) as server, visit(browser, server.url) as seen:
        seen.says("state", "ready")
        seen.says("notice", "metrics_bind")
        for name in (*FIGURES, "fill-chart", "overload"):
            assert not seen.page.locator(f"#{name}").is_visible()
        seen.until("() => document.getElementById('text').value !== ''")
        seen.page.click("#send")
        seen.says("answer", '"tokens": 8')
        assert not [address for address in seen.requests if address.endswith("/status")]
        assert seen.faults == []


def test_a_server_that_is_gone(browser: Browser) -> None:
    """A server that does not answer is shown as that; the page finds it again by itself."""
    bind = ("--bind", f"127.0.0.1:{free_port()}")
    with Server(*SYNTHETIC, *bind) as server, visit(browser, server.url) as seen:
        seen.says("depth-text", "0 of 256 inputs")
        server.send(Call(GOOD_TEXT)).result()
        seen.until("() => document.querySelector('#outcomes .number:last-child').innerText === '1'")
        server.kill()
        seen.says("state", "no answer")
        seen.says("notice", "does not answer", "of then")
        seen.says("ends-legend", "answered –")
        assert "stale" in str(seen.page.get_attribute("body", "class"))
        seen.page.click("#send")
        seen.says("answer", "No answer")
        with Server(*SYNTHETIC, *bind):
            seen.says("state", "ready")
            seen.until("() => !document.body.classList.contains('stale')")
            assert not seen.page.locator("#notice").is_visible()


def test_nobody_looks(seen: Visit) -> None:
    """A hidden page asks for nothing; shown again it asks at once."""
    page = seen.page
    page.clock.install()
    page.reload()
    page.clock.run_for(1500)
    seen.says("state", "ready")
    turn = (
        "(hidden) => { Object.defineProperty(document, 'hidden',"
        " { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    page.evaluate(turn, True)
    page.wait_for_load_state("networkidle")
    page.clock.run_for(60_000)
    asked = len(seen.requests)
    page.clock.run_for(60_000)
    assert len(seen.requests) == asked
    with page.expect_request("**/status"):
        page.evaluate(turn, False)


def test_by_keyboard(seen: Visit) -> None:
    """Everything can be reached and used without a mouse, and one sees where one is."""
    seen.until("() => document.getElementById('text').value !== ''")
    reached: list[str] = []
    for _ in range(12):
        seen.page.keyboard.press("Tab")
        name, outline = seen.page.evaluate(
            "() => { const e = document.activeElement;"
            " return [e.id || e.tagName, parseFloat(getComputedStyle(e).outlineWidth)]; }"
        )
        if name != "BODY":
            assert outline >= 2, name
        reached.append(name)
    wanted = ["text", "fault", "send", "many", "SUMMARY", "alone"]
    assert [name for name in reached if name in wanted][: len(wanted)] == wanted
    seen.page.focus("#send")
    seen.page.keyboard.press("Space")
    seen.says("answer", "tokens")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_everybody_can_use_it(browser: Browser, server: Server, scheme: Any, width: int) -> None:
    """No violation of WCAG 2.2 A and AA, in light and dark, wide and narrow; nothing sticks out."""
    how = {"color_scheme": scheme, "viewport": {"width": width, "height": 740}}
    with visit(browser, server.url, reduced_motion="reduce", **how) as seen:
        seen.says("state", "ready")
        seen.page.fill("#text", "one two three")
        seen.page.click("#send")
        seen.says("answer", "tokens")
        for summary in seen.page.locator("summary").all():
            summary.click()
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.page.evaluate(STICKING_OUT) == []
        assert accessible(seen)
        moving = seen.page.evaluate(
            "getComputedStyle(document.querySelector('#depth i')).transition"
        )
        assert re.match(r"none\b|.* 0s", moving)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_everybody_can_read_the_api(
    browser: Browser, server: Server, scheme: Any, width: int
) -> None:
    """The page of the API needs no script, no other host, and has no violation of WCAG either."""
    how = {"color_scheme": scheme, "viewport": {"width": width, "height": 740}}
    with visit(browser, server.url, java_script_enabled=False, **how) as plain:
        plain.page.goto(f"{server.url}/docs")
        assert "POST /" in plain.page.inner_text("main")
        assert plain.faults == []
    with visit(browser, server.url, **how) as seen:
        seen.says("state", "ready")
        with seen.page.expect_navigation():
            seen.page.get_by_role("link", name="API", exact=True).click()
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        for summary in seen.page.locator("summary").all():
            summary.click()
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.page.evaluate(STICKING_OUT) == []
        assert accessible(seen)
        assert seen.faults == []
        assert seen.hosts == {f"127.0.0.1:{server.port}"}


def test_the_real_limits_are_named(seen: Visit, server: Server) -> None:
    """Limits and settings on the page are those in force."""
    for summary in seen.page.locator(".health summary").all():
        summary.click()
    wait_for(lambda: seen.text("limits") and seen.text("settings"), "the lists")
    status = server.status()
    for name in (*status["limits"], "queue_limit"):
        assert name in seen.text("limits")
    for name in status["settings"]:
        assert name in seen.text("settings")
