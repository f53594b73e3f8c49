"""The HTTP room: protocol, door, access, gate, predict, pages.

::

    socket ─ protocol ─ access ─ gate ─┬─ predictions ─ predict ─ dispatcher
                 └ door                │                   └ dialect (plain, oip, openai)
                                       └─ routes ─ pages

``protocol`` guards the connection, ``access`` the request's one entry and exit, ``gate`` the
queue. ``door`` asks the gate before there is a request to serve, so that a refusal costs little.
The room sees the dispatcher and never a worker.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from service.http import oip, openai, pages
from service.http.access import Access
from service.http.context import HttpContext
from service.http.door import Door
from service.http.gate import Gate
from service.http.keys import KeyFile
from service.http.predictions import Predictions
from service.http.routes import Place, Routes

__all__ = ["PLACES", "Door", "HttpContext", "build_app", "build_front", "build_metrics_app"]

PLACES: dict[str, Place] = pages.PROBES | pages.READING | oip.PLACES | openai.PLACES
"""Every page of the main listener, but for what moves to ``metrics_bind``."""


def build_app(context: HttpContext) -> ASGIApp:
    """The server's app: predictions, probes and pages, for any ASGI server.

    Raises:
        OSError, ValueError: as :func:`build_front`.
    """
    return build_front(context)[0]


def build_front(context: HttpContext) -> tuple[ASGIApp, Door]:
    """The server's app, and the door for our own protocol.

    Raises:
        OSError, ValueError: the key file cannot be read or holds no key.
    """
    keys = _keys(context)
    places = PLACES
    if not context.settings.metrics_bind:
        places = places | pages.watching(keys)
    predictions = Predictions(context)
    gate = Gate(context, predictions, Routes(context, places), keys)
    access = Access(gate, context, predictions)
    return access, Door(context, access, gate, predictions)


def build_metrics_app(context: HttpContext) -> ASGIApp:
    """The app of the second listener (``metrics_bind``): metrics, status and probes.

    Raises:
        OSError, ValueError: as :func:`build_app`.
    """
    places = pages.PROBES | pages.watching(_keys(context))
    return Access(Routes(context, places), context, predictions=())


def _keys(context: HttpContext) -> KeyFile | None:
    path = context.settings.api_keys_file
    return KeyFile(path, context.log) if path else None
