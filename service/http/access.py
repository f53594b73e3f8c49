"""The outermost room: every request enters and leaves here, once.

Laws
- Every answer carries the request's id, errors and probes too.
- A prediction ends in exactly one outcome, one sample and one line (or one count among the shed
  ones), whatever its way out: answered, refused, client gone, cancelled, our own bug.
- What a refusal says is written here and nowhere else; below, rooms raise ``Refused``.
- An exception that is no refusal is our bug: 500 ``internal_error``; the log gets its class and
  frames, never its message.
- While the server is going away every answer closes its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.core.errors import ERRORS, OutcomeClass, Problem, Refused, problem
from service.http import identity
from service.http.context import WAITED_S, Call, HttpContext, note
from service.http.peers import NOBODY, peer_of
from service.http.problems import RefusedWith, Rendered, render, retry_after_s
from service.http.wording import more_of
from service.traces import error_fields

_GONE, _SHED = OutcomeClass.GONE, OutcomeClass.SHED
_CLOSE = (b"connection", b"close")


class Access:
    """ASGI: notes, answers refusals, counts and logs.

    Args:
        app: the next room.
        context: of the server.
        predictions: the paths at which a POST is a prediction.
    """

    def __init__(self, app: ASGIApp, context: HttpContext, predictions: Container[str]) -> None:
        self._app = app
        self._context = context
        self._predictions = predictions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        prediction = scope["method"] == "POST" and scope["path"] in self._predictions
        host = (scope.get("client") or (NOBODY,))[0]
        call = self.enter(scope["headers"], prediction=prediction, peer=peer_of(host))
        call.waited_s = scope.get(WAITED_S, 0.0)
        note(scope, call)
        send = self._marked(call, send)
        try:
            await self._serve(call, scope, receive, send)
        finally:
            self.leave(call, scope["method"])

    def enter(
        self, sent: Iterable[tuple[bytes, bytes]], *, prediction: bool, peer: str = NOBODY
    ) -> Call:
        """A request whose head is complete; whoever ends it calls :meth:`leave`."""
        headers, repeated = identity.read(sent)
        return Call(
            request_id=identity.request_id(headers, repeated),
            started=self._context.clock(),
            prediction=prediction,
            headers=headers,
            repeated=repeated,
            trace_id=identity.trace_id(headers, repeated),
            client=NOBODY if self._context.settings.behind_proxy else peer,
        )

    def _marked(self, call: Call, send: Send) -> Send:
        mark = (identity.REQUEST_ID, call.request_id.encode())
        context = self._context

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                call.status = message["status"]
                headers = [*message.get("headers", ()), mark]
                if context.going_away:
                    headers.append(_CLOSE)
                message = {**message, "headers": headers}
            await send(message)

        return marked

    async def _serve(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Refused as refused:
            await self._refuse(call, scope, send, refused)
        except asyncio.CancelledError:
            # Only the end of the process cancels a request: its client is told so.
            await self._refuse(call, scope, send, Refused(problem("draining")))
            raise
        except Exception as error:  # noqa: BLE001
            # Whatever a bug raises, the client gets an answer and the server goes on.
            fields = error_fields(error)  # not exception(): that logs the message too
            self._context.log.error(  # noqa: TRY400
                "internal.error", where="request", id=call.request_id, **fields
            )
            await self._refuse(call, scope, send, Refused(problem("internal_error")))

    async def _refuse(self, call: Call, scope: Scope, send: Send, refused: Refused) -> None:
        refusal = refused.problem
        if refusal.kind.outcome_class is _GONE or call.status:
            # Nobody listens, or an answer has begun: the protocol closes the connection.
            call.outcome, call.stage = refusal.code, refusal.stage
            return
        extra = refused.headers if isinstance(refused, RefusedWith) else ()
        status, headers, body = self.refused(call, refusal, extra, path=scope["path"])
        await send({"type": "http.response.start", "status": status, "headers": headers})
        shown = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": shown})

    def refused(
        self,
        call: Call,
        refusal: Problem,
        extra: Iterable[tuple[bytes, bytes]] = (),
        *,
        path: str,
    ) -> Rendered:
        """Note why, and word the answer for whoever asks at this path."""
        call.outcome, call.stage = refusal.code, refusal.stage
        again = retry_after_s(refusal)
        if again is not None:
            self._context.metrics.retry_after(again)
        more = more_of(path, refusal)
        return render(refusal, call.request_id, extra=(*extra, *more.headers), more=more.members)

    def leave(self, call: Call, method: str) -> None:
        """The request is out: counted and logged, once."""
        context = self._context
        seconds = context.clock() - call.started
        if not call.prediction:
            if call.status:
                context.metrics.http_response(call.route, call.status)
            context.log.debug(
                "http.done",
                id=call.request_id,
                method=method,
                route=call.route,
                status=call.status,
                total_ms=_ms(seconds),
            )
            return
        context.metrics.request_done(
            call.outcome, seconds, stage=call.stage, trace_id=call.trace_id
        )
        kind = ERRORS.get(call.outcome)
        shed = kind is not None and kind.outcome_class is _SHED
        if shed and not context.shed.may_log(call.outcome):
            return
        context.log.info(
            "request.done",
            id=call.request_id,
            outcome=call.outcome,
            status=HTTPStatus.OK.value if kind is None else kind.status,
            items=call.items,
            queue_ms=_ms(call.queue_s),
            infer_ms=_ms(call.infer_s),
            total_ms=_ms(seconds),
            batch_items=call.batch_items,
            trace_id=call.trace_id,
        )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
