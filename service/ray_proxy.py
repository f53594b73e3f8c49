"""What Ray Serve's proxies and the replicas behind them say to each other: since when one waits.

A request that waits in a busy proxy, or for a replica that does not read, has used its time there.
So each proxy notes when it had the headers, and the replica takes off what has passed since: the
deadline that a client names starts at its headers, wherever these were read first::

    RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=service.ray_proxy:middlewares

in the environment of Ray on every node. Without it a wait in the proxy is not seen, as before.

Laws
- Only the proxy's word counts: a client's own header of that name is dropped. Where no proxy notes
  anything, a client that sends it shortens its own time and nobody else's.
- Proxy and replica may be on two machines, so the note is of the clock of the day. A wait that is
  negative is none; one that is longer than Serve lets a request live is a clock that is wrong, and
  is none too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from service import NAME

HEADER = f"x-{NAME}-arrived-ms".encode()
"""Between our own two ends, and no part of the API: milliseconds since the epoch."""

MOST_DIGITS = 15


class Arrival:
    """ASGI, in the proxy: note when a request's headers were there.

    Args:
        app: the proxy.
        clock: seconds since the epoch.
    """

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.time) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI call."""
        if scope["type"] == "http":
            kept = [(name, value) for name, value in scope["headers"] if name.lower() != HEADER]
            noted = (HEADER, b"%d" % (self._clock() * 1000))
            scope = {**scope, "headers": [*kept, noted]}
        await self._app(scope, receive, send)


def middlewares() -> list[Middleware]:
    """What Serve puts into each of its proxies."""
    return [Middleware(Arrival)]


def waited_s(headers: Iterable[tuple[bytes, bytes]], now: float, most_s: float) -> float:
    """How long ago the proxy had the headers, 0 where nothing fit is noted.

    Args:
        headers: as the replica got them.
        now: seconds since the epoch.
        most_s: a longer wait is not believed.
    """
    noted = [value for name, value in headers if name == HEADER]
    if len(noted) != 1 or not noted[0].isdigit() or len(noted[0]) > MOST_DIGITS:
        return 0.0
    waited = now - int(noted[0]) / 1000
    return waited if 0 < waited <= most_s else 0.0
