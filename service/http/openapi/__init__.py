"""``/openapi.json`` and ``/docs``: the API described, for programs and for people.

The description is made of the tables that serve: the task's entry, the error list, the settings.
``operations`` is where a route is described; ``document`` puts it together, ``page`` shows it.

Laws
- Nothing is promised here that a check elsewhere does not keep; a fuzzer that reads the description
  asks a real server.
- The page is whole without JavaScript and names no foreign host.
- Both are made anew only when what is served has changed: at the moment the model is ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from service.http.openapi.document import document
from service.http.openapi.page import page
from service.http.openapi.served import Served
from service.http.site import Asset, tag_of

if TYPE_CHECKING:
    from service.http.context import HttpContext

__all__ = ["Reference", "Served", "document", "page"]


class Reference:
    """The description of one server, as files.

    Args:
        context: of the server.
    """

    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._made_for: Served | None = None
        self._document = self._page = Asset(b"", "", "")

    @property
    def document(self) -> Asset:
        """The OpenAPI document."""
        self._renew()
        return self._document

    @property
    def page(self) -> Asset:
        """The page for people."""
        self._renew()
        return self._page

    def _renew(self) -> None:
        served = self._served()
        if served == self._made_for:
            return
        described = document(served)
        self._document = _asset(msgspec.json.encode(described), "application/json")
        self._page = _asset(page(described).encode(), "text/html")
        self._made_for = served

    def _served(self) -> Served:
        context = self._context
        limits, facts = context.dispatcher.limits, context.dispatcher.facts
        return Served(
            settings=context.settings,
            task=context.task,
            version=context.version,
            facts=dict(context.dispatcher.int_facts),
            mask=facts.mask_token if facts else "",
            example=context.example,
            chars=None if limits is None else limits.max_chars(1),
        )


def _asset(body: bytes, media_type: str) -> Asset:
    return Asset(body, media_type, tag_of(body))
