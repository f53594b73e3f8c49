"""The description of the API: it says what is served, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import meta, validator_for

from service.core.errors import ERRORS, OutcomeClass, problem
from service.http import PLACES, pages, site
from service.http.openapi import Served, document
from service.http.openapi.operations import OPERATIONS
from service.http.problems import render
from service.settings import Settings
from service.tasks import TASKS, Task
from service.tasks.parameter import Json
from service.worker.wire import Facts
from tests.front.http_stage import Answer, Stage, ask
from tests.front.scripted import FACTS

DOCUMENT, DOCS = "/openapi.json", "/docs"
KEY = [("Authorization", "Bearer a-key")]


def get(stage: Stage, path: str, *headers: tuple[str, str], method: str = "GET") -> Answer:
    """A page of the main listener."""
    return ask(stage.app, method=method, path=path, headers=headers)


def described(task: str = "fill-mask", **settings: Any) -> Any:
    """The document of a task whose model is ready."""
    model: dict[str, Any] = {"model": "synthetic:cpu"} if task == "synthetic" else {}
    return document(
        Served(
            settings=Settings(task=task, **model, **settings),
            task=TASKS[task],
            version="1.2.3",
            facts={"vocab_size": 100, "max_tokens": 16},
            mask="[MASK]",
            example=TASKS[task].example,
            chars=512,
        )
    )


def ready(stage: Stage, **facts: Any) -> None:
    """The model becomes ready, with these facts."""
    known = {name: getattr(FACTS, name) for name in FACTS.__struct_fields__}
    stage.dispatcher.facts = Facts(**{**known, "mask_token": "[MASK]", **facts})


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of the document."""
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from walk(part)
    elif isinstance(value, list):
        for part in value:
            yield from walk(part)


def body_schema(found: Any) -> Any:
    """The schema of the JSON body of a prediction."""
    return found["paths"]["/"]["post"]["requestBody"]["content"]["application/json"]["schema"]


# ---------------------------------------------------------------- what is described


def test_every_route_is_described() -> None:
    """Each page and each prediction has its row, and no row leads nowhere."""
    places = PLACES | pages.watching(None)
    served = {
        (path.replace(":path", ""), method.lower())
        for path, place in places.items()
        for method in (*(["GET"] if place.page else []), *place.also)
    }
    assert set(OPERATIONS) == served


@pytest.mark.parametrize("task", TASKS)
def test_it_is_openapi(task: str) -> None:
    """For every task the document is valid OpenAPI 3.1, and each schema in it a valid schema."""
    from schemathesis.specs.openapi.definitions import OPENAPI_31

    found = json.loads(json.dumps(described(task)))
    validator_for(OPENAPI_31).validate(found)
    for part in walk(found):
        if "schema" in part and isinstance(part["schema"], dict):
            meta.validate(part["schema"])
        if isinstance(part.get("pattern"), str):
            re.compile(part["pattern"])
    names = [row["operationId"] for path in found["paths"].values() for row in path.values()]
    assert len(names) == len(set(names))
    references = {part["$ref"] for part in walk(found) if "$ref" in part}
    for reference in references:
        _, _, kind, name = reference.split("/")
        assert name in found["components"][kind]


@pytest.mark.parametrize("task", TASKS)
def test_parameters_are_those_of_the_task(task: str) -> None:
    """Every parameter stands in the document with its bounds, and no other."""
    inside = body_schema(described(task))["properties"]["parameters"]
    assert set(inside["properties"]) == set(TASKS[task].parameters)
    assert inside["additionalProperties"] is False
    required = {one.name for one in TASKS[task].parameters.values() if one.required}
    assert set(inside.get("required", ())) == required
    for parameter in TASKS[task].parameters.values():
        assert inside["properties"][parameter.name]["description"] == parameter.describe


@pytest.mark.parametrize("task", TASKS)
def test_bodies(task: str) -> None:
    """The example of the task fits the body's schema, alone and in a list; what is no input not."""
    entry = TASKS[task]
    takes = validator_for(body_schema(described(task))).is_valid
    example: Json = entry.example
    if isinstance(example, str):
        example = example.replace("{mask}", "[MASK]")
    body = {"inputs": example, "parameters": dict(entry.example_parameters)}
    assert takes(body)
    assert takes({**body, "inputs": [example]})
    assert not takes({**body, "inputs": []})
    assert not takes({**body, "inputs": [example] * 65})
    assert not takes({**body, "inputs": 5})
    assert not takes({**body, "more": 1})
    assert not takes({"parameters": body["parameters"]})
    if not entry.needs_parameters:
        assert takes({"inputs": example, "parameters": None})
    content = described(task)["paths"]["/"]["post"]["requestBody"]["content"]
    textual = takes({"inputs": "a [MASK]"}) and entry.media == "text"
    assert ("text/plain" in content) == textual


def test_limits_are_those_in_force() -> None:
    """Bytes, items, characters and tokens come from the settings and the model."""
    stage = Stage(max_items=5, queue_limit=3, max_body_bytes=2048)
    found = get(stage, DOCUMENT).json
    body = found["paths"]["/"]["post"]["requestBody"]
    for words in ("2048 bytes", "3 inputs", "512 characters", "16 tokens"):
        assert words in body["description"]
    alone, several = body["content"]["application/json"]["schema"]["properties"]["inputs"]["anyOf"]
    assert (alone["maxLength"], several["maxItems"]) == (512, 3)
    assert "maxLength" not in several["items"]


def test_it_follows_the_model() -> None:
    """Before the model is ready its bounds are not guessed; afterwards they are there."""
    stage = Stage()
    stage.dispatcher.limits = None
    stage.dispatcher.int_facts = {}
    before = get(stage, DOCUMENT)
    assert "tokens" not in before.json["paths"]["/"]["post"]["requestBody"]["description"]
    stage.dispatcher.int_facts = {"vocab_size": 7, "max_tokens": 9}
    ready(stage)
    after = get(stage, DOCUMENT)
    top_k = body_schema(after.json)["properties"]["parameters"]["properties"]["top_k"]
    assert top_k["anyOf"][0]["maximum"] == 7
    assert "9 tokens" in after.json["paths"]["/"]["post"]["requestBody"]["description"]
    one = body_schema(after.json)["properties"]["inputs"]["anyOf"][0]
    assert re.search(one["pattern"], "the [MASK] of")
    assert not re.search(one["pattern"], "no mask")
    assert before.headers["etag"] != after.headers["etag"]
    example = after.json["paths"]["/"]["post"]["requestBody"]["content"]["text/plain"]["example"]
    assert example == "Paris is the [MASK] of France."


def test_it_is_made_once() -> None:
    """As long as nothing changes the same bytes are sent, and not made again."""
    stage = Stage()
    first = stage.context.reference.document
    assert stage.context.reference.document is first
    ready(stage)
    assert stage.context.reference.document is not first


# ---------------------------------------------------------------- refusals


def test_every_refusal_is_described() -> None:
    """A prediction's answers name every code that a client can get, under its status."""
    answers = described(api_keys_file=__file__)["paths"]["/"]["post"]["responses"]
    found = {
        code: int(status)
        for status, answer in answers.items()
        if "application/problem+json" in answer.get("content", {})
        for code in answer["content"]["application/problem+json"]["schema"]["properties"]["code"][
            "enum"
        ]
        if status != "431"
    }
    elsewhere = {"not_found", "method_not_allowed"}
    expected = {
        code: kind.status
        for code, kind in ERRORS.items()
        if kind.outcome_class is not OutcomeClass.GONE and code not in elsewhere
    }
    assert found == expected


@pytest.mark.parametrize("code", [code for code in ERRORS if code != "client_gone"])
def test_a_problem_fits_its_schema(code: str) -> None:
    """Whatever ``render`` writes fits the schema of a problem, with every member that there is."""
    schema = described()["components"]["schemas"]["Problem"]
    full = problem(code, retry_after_s=2.0, limit=3, min_timeout_ms=4)
    for one in (full, problem(code)):
        _, _, body = render(one, "an-id")
        validator_for(schema).validate(json.loads(body))
    assert not validator_for(schema).is_valid({"code": code})


def test_keys() -> None:
    """Where keys are configured the description says so, at what they protect and nowhere else."""
    with_keys, without = described(api_keys_file=__file__), described()
    protected = {
        (path, method)
        for path, methods in with_keys["paths"].items()
        for method, operation in methods.items()
        if "security" in operation
    }
    assert protected == {
        ("/", "post"), ("/status", "get"), ("/v2/models/{name}/infer", "post"),
        ("/v2/models/{name}/versions/{version}/infer", "post"),
    }  # fmt: skip
    for path, method in protected:
        assert "401" in with_keys["paths"][path][method]["responses"]
        assert "401" not in without["paths"][path][method]["responses"]
    assert "securitySchemes" not in without["components"]
    assert not [part for part in walk(without) if "security" in part]


def test_what_has_moved_is_not_described() -> None:
    """With ``metrics_bind`` the figures are elsewhere, and the description does not name them."""
    paths = described(metrics_bind="127.0.0.1:9")["paths"]
    assert not {"/metrics", "/status"} & set(paths)
    assert {"/", "/livez", DOCUMENT} <= set(paths)


def test_rehearsal() -> None:
    """The header that asks for a fault is described only where it counts."""
    for rehearsal in (True, False):
        headers = described(rehearsal=rehearsal)["paths"]["/"]["post"]["parameters"]
        assert ("X-Rehearse-Fault" in [one["name"] for one in headers]) == rehearsal


def test_another_medium() -> None:
    """A task of images is described with bytes as bodies, and not with texts."""
    task = Task(name="seeing", media="image", example=None, canary="")
    served = Served(Settings(), task, "1", {}, "", None, None)
    content = document(served)["paths"]["/"]["post"]["requestBody"]["content"]
    assert list(content) == ["application/json", "image/*", "application/octet-stream"]


# ---------------------------------------------------------------- how it is served


@pytest.mark.parametrize(
    "path,kind", [(DOCUMENT, "application/json"), (DOCS, "text/html; charset=utf-8")]
)
def test_headers(path: str, kind: str, tmp_path: Path) -> None:
    """Both have their type and a strict policy, are open, and 304 for whoever has them."""
    (tmp_path / "keys").write_text("a-key\n")
    stage = Stage(api_keys_file=str(tmp_path / "keys"))
    whole = get(stage, path)
    assert (whole.status, whole.headers["content-type"]) == (200, kind)
    for header, value in site.HEADERS.items():
        assert whole.headers[header] == value
    bare = get(stage, path, method="HEAD")
    assert (bare.status, bare.body) == (200, b"")
    assert bare.headers["content-length"] == str(len(whole.body))
    again = get(stage, path, ("If-None-Match", whole.headers["etag"]))
    assert (again.status, again.body) == (304, b"")
    assert get(stage, path, method="POST").headers["allow"] == "GET, HEAD"
    assert ask(Stage(metrics_bind="127.0.0.1:9").metrics_app, method="GET", path=path).status == 404


# ---------------------------------------------------------------- the page


class Parsed(HTMLParser):
    """What a page is made of."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note it."""
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """It ends what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text."""
        self.words += data


@pytest.fixture(scope="module", params=["fill-mask", "zero-shot-classification"])
def shown(request: pytest.FixtureRequest) -> Parsed:
    """The page of a task."""
    from service.http.openapi import page

    return Parsed(page(described(request.param, api_keys_file=__file__, rehearsal=True)))


def test_the_page_needs_nothing(shown: Parsed) -> None:
    """No script, no inline style, no handler, no foreign host; only the site's own files."""
    tags = {tag for tag, _ in shown.tags}
    assert not tags & {"script", "style", "iframe", "form", "object"}
    for tag, attributes in shown.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("src", "href"):
            target = attributes.get(name) or ""
            assert not re.match(r"(?:[a-z]+:|/)", target), (tag, target)


def test_the_links_of_the_page_lead_somewhere(shown: Parsed) -> None:
    """Every link leads to a heading of the page, a file of the site or a page of the server."""
    ids = [attributes["id"] for _, attributes in shown.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {
        str(attributes[name])
        for _, attributes in shown.tags
        for name in ("href", "src")
        if name in attributes
    }
    stage = Stage()
    for target in targets:
        if target.startswith("#"):
            assert target[1:] in ids
        else:
            assert get(stage, "/" + target.removeprefix("./")).status == 200, target
    labelled = [a["aria-labelledby"] for _, a in shown.tags if "aria-labelledby" in a]
    assert set(labelled) <= set(ids)


def test_the_page_shows_everything(shown: Parsed) -> None:
    """Operations, parameters, headers, statuses and codes of the document stand on the page."""
    task = "zero-shot-classification" if "zero-shot" in shown.words else "fill-mask"
    for path, method in OPERATIONS:
        if path != "/v1/embeddings":
            assert f"{method.upper()} {path}" in shown.words
    for name, parameter in TASKS[task].parameters.items():
        assert f"parameters.{name}" in shown.words
        assert parameter.describe in shown.words
    for code, kind in ERRORS.items():
        if code not in {"client_gone", "method_not_allowed"}:
            assert f"{code}: {kind.detail}" in shown.words
    for word in ("X-Request-Timeout-Ms", "If-None-Match", "Authorization: Bearer", "504"):
        assert word in shown.words


def test_the_page_escapes() -> None:
    """Nothing that is described becomes markup."""
    from service.http.openapi import page

    found = described()
    found["info"]["description"] = "<script>alert(1)</script> `<b>`"
    found["paths"]["/"]["post"]["summary"] = '"><img src=x>'
    text = page(found)
    assert "<script" not in text
    assert "<img src=x" not in text
    assert "<code>&lt;b&gt;</code>" in text
