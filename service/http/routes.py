"""Which page stands at which address.

Laws
- A page is a GET; ``HEAD`` works wherever ``GET`` does and has no body.
- Another method is 405 with ``Allow``; an unknown path is 404. Nothing redirects.
- A page notes its template on the call (some share one), so that no metric ever holds a path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from service.core.errors import Refused, problem
from service.http.context import HttpContext, call_of
from service.http.problems import RefusedWith

Page = Callable[[HttpContext, Request], Response]
"""Makes the answer at once; nothing here waits."""


@dataclass(frozen=True, slots=True)
class Place:
    """One address.

    Attributes:
        page: what answers, ``None`` where only the other methods are served.
        also: methods that are served elsewhere at the same address, for ``Allow``.
        label: what metrics call it, together with its kind; without one its own template.
    """

    page: Page | None
    also: tuple[str, ...] = ()
    label: str = ""


class Routes:
    """ASGI: the pages.

    Args:
        context: of the server.
        places: by path template, as Starlette writes them (``/errors/{code}``).
    """

    def __init__(self, context: HttpContext, places: Mapping[str, Place]) -> None:
        self._context = context
        self._exact = {path: place for path, place in places.items() if "{" not in path}
        self._patterns = [
            (compile_path(path)[0], path, place) for path, place in places.items() if "{" in path
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI call."""
        if scope["type"] != "http":
            raise RuntimeError(f"no {scope['type']} here")
        template, place, params = self._find(scope["path"])
        call_of(scope).route = place.label or template
        if scope["method"] not in {"GET", "HEAD"} or place.page is None:
            reading = () if place.page is None else ("GET", "HEAD")
            allowed = ", ".join((*reading, *place.also)).encode()
            raise RefusedWith(problem("method_not_allowed"), [(b"allow", allowed)])
        scope["path_params"] = params
        response = place.page(self._context, Request(scope, receive))
        start = {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
        body = b"" if scope["method"] == "HEAD" else response.body
        await send(start)
        await send({"type": "http.response.body", "body": body})

    def _find(self, path: str) -> tuple[str, Place, dict[str, Any]]:
        place = self._exact.get(path)
        if place is not None:
            return path, place, {}
        for pattern, template, place in self._patterns:
            match = pattern.match(path)
            if match:
                return template, place, match.groupdict()
        raise Refused(problem("not_found"))
