"""Receiving a body: within its time, within its size, within what all may hold together.

=================================================  ===========================
while receiving                                    the request ends as
=================================================  ===========================
``Content-Encoding`` other than ``identity``       415, nothing is read
declared longer than ``max_body_bytes``            413, nothing is read
longer than ``max_body_bytes`` as it comes         413 at that byte
not whole within ``receive_timeout_ms``            408
whoever asks will not wait any longer              504, stage *receive*
all bodies together over ``max_receiving_bytes``   503 ``queue_full``
the connection ends                                ``client_gone``, stage *receive*
its framing breaks                                 400
=================================================  ===========================

``queue_full`` for bytes is the contract's own word: the bound belongs to the server, not to this
client, and a retry may well succeed.
"""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive

from service.core.errors import Problem, Refused, Stage, problem
from service.http.context import Call, HttpContext

MALFORMED = "malformed"
"""Set by the protocol on the ``http.disconnect`` that stands for broken framing."""


def check_headers(call: Call, context: HttpContext) -> None:
    """Refuse by the headers alone what would be refused after reading.

    Raises:
        Refused: ``unsupported_media_type``, ``payload_too_large``.
    """
    encoding = call.headers.get(b"content-encoding", b"").strip().lower()
    if b"content-encoding" in call.repeated or encoding not in {b"", b"identity"}:
        detail = "Send the body as it is, without a Content-Encoding."
        raise Refused(problem("unsupported_media_type", detail))
    declared = call.headers.get(b"content-length", b"")
    most = context.settings.max_body_bytes
    if declared.isdigit() and is_more(declared, most):
        raise Refused(_too_large(most))


def is_more(declared: bytes, most_bytes: int) -> bool:
    """Whether a ``Content-Length`` is over a limit; one of thousands of digits is no ``int``."""
    return len(declared) > len(str(most_bytes)) or int(declared) > most_bytes


async def receive_body(
    call: Call, receive: Receive, context: HttpContext, patience_s: float
) -> bytes:
    """The whole body.

    Args:
        call: the request; its start is when its headers were complete.
        receive: of ASGI.
        context: of the server.
        patience_s: how long whoever asks waits, from the headers on; infinite if nobody said.

    Raises:
        Refused: as the table says.
    """
    limit_s = context.settings.receive_timeout_s
    left_s = patience_s - call.waited_s
    if left_s <= 0:
        raise Refused(_late(patience_s))
    context.metrics.receiving(1)
    held = _Held(context)
    try:
        async with asyncio.timeout(call.started + min(limit_s, left_s) - context.clock()):
            return await _whole(receive, held)
    except TimeoutError:
        late = _late(patience_s) if left_s < limit_s else problem("request_timeout")
        raise Refused(late) from None
    finally:
        held.release()
        context.metrics.receiving(-1)


async def _whole(receive: Receive, held: _Held) -> bytes:
    message = await receive()
    first = _chunk(message)
    held.take(len(first))
    if not message.get("more_body", False):
        return first
    parts = [first]
    while message.get("more_body", False):
        message = await receive()
        part = _chunk(message)
        held.take(len(part))
        parts.append(part)
    return b"".join(parts)


def _chunk(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        if message.get(MALFORMED):
            detail = "The body breaks off: its chunks or its length are not as announced."
            raise Refused(problem("malformed_request", detail))
        raise Refused(problem("client_gone", stage=Stage.RECEIVE))
    body: bytes = message.get("body", b"")
    return body


class _Held:
    """What one body holds of the bytes that all bodies may hold together."""

    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._bytes = 0

    def take(self, more: int) -> None:
        """So many bytes have arrived."""
        context, settings = self._context, self._context.settings
        if self._bytes + more > settings.max_body_bytes:
            raise Refused(_too_large(settings.max_body_bytes))
        if context.receiving_bytes + more > settings.max_receiving_bytes:
            detail = "Too many bodies are being received at present."
            raise Refused(problem("queue_full", detail))
        self._bytes += more
        context.receiving_bytes += more

    def release(self) -> None:
        """The body is whole, or given up."""
        self._context.receiving_bytes -= self._bytes
        self._bytes = 0


def _late(patience_s: float) -> Problem:
    milliseconds = round(patience_s * 1000)
    detail = f"The deadline of {milliseconds} ms passed before the body had arrived."
    return problem("deadline_exceeded", detail, stage=Stage.RECEIVE)


def _too_large(most: int) -> Problem:
    return problem("payload_too_large", f"A body may have at most {most} bytes.", limit=most)
