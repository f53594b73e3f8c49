"""What a body is, by its media type, and how it becomes inputs and parameters.

=======================================  =======================================================
content type                             the body is
=======================================  =======================================================
``application/json``, ``…/…+json``       JSON, in UTF-8 whatever charset is named
none, ``…/x-www-form-urlencoded``        JSON if it is an object with ``inputs``; the text itself
                                         otherwise (``curl -d`` names the form type for any text)
``text/…``                               the text itself, in UTF-8
anything else                            415 with a text task
=======================================  =======================================================

With a task of images, sounds or films the bytes stand where the text would: under ``image/…`` (or
``audio/…``, ``video/…``), ``application/octet-stream``, no type and the form type; ``text/…`` is
415.

Laws
- The media type is judged before the body is read.
- A form's fields are no text: what looks like ``name=value`` under the form type is a 422 that
  says what to send.
- JSON is strict: what a strict parser refuses is refused. It is then looked at once more with a
  lenient one, only to name the field at fault; nothing lenient is ever served.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from service.core.errors import FieldError, Problem, Refused, invalid, problem
from service.http.context import Call
from service.tasks.media import Medium
from service.tasks.parameter import Json

WHAT_TO_SEND = "send a JSON object with 'inputs' and, if needed, 'parameters'"

_BOM = b"\xef\xbb\xbf"
_MEDIA_TYPE = re.compile(r"([a-z0-9!#$&^_.+-]+)/([a-z0-9!#$&^_.+-]+)")
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([^\s\";]*)\"?", re.IGNORECASE)
_UTF8 = frozenset({"", "utf-8", "utf8", "us-ascii", "ascii"})
_BYTE = re.compile(r"\(byte (\d+)\)")
_OBJECT_WITH_INPUTS = re.compile(rb'\s*\{(?=.*"inputs")', re.DOTALL)
_FIELD = rb"[\w.%+\[\]-]+=[^\s&]*"
_FORM = re.compile(
    rb"\s*(?:(?:inputs?|parameters|text)=.*|%b(?:&%b)*\s*)" % (_FIELD, _FIELD), re.DOTALL
)
_MEMBERS = frozenset({"inputs", "parameters"})
_STREAM = "stream"
"""The Hugging Face client sends it beside them, as false, when it asks for a text."""

_FORM_DETAIL = (
    "The body looks like form fields. Send the text itself, or JSON with 'inputs' and "
    "Content-Type: application/json."
)
_MEDIA_TASK = (
    "This server's task takes {0}: send application/json with 'inputs' in base64, or the bytes "
    "as {0}/… or application/octet-stream."
)
_TEXT_TASK = (
    "This server's task takes text: send application/json with 'inputs', or the text itself as "
    "text/plain."
)


class Reading(Enum):
    """How a body is to be read."""

    JSON = "json"
    TEXT = "text"
    UNTYPED = "untyped"
    FORM = "form"
    BYTES = "bytes"
    UNTYPED_BYTES = "untyped bytes"


@dataclass(frozen=True, slots=True)
class Body:
    """A body taken apart, nothing in it checked yet.

    Attributes:
        inputs: the value of ``inputs``, or the text, or the bytes of a medium.
        parameters: the value of ``parameters``, ``None`` if absent.
        flaw: why no strict parser takes the body; raised if no better reason is found.
        said: what the dialect keeps for its answer.
        is_list: whether ``inputs`` is a list of inputs, ``None`` if the task decides.
        timeout_s: a deadline that the body names, in seconds, ``None`` without.
    """

    inputs: Json
    parameters: Json = None
    flaw: Problem | None = None
    said: Any = None
    is_list: bool | None = None
    timeout_s: float | None = None


def reading(call: Call, medium: Medium = "text") -> Reading:
    """How the body of this request is to be read, by a task of ``medium``.

    Raises:
        Refused: ``unsupported_media_type``, ``malformed_request`` for a repeated header.
    """
    given, essence = _content_type(call)
    if not essence:
        return Reading.UNTYPED if medium == "text" else Reading.UNTYPED_BYTES
    if _is_json(essence):
        return Reading.JSON
    match = _MEDIA_TYPE.fullmatch(essence)
    kind = match[1] if match else ""
    form = essence == "application/x-www-form-urlencoded"
    if medium != "text":
        if form:
            return Reading.UNTYPED_BYTES  # curl --data-binary says so of everything
        if kind != medium and essence != "application/octet-stream":
            raise Refused(problem("unsupported_media_type", _MEDIA_TASK.format(medium)))
        return Reading.BYTES
    if kind != "text" and not form:
        raise Refused(problem("unsupported_media_type", _TEXT_TASK))
    charset = _CHARSET.search(given)
    if charset and charset[1].lower() not in _UTF8:
        raise Refused(problem("unsupported_media_type", "Send the text in UTF-8."))
    return Reading.FORM if form else Reading.TEXT


def json_or(others: Collection[str], call: Call) -> None:
    """Refuse a body that is neither JSON nor of one of these types.

    Raises:
        Refused: ``unsupported_media_type``, ``malformed_request`` for a repeated header.
    """
    _, essence = _content_type(call)
    if essence not in others and not _is_json(essence):
        raise Refused(problem("unsupported_media_type", "Send application/json."))


def _content_type(call: Call) -> tuple[str, str]:
    if b"content-type" in call.repeated:
        raise Refused(problem("malformed_request", "Send one Content-Type header, not several."))
    given = call.headers.get(b"content-type", b"").decode("latin-1")
    return given, given.partition(";")[0].strip().lower()


def _is_json(essence: str) -> bool:
    match = _MEDIA_TYPE.fullmatch(essence)
    kind, subtype = match.groups() if match else ("", "")
    return kind == "application" and (subtype == "json" or subtype.endswith("+json"))


def take_apart(body: bytes, how: Reading) -> Body:
    """Inputs and parameters of a body.

    Raises:
        Refused: ``malformed_request`` for what is neither JSON nor UTF-8, ``invalid_input`` for
            JSON of another shape and for form fields.
    """
    if how is Reading.BYTES:
        return Body(body)
    guess = how in {Reading.UNTYPED, Reading.FORM, Reading.UNTYPED_BYTES}
    if how is Reading.UNTYPED_BYTES and not _OBJECT_WITH_INPUTS.match(body.removeprefix(_BOM)):
        return Body(body)
    body = body.removeprefix(_BOM)
    if how is Reading.JSON or (guess and _OBJECT_WITH_INPUTS.match(body)):
        return _from_json(body)
    if how is Reading.FORM and _FORM.fullmatch(body):
        raise Refused(problem("invalid_input", _FORM_DETAIL, errors=_at_inputs(WHAT_TO_SEND)))
    try:
        return Body(body.decode())
    except UnicodeDecodeError:
        raise Refused(problem("malformed_request", "The body is no text in UTF-8.")) from None


def _from_json(body: bytes) -> Body:
    value, flaw = json_of(body, WHAT_TO_SEND)
    if not isinstance(value, dict):
        raise Refused(flaw or problem("invalid_input", errors=_at_inputs(WHAT_TO_SEND)))
    return _members(value, flaw)


def json_of(body: bytes, what: str) -> tuple[Json, Problem | None]:
    """The value of a JSON body, and why no strict parser takes it, if none does.

    Args:
        body: in UTF-8.
        what: what to send instead.

    Raises:
        Refused: ``malformed_request``: no parser takes it.
    """
    try:
        return msgspec.json.decode(body), None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        where = _BYTE.search(str(error))
        at = f" at byte {where[1]}" if where else ""
        flaw = problem("malformed_request", f"The body is not valid JSON{at}: {what}.")
        return _look_again(body, flaw), flaw


def _look_again(body: bytes, flaw: Problem) -> Json:
    """The value that a lenient parser sees (NaN, 1e999, lone surrogates), to name the field."""
    try:
        return json.loads(body.decode())  # of bytes it would guess the encoding
    except (ValueError, RecursionError):
        raise Refused(flaw) from None


def _members(value: Mapping[str, Json], flaw: Problem | None) -> Body:
    faults = []
    extra = value.keys() - _MEMBERS
    if extra and not (extra == {_STREAM} and value[_STREAM] is False):
        faults.append(FieldError("", "unknown member; send 'inputs' and 'parameters' only"))
    if value.get("inputs") is None:
        faults.extend(_at_inputs("send 'inputs': one input or a list of inputs"))
    if faults:
        raise Refused(problem("invalid_input", errors=tuple(faults)))
    return Body(value["inputs"], value.get("parameters"), flaw)


def _at_inputs(message: str) -> tuple[FieldError, ...]:
    return invalid("/inputs", message).errors
