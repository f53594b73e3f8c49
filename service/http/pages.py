"""The pages beside predictions: probes, metrics, status, what an error means, what there is.

Laws
- ``/livez`` never depends on load, worker or model: it answers, so the loop runs; it fails only
  when the process has given up and whoever runs it does not end it.
- ``/readyz`` asks the dispatcher, whose answer never depends on how full the queue is.
- Nothing here waits for the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from service import NAME
from service.core.errors import ERRORS, ErrorKind, Refused, problem
from service.core.lifecycle import ServiceState
from service.http import site
from service.http.context import HttpContext, call_of
from service.http.keys import KeyFile
from service.http.routes import Page, Place
from service.tasks.parameter import Json

if TYPE_CHECKING:
    from starlette.requests import Request

_FRESH = {"cache-control": "no-store"}
_AGAIN = {**_FRESH, "retry-after": "1"}
_HTML_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}
_OK, _UNAVAILABLE = 200, 503


def as_json(value: object, status: int = _OK, headers: dict[str, str] | None = None) -> Response:
    """An answer of JSON."""
    body = msgspec.json.encode(value)
    return Response(body, status, headers, media_type="application/json")


def probe(good: bool, word: str, more: Mapping[str, Json] | None = None) -> Response:  # noqa: FBT001
    """200 or 503, and the same as a member of that name, beside ``more``."""
    value = {**(more or {}), word: good}
    return as_json(value, _OK, _FRESH) if good else as_json(value, _UNAVAILABLE, _AGAIN)


def is_alive(context: HttpContext) -> bool:
    """The loop is, since it asks; whether the process has not given up."""
    return context.dispatcher.state is not ServiceState.FAILED


def readiness(context: HttpContext) -> tuple[bool, str]:
    """Whether traffic may come, and why not."""
    return (False, "shutting down") if context.closing else context.dispatcher.ready()


def livez(context: HttpContext, _request: Request) -> Response:
    """The loop is alive, and the process has not given up."""
    return probe(is_alive(context), "alive")


def readyz(context: HttpContext, _request: Request) -> Response:
    """May traffic come, and why not."""
    ready, reason = readiness(context)
    return probe(ready, "ready", {"reason": reason})


def startupz(context: HttpContext, _request: Request) -> Response:
    """Was the model ever ready."""
    return probe(context.dispatcher.ever_ready, "started")


def metrics(context: HttpContext, request: Request) -> Response:
    """Prometheus text or OpenMetrics, as ``Accept`` says."""
    body, content_type = context.metrics.render(request.headers.get("accept"))
    return Response(body, headers={**_FRESH, "content-type": content_type})


def status(context: HttpContext, _request: Request) -> Response:
    """Everything that the status page shows."""
    return as_json(context.dispatcher.status(), headers=_FRESH)


def root(context: HttpContext, request: Request) -> Response:
    """The status page for a browser; for programs, what this is and where the rest stands."""
    if _for_people(request):
        return site.page(request)
    links = {"predict": "/", "livez": "/livez", "readyz": "/readyz", "startupz": "/startupz"}
    if not context.settings.metrics_bind:
        links |= {"metrics": "/metrics", "status": "/status"}
    links |= {"errors": "/errors/{code}", "openapi": "/openapi.json", "docs": "/docs", "v2": "/v2"}
    if context.serves_embeddings:
        links["embeddings"] = "/v1/embeddings"
    return as_json(
        {
            "name": NAME,
            "version": context.version,
            "task": context.task.name,
            "media": context.task.media,
            "model": context.settings.model_name,
            "example": context.example,
            "parameters": dict(context.task.example_parameters),
            "links": links,
        },
        headers={"cache-control": "no-cache", "vary": "accept"},
    )


def _for_people(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def asset(_context: HttpContext, request: Request) -> Response:
    """A file of the status page."""
    return site.asset(request)


def openapi(context: HttpContext, request: Request) -> Response:
    """The API described, for programs."""
    return site.answer(context.reference.document, request)


def docs(context: HttpContext, request: Request) -> Response:
    """The API described, for people."""
    return site.answer(context.reference.page, request)


def error(_context: HttpContext, request: Request) -> Response:
    """What an error means, for the caller and for whoever runs the server."""
    kind = ERRORS.get(request.path_params["code"])
    if kind is None:
        raise Refused(problem("not_found", "There is no error of that name."))
    if _for_people(request):
        page = Response(_error_html(kind), media_type="text/html", headers=_HTML_HEADERS)
    else:
        page = as_json(
            {
                "code": kind.code,
                "status": kind.status,
                "class": kind.outcome_class,
                "title": kind.title,
                "detail": kind.detail,
                "retryable": kind.retryable,
                "caller": kind.caller,
                "operator": kind.operator,
            }
        )
    page.headers["vary"] = "accept"
    page.headers["cache-control"] = "no-cache"
    return page


def keyed(page: Page, keys: KeyFile | None) -> Page:
    """The same page, for whoever has a key; open where no keys are configured."""
    if keys is None:
        return page

    def behind_keys(context: HttpContext, request: Request) -> Response:
        if keys.holder(call_of(request.scope)) is None:
            raise Refused(problem("unauthorized"))
        return page(context, request)

    return behind_keys


PROBES: dict[str, Place] = {
    "/livez": Place(livez),
    "/readyz": Place(readyz),
    "/startupz": Place(startupz),
}
"""Open to everybody, on every listener."""


def watching(keys: KeyFile | None) -> dict[str, Place]:
    """What moves to ``metrics_bind`` where that is set."""
    return {"/metrics": Place(metrics), "/status": Place(keyed(status, keys))}


READING: dict[str, Place] = {
    "/": Place(root, also=("POST",)),
    "/site/{name}": Place(asset),
    "/errors/{code}": Place(error),
    "/openapi.json": Place(openapi),
    "/docs": Place(docs),
}
"""What people read."""


def _error_html(kind: ErrorKind) -> str:
    rows = (
        ("Status", str(kind.status)),
        ("Class", kind.outcome_class.value),
        ("Worth a retry", "yes" if kind.retryable else "no"),
        ("What happened", kind.detail),
        ("If you call this server", kind.caller),
        ("If you run this server", kind.operator),
    )
    body = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    title = f"{escape(kind.title)} ({kind.code})"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width">'
        "<style>body{font:1rem/1.5 system-ui;max-width:40rem;margin:2rem auto;padding:0 1rem}"
        "dt{font-weight:600;margin-top:1rem}dd{margin:0}</style></head>"
        f"<body><h1>{title}</h1><dl>{body}</dl></body></html>\n"
    )
