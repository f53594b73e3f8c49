"""``/docs``: the OpenAPI document as a page for people.

Laws
- It shows the document and knows nothing else: what stands on the page stands there.
- Everything is escaped; a word between backticks becomes code.
- No script: it can be read, searched and printed wherever there is a browser. Details open by
  themselves, and every heading has an address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

Described = dict[str, Any]

_CODE = re.compile(r"`([^`]+)`")
_NULL = {"type": "null"}
_PROBLEM = "application/problem+json"


def page(document: Described) -> str:
    """The page, as a whole HTML document."""
    info = document["info"]
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f"<title>{escape(info['summary'])} – {escape(info['title'])} API</title>\n",
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            '<link rel="icon" type="image/svg+xml" href="site/icon.svg">\n',
            '<link rel="stylesheet" href="site/page.css">\n</head>\n<body class="docs">\n',
            _header(info),
            _contents(document),
            "<main>\n",
            *_groups(document),
            _schemas(document),
            "</main>\n",
            '<footer class="muted"><span><a href="openapi.json">this as OpenAPI</a></span>',
            ' <span><a href="./">status page</a></span></footer>\n</body>\n</html>\n',
        )
    )


def _header(info: Described) -> str:
    return (
        '<header>\n<div class="brand"><img src="site/icon.svg" alt="" width="32" height="32">\n'
        f"<h1>{escape(info['title'])} API</h1>\n"
        f'<p class="muted">{escape(info["summary"])} · version {escape(info["version"])}</p></div>'
        f'\n<p class="intro muted">{_text(info["description"])}</p>\n</header>\n'
    )


def _operations(document: Described) -> Iterator[tuple[str, str, Described]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def _of(document: Described, tag: str) -> list[tuple[str, str, Described]]:
    return [found for found in _operations(document) if tag in found[2]["tags"]]


def _contents(document: Described) -> str:
    links = "".join(
        f'<li><a href="#{operation["operationId"]}"><code>{method} {escape(path)}</code></a></li>'
        for tag in document["tags"]
        for path, method, operation in _of(document, tag["name"])
    )
    return f'<nav aria-label="Operations"><ul class="legend">{links}</ul></nav>\n'


def _groups(document: Described) -> Iterator[str]:
    for tag in document["tags"]:
        found = _of(document, tag["name"])
        if found:
            name = escape(tag["name"])
            yield f'<section aria-labelledby="tag-{name}">\n<h2 id="tag-{name}">'
            yield f"{name.capitalize()}</h2>\n<p>{_text(tag['description'])}</p>\n"
            for path, method, operation in found:
                yield _operation(path, method, operation, document)
            yield "</section>\n"


def _operation(path: str, method: str, operation: Described, document: Described) -> str:
    name = operation["operationId"]
    parts = [
        f'<article class="card" aria-labelledby="{name}">\n<h3 id="{name}">',
        f"<code>{method} {escape(path)}</code> {_text(operation['summary'])}</h3>\n",
    ]
    if "description" in operation:
        parts.append(f"<p>{_text(operation['description'])}</p>\n")
    if "security" in operation:
        scheme = document["components"]["securitySchemes"]["key"]
        parts.append(
            f"<p>Needs a key (<code>Authorization: Bearer KEY</code>): "
            f"{_text(scheme['description'])}</p>\n"
        )
    if "requestBody" in operation:
        parts.append(_body(operation["requestBody"], path))
    if "parameters" in operation:
        rows = [_parameter(one) for one in operation["parameters"]]
        parts.append(_table("Path and headers", ("name", "in", "meaning"), rows))
    rows = [_response(status, one) for status, one in operation["responses"].items()]
    parts.append(_table("Answers", ("status", "meaning", "content"), rows))
    return "".join((*parts, "</article>\n"))


def _body(body: Described, path: str) -> str:
    parts = [f"<h4>Body</h4>\n<p>{_text(body['description'])}</p>\n"]
    for media, content in body["content"].items():
        parts.append(f"<p><code>{escape(media)}</code></p>\n")
        schema = content["schema"]
        known = schema.get("properties", {})
        if known:
            rows = [_member(name, one, schema) for name, one in known.items()]
            inside = known.get("parameters", {})
            rows += [
                _member(name, one, inside, "parameters.")
                for name, one in inside.get("properties", {}).items()
            ]
            parts.append(_table("Members", ("name", "must be", "meaning"), rows))
        if "example" in content:
            parts.append(_curl(media, content["example"], path))
        if schema:
            parts.append(_json("Schema of the body", schema))
    return "".join(parts)


def _curl(media: str, example: Described | str, path: str) -> str:
    body = example if isinstance(example, str) else json.dumps(example, ensure_ascii=False)
    quoted = "'" + body.replace("'", "'\\''") + "'"
    how = "--data-raw" if body.startswith("@") else "-d"
    line = f'curl -H "Content-Type: {media}" {how} {quoted} http://HOST:PORT{path}'
    return f'<pre tabindex="0" aria-label="curl command">{escape(line)}</pre>\n'


def _member(name: str, schema: Described, inside: Described, before: str = "") -> tuple[str, ...]:
    needed = "" if name in inside.get("required", ()) else " (optional)"
    label = f"<code>{escape(before + name)}</code>{needed}"
    return label, _words(schema), _text(schema.get("description", ""))


def _parameter(parameter: Described) -> tuple[str, ...]:
    return (
        f"<code>{escape(parameter['name'])}</code>",
        escape(parameter["in"]),
        _text(parameter["description"]),
    )


def _response(status: str, response: Described) -> tuple[str, ...]:
    content = [f"<code>{escape(media)}</code>" for media in response.get("content", {})]
    says = _text(response["description"])
    if _PROBLEM in response.get("content", {}):
        says = re.sub(r"<code>(\w+)</code>:", r'<a href="errors/\1"><code>\1</code></a>:', says)
    return f"<code>{status}</code>", says, " ".join(content) or "–"


def _words(schema: Described) -> str:
    """A schema in a few words; the whole of it stands below."""
    if "anyOf" in schema:
        kinds = [one for one in schema["anyOf"] if one != _NULL]
        return " or ".join(one.get("title") or _words(one) for one in kinds)
    if "enum" in schema:
        return "one of " + ", ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    kind = schema.get("type", "anything")
    name = kind if isinstance(kind, str) else kind[0]
    bounds = [
        f"{word} {schema[key]}"
        for key, word in _BOUNDS
        if key in schema and abs(schema[key]) < _HUGE
    ]
    return escape(" ".join((name, *bounds)))


_BOUNDS = (("minimum", "from"), ("exclusiveMinimum", "over"), ("maximum", "to"))
_HUGE = 2**31 - 1


def _schemas(document: Described) -> str:
    made = "".join(_json(name, one) for name, one in document["components"]["schemas"].items())
    return (
        '<section aria-labelledby="shapes" class="card">\n<h2 id="shapes">Shapes</h2>\n'
        f"{made}</section>\n"
    )


def _json(title: str, schema: Described) -> str:
    text = json.dumps(schema, indent=1, ensure_ascii=False)
    return (
        f"<details><summary>{escape(title)}</summary>"
        f'<pre tabindex="0" aria-label="{escape(title)}">{escape(text)}</pre></details>\n'
    )


def _table(caption: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    heads = "".join(f'<th scope="col">{name}</th>' for name in head)
    lines = "".join(
        f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>"
        for first, *rest in rows
    )
    return (
        f"<h4>{caption}</h4>\n<table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{lines}</tbody></table>\n"
    )


def _text(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))
