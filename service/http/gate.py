"""The gate: a prediction is refused here with its body unread, or let through.

Plain ASGI before any router, since refusing must stay cheap when everything else is not. The
order: a key where keys are configured, the address, then the dispatcher's own order (draining, no
worker ready, breaker, queue full, predicted wait). Whom load alone would refuse is let through all
the same where others hold more than their share: admission then decides who makes room.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from service.core.errors import Problem, Refused, problem
from service.http.context import Call, HttpContext, call_of
from service.http.keys import KeyFile
from service.http.predictions import Predictions

_BY_LOAD = frozenset({"queue_full", "overloaded"})


class Gate:
    """ASGI: predictions to whoever serves them if they may come, everything else to ``pages``.

    Args:
        context: of the server.
        predictions: who serves a prediction.
        pages: what serves the rest.
        keys: the API keys, ``None`` where none are configured.
    """

    def __init__(
        self,
        context: HttpContext,
        predictions: Predictions,
        pages: ASGIApp,
        keys: KeyFile | None,
    ) -> None:
        self._context = context
        self._predictions = predictions
        self._pages = pages
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI call."""
        if scope["type"] != "http" or not call_of(scope).prediction:
            await self._pages(scope, receive, send)
            return
        call = call_of(scope)
        refusal = self.barred(call)
        if refusal is not None:
            raise Refused(refusal)
        predict = self._predictions.at(scope["path"])
        refusal = self.not_now(call, self.full())
        if refusal is not None:
            raise Refused(refusal)
        await predict(scope, receive, send)

    def barred(self, call: Call) -> Problem | None:
        """Why this client may not come in at all, ``None`` if it may."""
        if self._keys is None:
            return None
        holder = self._keys.holder(call)
        if holder is None:
            return problem("unauthorized")
        call.client = holder
        return None

    def full(self) -> Problem | None:
        """Why nobody may come in now, ``None`` if there is room."""
        return self._context.dispatcher.gate()

    def not_now(self, call: Call, full: Problem | None) -> Problem | None:
        """Why this client may not come in now, given why nobody may; after :meth:`barred`."""
        if full is not None and full.code in _BY_LOAD:
            return None if self._context.dispatcher.has_claim(call.client) else full
        return full
