"""The protocol as a dialect: from an inference request to its answer."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from service.core.errors import FieldError, Problem
from service.http import media
from service.http.context import Call, HttpContext
from service.http.dialect import JSON_TYPE, Answer, Asked
from service.http.media import Body
from service.http.oip.pages import VERSION
from service.http.oip.request import OUTPUTS, Said, head_bytes_of, take_apart
from service.http.oip.tensors import bytes_of, floats_of
from service.http.problems import Headers
from service.tasks.parameter import Json

HEAD_BYTES = b"inference-header-content-length"

_TYPES = frozenset({"", "application/octet-stream", "application/x-www-form-urlencoded"})
"""Beside JSON: nothing at all, what tensors are, and what ``curl -d`` says of everything."""

_ITEM = re.compile(r"/inputs/(\d+)(?:/.*)?")
_OCTETS = (b"content-type", b"application/octet-stream")
_encode = msgspec.json.Encoder().encode
_vector = msgspec.json.Decoder(list[float]).decode


class Oip:
    """``POST …/infer``."""

    def reading(self, call: Call, context: HttpContext) -> int | None:
        """Length of the JSON in front of the tensors, ``None`` where there is nothing else.

        Raises:
            Refused: ``unsupported_media_type``, ``malformed_request``.
        """
        del context
        media.json_or(_TYPES, call)
        return head_bytes_of(call.headers.get(HEAD_BYTES), repeated=HEAD_BYTES in call.repeated)

    def take_apart(self, body: bytes, how: int | None, context: HttpContext) -> Body:
        """As ``request`` says."""
        return take_apart(body, how, context)

    def placed(self, refusal: Problem, body: Body) -> Problem:
        """An item of ours is an element of the one tensor, or all of it."""
        if not refusal.errors:
            return refusal
        said: Said = body.said

        def place(item: re.Match[str]) -> str:
            return said.place(int(item[1]))

        placed = (
            FieldError(_ITEM.sub(place, error.pointer), error.message) for error in refusal.errors
        )
        return refusal._replace(errors=tuple(placed))

    def answer(self, asked: Asked, context: HttpContext) -> Answer:
        """One tensor, as JSON or as bytes behind JSON."""
        said: Said = asked.body.said
        tensor, raw = _tensor(asked, context, said)
        answer: dict[str, Json] = {
            "model_name": context.settings.model_name,
            "model_version": VERSION,
        }
        if said.id is not None:
            answer["id"] = said.id
        answer["outputs"] = [tensor]
        head = _encode(answer)
        if raw is None:
            return Answer([JSON_TYPE], head)
        headers: Headers = [_OCTETS, (HEAD_BYTES, b"%d" % len(head))]
        return Answer(headers, head + raw)


def _tensor(asked: Asked, context: HttpContext, said: Said) -> tuple[dict[str, Any], bytes | None]:
    """The output tensor, and its bytes where they are wanted so."""
    outputs = asked.reply.outputs
    data: Json
    if context.task.vector(msgspec.json.decode(asked.ask.parameters)):
        datatype = "FP32"
        vectors = [_vector(output) for output in outputs]
        shape = [len(vectors), len(vectors[0])]
        data = [number for vector in vectors for number in vector]
        raw = floats_of(data) if said.binary else None
    else:
        datatype, shape = "BYTES", list(said.shape)
        raw = bytes_of(outputs) if said.binary else None
        data = None if said.binary else [output.decode() for output in outputs]
    tensor: dict[str, Any] = {"name": OUTPUTS, "datatype": datatype, "shape": shape}
    if raw is None:
        tensor["data"] = data
    else:
        tensor["parameters"] = {"binary_data_size": len(raw)}
    return tensor, raw
