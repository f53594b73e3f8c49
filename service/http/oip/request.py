"""An inference request taken apart: one tensor, the parameters, what is wanted back.

Laws
- What is not understood is refused, never passed over: an answer to another question than the
  client has asked would be worse than none.
- ``null`` is the same as absent: some clients write every member.
- Nothing outside the request is ever opened: no shared memory, no address.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from service.core.errors import Problem, Refused, invalid, problem
from service.http.context import HttpContext
from service.http.media import Body, json_of
from service.http.oip.tensors import Torn, elements_of
from service.tasks import Task
from service.tasks.parameter import Json

INPUTS, OUTPUTS = "inputs", "outputs"
"""The names of the tensors."""

WHAT_TO_SEND = (
    "send an inference request: {'inputs': [{'name': 'inputs', 'datatype': 'BYTES', 'shape': [n], "
    "'data': [...]}]}"
)

_MEMBERS = frozenset({"id", "parameters", "inputs", "outputs"})
_TENSOR = frozenset({"name", "datatype", "shape", "data", "parameters"})
_MAX_ID_CHARS = 1024
_MICROSECONDS = 1e-6
_LONGEST_S = 1e9
_AXES = 2
"""``[n]``, and ``[n, 1]`` of clients that think of a batch first."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the answer must agree with.

    Attributes:
        id: of the client, ``None`` if it named none.
        shape: of the input tensor.
        binary: whether the output is wanted as bytes.
    """

    id: str | None
    shape: tuple[int, ...]
    binary: bool


def take_apart(body: bytes, head_bytes: int | None, context: HttpContext) -> Body:
    """Inputs and parameters of an inference request.

    Args:
        body: all of it.
        head_bytes: length of its JSON, ``None`` if it is nothing else.
        context: of the server.

    Raises:
        Refused: ``malformed_request``, ``invalid_input``.
    """
    if head_bytes is not None and head_bytes > len(body):
        raise Refused(_bad_length())
    value, flaw = json_of(body if head_bytes is None else body[:head_bytes], WHAT_TO_SEND)
    if not isinstance(value, dict):
        raise Refused(flaw or invalid("", WHAT_TO_SEND))
    _only(value, _MEMBERS, "")
    raw = None if head_bytes is None else body[head_bytes:]
    parameters = _object(value.get("parameters"), "/parameters")
    binary = _switch(parameters, "binary_data_output", "/parameters")
    timeout_s = _timeout_s(parameters)
    _text_type(parameters, "/parameters")
    shape, values = _tensor(value.get("inputs"), raw, context.task)
    said = Said(_id(value.get("id")), shape, _wanted(value.get("outputs"), binary=binary))
    return Body(values, parameters, flaw, said=said, is_list=True, timeout_s=timeout_s)


def _bad_length() -> Problem:
    detail = (
        "The header Inference-Header-Content-Length must be one positive integer: the bytes of the "
        "JSON at the beginning of the body."
    )
    return problem("malformed_request", detail)


def head_bytes_of(given: bytes | None, *, repeated: bool) -> int | None:
    """Length of the JSON in front of the tensors, ``None`` where there is nothing else.

    Raises:
        Refused: ``malformed_request``.
    """
    if given is None:
        return None
    digits = given.strip(b" \t").lstrip(b"0")
    if repeated or not digits.isdigit() or len(digits) > len(str(2**53)):
        raise Refused(_bad_length())
    return int(digits)


# -- the tensor -----------------------------------------------------------------------------------


def _tensor(tensors: Json, raw: bytes | None, task: Task) -> tuple[tuple[int, ...], list[Json]]:
    if not isinstance(tensors, list) or len(tensors) != 1 or not isinstance(tensors[0], dict):
        raise Refused(invalid("/inputs", f"send one tensor named '{INPUTS}'"))
    [tensor] = tensors
    at = "/inputs/0"
    _only(tensor, _TENSOR, at)
    if tensor.get("name") != INPUTS:
        raise Refused(invalid(f"{at}/name", f"send '{INPUTS}', the one input of this model"))
    if tensor.get("datatype") != "BYTES":
        what = "text" if _is_text(task) else "files"
        message = f"send BYTES: this model takes {what}, not tokens or other numbers"
        raise Refused(invalid(f"{at}/datatype", message))
    shape = _shape(tensor.get("shape"), f"{at}/shape")
    parameters = _object(tensor.get("parameters"), f"{at}/parameters")
    _text_type(parameters, f"{at}/parameters")
    size = parameters.pop("binary_data_size", None)
    if parameters:
        message = "only binary_data_size and content_type 'str' are known here"
        raise Refused(invalid(f"{at}/parameters", message))
    if size is None:
        if raw:
            message = "send it: the body has bytes behind the JSON"
            raise Refused(invalid(f"{at}/parameters/binary_data_size", message))
        elements = _flat(tensor.get("data"), shape, f"{at}/data")
    else:
        elements = _from_bytes(tensor, size, raw, math.prod(shape))
    return shape, [
        _value(element, task, f"{at}/data/{index}") for index, element in enumerate(elements)
    ]


def _is_text(task: Task) -> bool:
    return str(task.media) == "text"


def _shape(given: Json, at: str) -> tuple[int, ...]:
    good = isinstance(given, list) and 1 <= len(given) <= _AXES
    if not good or not all(type(axis) is int and 0 <= axis < 2**53 for axis in given):
        raise Refused(invalid(at, "send [n] for n elements, or [n, 1]"))
    if given[1:] not in ([], [1]):
        raise Refused(invalid(at, "send [n] for n elements, or [n, 1]"))
    if not given[0]:
        raise Refused(invalid(at, "send at least one element"))
    return tuple(given)


def _flat(data: Json, shape: tuple[int, ...], at: str) -> list[Json]:
    """The elements, row after row, however the client has nested them."""
    message = f"send a list of as many elements as the shape says: {math.prod(shape)}"
    if not isinstance(data, list):
        raise Refused(invalid(at, message))
    if len(shape) > 1 and all(isinstance(row, list) and len(row) == 1 for row in data):
        data = [row[0] for row in data]
    if len(data) != math.prod(shape):
        raise Refused(invalid(at, message))
    return list(data)


def _from_bytes(
    tensor: Mapping[str, Json], size: Json, raw: bytes | None, count: int
) -> list[bytes]:
    at = "/inputs/0"
    if raw is None:
        message = "send the header Inference-Header-Content-Length with it"
        raise Refused(invalid(f"{at}/parameters/binary_data_size", message))
    if type(size) is not int or size != len(raw):
        message = f"send the bytes that follow the JSON: {len(raw)}"
        raise Refused(invalid(f"{at}/parameters/binary_data_size", message))
    if tensor.get("data") is not None:
        raise Refused(invalid(f"{at}/data", "leave it out: the elements follow the JSON as bytes"))
    try:
        return elements_of(raw, count)
    except Torn:
        message = (
            f"the bytes behind the JSON must be {count} elements, as the shape says, each behind "
            "its length as four bytes, little-endian"
        )
        raise Refused(invalid(at, message)) from None


def _value(element: Json, task: Task, at: str) -> Json:
    """An element as ``inputs`` at ``POST /`` would have it."""
    if isinstance(element, bytes):
        if not _is_text(task):
            return base64.b64encode(element).decode()
        try:
            element = element.decode()
        except UnicodeDecodeError:
            raise Refused(invalid(at, "send text in UTF-8")) from None
    if not isinstance(element, str):
        raise Refused(invalid(at, "send a string, also for what is itself JSON"))
    if not task.structured or not element.lstrip().startswith(("{", "[")):
        return element
    return _structured(element, task, at)


def _structured(element: str, task: Task, at: str) -> Json:
    """The JSON that a text holds, if that is an input of the task; the text, if that is one."""
    try:
        value = json.loads(element)
        task.parse(value, at)
    except (ValueError, RecursionError):
        return element
    except Refused as refused:
        try:
            task.parse(element, at)
        except Refused:
            raise refused from None
        return element
    return value


# -- the rest -------------------------------------------------------------------------------------


def _only(value: Mapping[str, Json], known: frozenset[str], at: str) -> None:
    if any(given is not None for name, given in value.items() if name not in known):
        names = ", ".join(sorted(known))
        raise Refused(invalid(at, f"unknown member; known are: {names}"))


def _object(value: Json, at: str) -> dict[str, Json]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refused(invalid(at, "send an object"))
    return dict(value)


def _id(value: Json) -> str | None:
    if value is None or (isinstance(value, str) and len(value) <= _MAX_ID_CHARS):
        return value
    raise Refused(invalid("/id", f"send a string of at most {_MAX_ID_CHARS} characters"))


def _switch(parameters: dict[str, Json], name: str, at: str) -> bool:
    value = parameters.pop(name, None)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise Refused(invalid(f"{at}/{name}", "send true or false"))
    return value


def _text_type(parameters: dict[str, Json], at: str) -> None:
    if parameters.pop("content_type", None) not in (None, "str"):
        raise Refused(invalid(f"{at}/content_type", "send 'str', or leave it out"))


def _timeout_s(parameters: dict[str, Json]) -> float | None:
    value = parameters.pop("timeout", None)
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise Refused(invalid("/parameters/timeout", "send a positive integer of microseconds"))
    return min(value, _LONGEST_S / _MICROSECONDS) * _MICROSECONDS


def _wanted(outputs: Json, *, binary: bool) -> bool:
    """Whether the output is wanted as bytes."""
    if outputs is None or outputs == []:
        return binary
    if not isinstance(outputs, list) or len(outputs) != 1 or not isinstance(outputs[0], dict):
        raise Refused(invalid("/outputs", f"send one output named '{OUTPUTS}', or none at all"))
    [output] = outputs
    at = "/outputs/0"
    _only(output, frozenset({"name", "parameters"}), at)
    if output.get("name") != OUTPUTS:
        raise Refused(invalid(f"{at}/name", f"send '{OUTPUTS}', the one output of this model"))
    parameters = _object(output.get("parameters"), f"{at}/parameters")
    if parameters.get("binary_data") is not None:
        binary = _switch(parameters, "binary_data", f"{at}/parameters")
    if any(value is not None for name, value in parameters.items() if name != "binary_data"):
        raise Refused(invalid(f"{at}/parameters", "only binary_data is known here"))
    return binary
