"""The status page as files: what a browser gets at ``GET /``, and what that page asks for.

The page shows nothing of its own: it asks ``/``, ``/status`` and ``/readyz`` like any client, with
the key that its reader enters where keys are configured. So the files are open to everybody.

Laws
- Read once, when the process starts; a file that is missing ends the start.
- No build step, no foreign host, no inline script or style: the content security policy allows the
  server's own files and nothing else.
- Addresses in the files are relative: the page works behind a proxy that adds a path.
- A browser asks again each time (``no-cache``) and gets 304 while nothing has changed, so that
  after an update no old script meets a new page.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from service.core.errors import Refused, problem

PAGE = "page.html"
TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
"""Media types by the ending of a file's name."""

OWN = ("script-src", "style-src", "img-src", "connect-src")
NONE = ("default-src", "base-uri", "form-action", "frame-ancestors")
POLICY = "; ".join([*(f"{what} 'none'" for what in NONE), *(f"{what} 'self'" for what in OWN)])
"""The content security policy: the server's own files, and no other source of anything."""

HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""On every file of the site."""

_NOT_MODIFIED = 304


@dataclass(frozen=True, slots=True)
class Asset:
    """One file: its bytes, their type and their tag."""

    body: bytes
    media_type: str
    etag: str


def tag_of(body: bytes) -> str:
    """The tag by which a browser knows that a file has not changed."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _read() -> dict[str, Asset]:
    found: dict[str, Asset] = {}
    for file in files(__package__).iterdir():
        media_type = TYPES.get(file.name.rpartition(".")[2])
        if media_type is not None:
            body = file.read_bytes()
            found[file.name] = Asset(body, media_type, tag_of(body))
    return found


ASSETS = _read()
"""Every file of the site, by its name."""

_PAGE = ASSETS[PAGE]


def page(request: Request) -> Response:
    """The page itself; the same address answers programs with something else."""
    return answer(_PAGE, request, vary="accept")


def asset(request: Request) -> Response:
    """A file that the page names.

    Raises:
        Refused: ``not_found``; the page itself has one address, and it is not here.
    """
    found = ASSETS.get(request.path_params["name"])
    if found is None or found is _PAGE:
        raise Refused(problem("not_found"))
    return answer(found, request)


def answer(asset: Asset, request: Request, **extra: str) -> Response:
    """A file, or 304 for whoever has it; ``extra`` are more headers."""
    headers = {**HEADERS, "etag": asset.etag, **extra}
    if _has(request.headers.get("if-none-match", ""), asset.etag):
        return Response(status_code=_NOT_MODIFIED, headers=headers)
    return Response(asset.body, headers=headers, media_type=asset.media_type)


def _has(tags: str, etag: str) -> bool:
    """Whether ``If-None-Match`` names the tag; a proxy that compresses has made it a weak one."""
    return any(tag.strip().removeprefix("W/") in {etag, "*"} for tag in tags.split(","))
