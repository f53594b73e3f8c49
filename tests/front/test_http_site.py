"""The status page as files: who gets it, under which headers, and what stands in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.http import site
from service.metrics import ROUTES
from tests.front.http_stage import Answer, Stage, ask
from tests.tools import ROOT

FOLDER = ROOT / "service" / "http" / "site"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.suffix not in {".py", ""})
ASSETS = [name for name in NAMES if name != site.PAGE]
TEXTS = {name: (FOLDER / name).read_text() for name in NAMES}
PAGE = TEXTS[site.PAGE]

MOST_BYTES = 60_000
"""Of all files together: the page is there at once, on a slow line too."""

MOST_LINES = 300
"""As for modules of the server."""

CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
BROWSER = ("Accept", CHROME)


def get(stage: Stage, path: str = "/", *headers: tuple[str, str], method: str = "GET") -> Answer:
    """A page, as a browser asks for it unless the headers say otherwise."""
    return ask(stage.app, method=method, path=path, headers=headers or (BROWSER,))


def address(name: str) -> str:
    """Where a file of the site stands."""
    return "/" if name == site.PAGE else f"/site/{name}"


# ---------------------------------------------------------------- negotiation


@pytest.mark.parametrize("accept", [CHROME, "text/html", "application/xml, text/html;q=0.9"])
def test_a_browser_gets_the_page(accept: str) -> None:
    """Whoever accepts HTML gets the page, whatever the state of the model."""
    stage = Stage()
    stage.dispatcher.readiness = (False, "the model is being loaded")
    answer = get(stage, "/", ("Accept", accept))
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.body == (FOLDER / site.PAGE).read_bytes()
    assert answer.headers["vary"] == "accept"


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/*", "image/png", ""])
def test_a_program_gets_json(accept: str) -> None:
    """curl, a client library and everybody else get what they got before there was a page."""
    answer = get(Stage(), "/", ("Accept", accept))
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["vary"] == "accept"
    assert answer.json["name"] == "seawall"


def test_no_accept_gets_json() -> None:
    """Nor does a client that accepts nothing in particular get a page."""
    answer = get(Stage(), "/", ("X-Nothing", "at all"))
    assert answer.headers["content-type"] == "application/json"


def test_the_example_is_there_once_the_mask_is_known() -> None:
    """The example has the mask of this model, and is not guessed before the model is there."""
    from tests.front.scripted import FACTS

    stage = Stage()
    assert get(stage, "/", ("Accept", "*/*")).json["example"] is None
    stage.dispatcher.facts = type(FACTS)(
        **{name: getattr(FACTS, name) for name in FACTS.__struct_fields__} | {"mask_token": "<m>"}
    )
    example = get(stage, "/", ("Accept", "*/*")).json["example"]
    assert example == "Paris is the <m> of France."


# ---------------------------------------------------------------- headers


@pytest.mark.parametrize("name", NAMES)
def test_headers_of_every_file(name: str) -> None:
    """Each file has its type, may do nothing but ask its own server, and is asked for again."""
    answer = get(Stage(), address(name))
    assert answer.status == 200
    assert answer.body == (FOLDER / name).read_bytes()
    kind = site.TYPES[name.rpartition(".")[2]]
    assert answer.headers["content-type"].partition(";")[0] == kind
    if kind.startswith("text/"):
        assert answer.headers["content-type"].endswith("; charset=utf-8")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert set(policy.values()) == {"'none'", "'self'"}
    for what in ("script-src", "style-src", "connect-src", "img-src"):
        assert policy[what] == "'self'"


@pytest.mark.parametrize("name", NAMES)
def test_an_unchanged_file_is_304(name: str) -> None:
    """Whoever has the file is told so in a few bytes; another tag gets the file."""
    stage = Stage()
    whole = get(stage, address(name))
    tag = whole.headers["etag"]
    assert re.fullmatch(r'"[0-9a-f]{32}"', tag)
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = get(stage, address(name), BROWSER, ("If-None-Match", known))
        assert (answer.status, answer.body) == (304, b"")
        assert "content-length" not in answer.headers
        for header in ("etag", "cache-control", "content-security-policy"):
            assert answer.headers[header] == whole.headers[header]
    other = get(stage, address(name), BROWSER, ("If-None-Match", '"0123"'))
    assert (other.status, other.body) == (200, whole.body)
    route = "/" if name == site.PAGE else "/site/{name}"
    assert stage.value("http_responses_total", route=route, status="304") == 4


def test_tags_differ() -> None:
    """No two files have the same tag."""
    stage = Stage()
    tags = {get(stage, address(name)).headers["etag"] for name in NAMES}
    assert len(tags) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_head(name: str) -> None:
    """HEAD answers as GET does, without a body."""
    stage = Stage()
    whole, bare = get(stage, address(name)), get(stage, address(name), method="HEAD")
    assert (bare.status, bare.body) == (200, b"")
    for header in ("content-type", "content-length", "etag", "content-security-policy"):
        assert bare.headers[header] == whole.headers[header]


@pytest.mark.parametrize(
    "name", ["none.js", site.PAGE, "__init__.py", "", "..", "a/page.js", "%2e%2e", "PAGE.JS"]
)
def test_nothing_else_is_served(name: str) -> None:
    """Only the named files are there: no source, no folder, no second address of the page."""
    stage = Stage()
    answer = get(stage, f"/site/{name}")
    assert (answer.status, answer.json["code"]) == (404, "not_found")


def test_wrong_method() -> None:
    """A file is read, not written."""
    answer = get(Stage(), "/site/page.js", method="POST")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_files_cannot_make_series() -> None:
    """Whatever is asked for below /site counts under one label value."""
    stage = Stage()
    assert "/site/{name}" in ROUTES
    for name in ("page.js", "a", "b"):
        get(stage, f"/site/{name}")
    assert stage.value("http_responses_total", route="/site/{name}", status="200") == 1
    assert stage.value("http_responses_total", route="/site/{name}", status="404") == 2


def test_open_without_a_key(tmp_path: Path) -> None:
    """The files are open and hold no figure; with keys what they ask for is not."""
    (tmp_path / "keys").write_text("a-key\n")
    stage = Stage(api_keys_file=str(tmp_path / "keys"))
    for name in NAMES:
        assert get(stage, address(name)).status == 200
    assert get(stage, "/status").status == 401


def test_not_on_the_second_listener() -> None:
    """The page belongs to the address of the predictions."""
    stage = Stage(metrics_bind="127.0.0.1:9")
    assert get(stage, "/").headers["content-type"].startswith("text/html")
    for path in ("/", "/site/page.js"):
        assert ask(stage.metrics_app, method="GET", path=path, headers=[BROWSER]).status == 404


# ---------------------------------------------------------------- what stands in the files


def test_small() -> None:
    """All files together stay small, and each can be read at once."""
    assert sum(len(text.encode()) for text in TEXTS.values()) < MOST_BYTES
    assert not [name for name, text in TEXTS.items() if text.count("\n") > MOST_LINES]


def test_no_foreign_host() -> None:
    """No file names another host: the page works where there is no network."""
    for name, text in TEXTS.items():
        found = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text))
        assert found <= {"http://www.w3.org"}, name  # the name of a vocabulary, never fetched


def test_every_reference_leads_to_a_file() -> None:
    """What the page and its scripts name is there, relative, and every file is named by one."""
    named = set(re.findall(r'(?:src|href)="([^"]+)"', PAGE))
    assert not [one for one in named if one.startswith(("/", "http", "data:"))]
    files = {one.removeprefix("site/") for one in named if one.startswith("site/")}
    assert named - {f"site/{name}" for name in files} == {"status", "docs"}
    for text in (text for name, text in TEXTS.items() if name.endswith(".js")):
        files |= set(re.findall(r'from "\./([\w.]+)"', text))
    assert files == set(ASSETS)


def test_nothing_inline() -> None:
    """No script, style or handler stands in the markup, where the policy would stop it."""
    assert re.findall(r"<script(?![^>]* src=)", PAGE) == []
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", PAGE)


def test_data_never_becomes_markup() -> None:
    """No script makes markup, code or addresses of what it was told."""
    words = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc"
    for name, text in TEXTS.items():
        assert not re.search(words, text), name


def test_a_key_is_never_stored() -> None:
    """The key lives in the page's memory only."""
    for name, text in TEXTS.items():
        assert not re.search(r"localStorage|sessionStorage|indexedDB|\.cookie", text), name


def test_scripts_name_what_the_page_has() -> None:
    """Every element that a script looks up by its id is in the page, once."""
    ids = re.findall(r'\bid="([\w-]+)"', PAGE)
    assert len(ids) == len(set(ids))
    wanted = {name for text in TEXTS.values() for name in re.findall(r'byId\("([\w-]+)"\)', text)}
    assert wanted <= set(ids)
    assert len(wanted) > 20


def test_labels_and_landmarks() -> None:
    """Every field has a label, every section a heading, every picture words for it."""
    labelled = set(re.findall(r'<label (?:class="\w+")?[^>]*for="([\w-]+)"', PAGE))
    fields = set(re.findall(r'<(?:textarea|select|input)\b[^>]* id="([\w-]+)"', PAGE))
    wrapped = set(re.findall(r'<label[^>]*><input id="([\w-]+)"', PAGE))
    assert fields == labelled | wrapped
    headed = re.findall(r'<section[^>]*aria-labelledby="([\w-]+)"', PAGE)
    assert len(headed) == PAGE.count("<section")
    assert all(f'id="{name}"' in PAGE for name in headed)
    assert all(" alt=" in tag for tag in re.findall(r"<img[^>]*>", PAGE))
    assert '<html lang="en">' in PAGE


# ---------------------------------------------------------------- colours

CSS = TEXTS["page.css"]
LIGHT = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", CSS.split("@media")[0]))
DARK = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", CSS.split("@media")[1]))

TEXT_ON = [
    (text, ground)
    for text in ("text", "muted", "accent", "ok", "shed", "server")
    for ground in ("ground", "surface")
] + [("on-accent", "accent"), ("text", "notice"), ("muted", "notice")]
SHAPE_ON = [
    (shape, ground)
    for shape in ("ok", "shed", "late", "server", "client")
    for ground in ("ground", "surface", "groove")
]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours as WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (
            p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast(scheme: dict[str, str]) -> None:
    """In both schemes text has a contrast of 4.5, shapes of 3, as WCAG AA asks."""
    assert set(scheme) == set(LIGHT)
    low = [
        (one, other, round(contrast(scheme[one], scheme[other]), 2))
        for pairs, least in ((TEXT_ON, 4.5), (SHAPE_ON, 3.0))
        for one, other in pairs
        if contrast(scheme[one], scheme[other]) < least
    ]
    assert low == []


def test_contrast_can_be_too_low() -> None:
    """The measure itself: black on white is 21, a colour on itself 1."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#777777") == pytest.approx(1)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
