"""A dialect: how one kind of client asks for predictions and is answered.

What lies between (admission, queue, deadline, counting) is the same for all; a dialect reads a body
and writes an answer. Which stands at which address says ``predictions``.

Laws
- The media type is judged before the body is read.
- A fault found by :meth:`Dialect.take_apart` points into the client's own body. What the house
  finds later points into ours, and :meth:`Dialect.placed` says where that is in the client's.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from service.core.admission import Ask
from service.core.errors import Problem
from service.dispatcher import Reply
from service.http import media
from service.http.context import Call, HttpContext
from service.http.media import Body
from service.http.problems import Headers
from service.http.shapes import body_of, type_of

How = Any
"""What :meth:`Dialect.reading` has found out, for :meth:`Dialect.take_apart`."""

JSON_TYPE = (b"content-type", b"application/json")


class Answer(NamedTuple):
    """What goes out: headers of the dialect's own, its content type among them, and the body."""

    headers: Headers
    body: bytes


class Asked(NamedTuple):
    """A request that has been answered by the model.

    Attributes:
        call: its note.
        body: as the dialect took it apart.
        ask: as it was admitted.
        reply: what the model said.
    """

    call: Call
    body: Body
    ask: Ask
    reply: Reply


class Dialect(Protocol):
    """One way of asking."""

    def reading(self, call: Call, context: HttpContext) -> How:
        """How the body is to be read, by the headers alone.

        Raises:
            Refused: ``unsupported_media_type``, ``malformed_request``.
        """
        ...

    def take_apart(self, body: bytes, how: How, context: HttpContext) -> Body:
        """Inputs and parameters of a body, nothing of the task checked yet.

        Raises:
            Refused: it is not what this dialect has.
        """
        ...

    def placed(self, refusal: Problem, body: Body) -> Problem:
        """The same refusal, its pointers in the client's own body, as taken apart."""
        ...

    def answer(self, asked: Asked, context: HttpContext) -> Answer:
        """The answer to a request that went well."""
        ...


class Plain:
    """``POST /``: the Hugging Face convention, plain text, raw bytes."""

    def reading(self, call: Call, context: HttpContext) -> How:
        """As ``media`` says."""
        return media.reading(call, context.task.media)

    def take_apart(self, body: bytes, how: How, context: HttpContext) -> Body:
        """As ``media`` says."""
        del context
        return media.take_apart(body, how)

    def placed(self, refusal: Problem, body: Body) -> Problem:
        """Its pointers are ours."""
        del body
        return refusal

    def answer(self, asked: Asked, context: HttpContext) -> Answer:
        """The bytes that the worker made, spliced, never decoded."""
        body = body_of(asked.reply.outputs, asked.ask, context.task, asked.call)
        kind = type_of(asked.ask, context.task, asked.call)
        return Answer([(b"content-type", kind)], body)
