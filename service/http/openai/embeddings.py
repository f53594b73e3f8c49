"""``POST /v1/embeddings`` as a dialect.

====================  ======================================================================
member                what is taken
====================  ======================================================================
``model``             the model's name
``input``             a text, or a list of texts; no token numbers
``encoding_format``   ``float``, or ``base64``: 32-bit numbers, little-endian
``dimensions``        the model's own width: cut vectors are those of no model known here
``user``              any text; nothing is done with it
====================  ======================================================================
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec

from service.core.errors import FieldError, Problem, Refused, invalid, problem
from service.http import media
from service.http.context import Call, HttpContext
from service.http.dialect import JSON_TYPE, Answer, Asked
from service.http.media import Body
from service.http.oip.tensors import floats_of
from service.http.openai.pages import is_model, unknown_model
from service.tasks.feature_extraction import AS_THE_MODEL
from service.tasks.parameter import Json

WHAT_TO_SEND = "send a JSON object with 'model' and 'input'"

_TYPES = frozenset({"", "application/x-www-form-urlencoded"})
_MEMBERS = ("model", "input", "encoding_format", "dimensions", "user")
_FORMATS = ("float", "base64")
_NO_TOKENS = "send text, not token numbers: they are another tokenizer's"

_encode = msgspec.json.Encoder().encode
_vector = msgspec.json.Decoder(list[float]).decode


class Embeddings:
    """Reads and answers as the ``openai`` client does."""

    def reading(self, call: Call, context: HttpContext) -> None:
        """JSON, or nothing that says otherwise.

        Raises:
            Refused: ``unsupported_media_type``, ``malformed_request``.
        """
        del context
        media.json_or(_TYPES, call)

    def take_apart(self, body: bytes, how: None, context: HttpContext) -> Body:
        """The texts; every other fault at once.

        Raises:
            Refused: ``malformed_request``, ``invalid_input``, ``not_found`` for another model.
        """
        del how
        value, flaw = media.json_of(body, WHAT_TO_SEND)
        if not isinstance(value, dict):
            raise Refused(flaw or invalid("", WHAT_TO_SEND))
        faults = list(_faults(value, context.dispatcher.int_facts.get("width", 0)))
        if faults:
            raise Refused(problem("invalid_input", errors=tuple(faults)))
        if not is_model(value["model"], context):
            raise Refused(unknown_model(context))
        base64_wanted = value.get("encoding_format") == "base64"
        return Body(value["input"], {"pooling": AS_THE_MODEL}, flaw, said=base64_wanted)

    def placed(self, refusal: Problem, body: Body) -> Problem:
        """What is ``inputs`` with us is ``input`` here; the pooling is the model's."""
        del body
        placed = (FieldError(_place(error.pointer), error.message) for error in refusal.errors)
        return refusal._replace(errors=tuple(placed))

    def answer(self, asked: Asked, context: HttpContext) -> Answer:
        """A vector for each text."""
        base64_wanted: bool = asked.body.said
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": _base64(output) if base64_wanted else msgspec.Raw(output),
            }
            for index, output in enumerate(asked.reply.outputs)
        ]
        tokens = asked.reply.units
        answer = {
            "object": "list",
            "data": data,
            "model": context.settings.model_name,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
        return Answer([JSON_TYPE], _encode(answer))


def _base64(output: bytes) -> str:
    return base64.b64encode(floats_of(_vector(output))).decode()


def _place(pointer: str) -> str:
    if pointer.startswith("/inputs"):
        return "/input" + pointer.removeprefix("/inputs")
    return "/model"


def _faults(value: Mapping[str, Json], width: int) -> list[FieldError]:
    faults = []
    if any(given is not None for name, given in value.items() if name not in _MEMBERS):
        faults.append(FieldError("", f"unknown member; known are: {', '.join(_MEMBERS)}"))
    if not isinstance(value.get("model"), str):
        faults.append(FieldError("/model", "send the model's name"))
    faults.extend(_input_faults(value.get("input")))
    if value.get("encoding_format") not in (None, *_FORMATS):
        faults.append(FieldError("/encoding_format", f"send one of {', '.join(_FORMATS)}"))
    given = value.get("dimensions")
    if given is not None and (type(given) is not int or given != width):
        own = f"{width}, the width of this model, or" if width else "nothing here:"
        faults.append(FieldError("/dimensions", f"send {own} leave it out"))
    if value.get("user") is not None and not isinstance(value["user"], str):
        faults.append(FieldError("/user", "send a string"))
    return faults


def _input_faults(value: Json) -> list[FieldError]:
    if isinstance(value, str):
        return []
    if not isinstance(value, list):
        return [FieldError("/input", "send a string or a list of strings")]
    for index, one in enumerate(value):
        if isinstance(one, int | float | list):
            return [FieldError(f"/input/{index}", _NO_TOKENS)]
    return []
