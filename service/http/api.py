"""A prediction: from headers to answer, whatever the dialect.

1. headers: deadline, media type, encoding, declared length; refused with the body unread
2. body: received (``body``), taken apart (``dialect``), checked (``asking``)
3. admitted by the dispatcher, whole or not at all, in the same step of the loop
4. waited for, while the connection is watched: a client that leaves gives its places back
5. answered with the bytes that the worker made, spliced, never decoded

A client that has closed its sending side counts as gone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from service.core.errors import Refused, Stage, problem
from service.http import asking
from service.http.body import check_headers, receive_body
from service.http.context import Call, HttpContext, call_of
from service.http.dialect import Answer, Asked, Dialect
from service.http.problems import NO_STORE, Headers

if TYPE_CHECKING:
    from service.dispatcher import Reply, Ticket


class Predict:
    """ASGI: one prediction.

    Args:
        context: of the server.
        dialect: how it is asked and answered.
    """

    def __init__(self, context: HttpContext, dialect: Dialect) -> None:
        self._context = context
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One prediction."""
        context, call, dialect = self._context, call_of(scope), self._dialect
        settings = context.settings
        patience = asking.patience_of(call, settings.max_deadline_ms)
        rehearse = asking.rehearsed_fault(call, rehearsal=settings.rehearsal)
        how = dialect.reading(call, context)
        check_headers(call, context)
        received = await receive_body(call, receive, context, patience.least_s)
        body_at = context.clock()
        context.metrics.stage_seconds("receive", body_at - call.started)
        body = dialect.take_apart(received, how, context)
        try:
            ask = asking.ask_of(
                call,
                context,
                body,
                nbytes=len(received),
                body_at=body_at,
                patience=patience,
                rehearse=rehearse,
            )
            reply = await _reply(context.dispatcher.admit(ask), receive)
        except Refused as refused:
            raise Refused(dialect.placed(refused.problem, body)) from None
        replied_at = context.clock()
        answer = dialect.answer(Asked(call, body, ask, reply), context)
        await self._answer(call, reply, answer, send)
        context.metrics.stage_seconds("respond", context.clock() - replied_at)

    async def _answer(self, call: Call, reply: Reply, answer: Answer, send: Send) -> None:
        call.queue_s, call.infer_s = reply.queue_s, reply.infer_s
        call.batch_items = reply.batch_items
        timing = _server_timing(reply, self._context.clock() - call.started)
        headers: Headers = [
            *answer.headers,
            NO_STORE,
            (b"content-length", b"%d" % len(answer.body)),
            (b"server-timing", timing),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        call.outcome = "ok"


async def _reply(ticket: Ticket, receive: Receive) -> Reply:
    """The answers, unless the client leaves first.

    Raises:
        Refused: with what ended the request, ``client_gone`` too.
    """
    watch = asyncio.get_running_loop().create_task(_watch(ticket, receive))
    try:
        reply = await ticket.wait()
    finally:
        watch.cancel()
        ticket.leave()  # changes nothing at an end; a cancelled request gives its places back
    if watch.done():
        raise Refused(problem("client_gone", stage=Stage.RESPOND))
    return reply


async def _watch(ticket: Ticket, receive: Receive) -> None:
    """End the ticket when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    ticket.leave()


def _server_timing(reply: Reply, total_s: float) -> bytes:
    queue_ms, infer_ms, total_ms = reply.queue_s * 1000, reply.infer_s * 1000, total_s * 1000
    return b"queue;dur=%.3f, infer;dur=%.3f, total;dur=%.3f" % (queue_ms, infer_ms, total_ms)
