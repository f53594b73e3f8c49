"""The one input tensor: its head, and its elements as JSON or as bytes behind it.

Laws
- Sizes are judged before contents: how many items there are, then what they are.
- An element of BYTES is one input; the bytes of a medium travel as they are, without base64.
- A tensor of numbers is taken where a task of sounds or images can make a file of it, see
  ``numbers``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import NamedTuple

from service.core.errors import Refused, invalid
from service.http.asking import check_length
from service.http.context import HttpContext
from service.http.oip import numbers
from service.http.oip.members import object_of, only, take_text_type
from service.http.oip.tensors import Torn, elements_of
from service.tasks import Task
from service.tasks.numbers import Numbers, numbers_of
from service.tasks.parameter import Json

INPUTS = "inputs"
"""The name of the tensor."""

AT = "/inputs/0"

_MEMBERS = frozenset({"name", "datatype", "shape", "data", "parameters"})
_AXES = 2
"""``[n]``, and ``[n, 1]`` of clients that think of a batch first."""


class Input(NamedTuple):
    """The tensor as inputs of the task.

    Attributes:
        values: one of each item.
        shape: of the answer's tensor.
        whole: whether the tensor is one item, and not a list of them.
    """

    values: list[Json]
    shape: tuple[int, ...]
    whole: bool = False


def input_of(
    tensors: Json, raw: bytes | None, parameters: dict[str, Json], context: HttpContext
) -> Input:
    """The inputs that a request's ``inputs`` hold.

    Args:
        tensors: the member.
        raw: the bytes behind the JSON, ``None`` where nothing says that there are any.
        parameters: of the request; those that belong to the tensor are taken out.
        context: of the server.

    Raises:
        Refused: ``invalid_input``, ``payload_too_large``.
    """
    task = context.task
    tensor = _one(tensors, task)
    kind = _kind(tensor.get("datatype"), task)
    own = object_of(tensor.get("parameters"), f"{AT}/parameters")
    if kind is None:
        return _of_bytes(tensor, own, raw, context)
    return _of_numbers(tensor, own, raw, kind, parameters, context)


def _one(tensors: Json, task: Task) -> Mapping[str, Json]:
    if not isinstance(tensors, list) or len(tensors) != 1 or not isinstance(tensors[0], dict):
        raise Refused(invalid("/inputs", f"send one tensor named '{INPUTS}': {_wanted(task)}"))
    tensor: Mapping[str, Json] = tensors[0]
    only(tensor, _MEMBERS, AT)
    if tensor.get("name") != INPUTS:
        message = f"send '{INPUTS}', the one input of this model: {_wanted(task)}"
        raise Refused(invalid(f"{AT}/name", message))
    return tensor


def _wanted(task: Task) -> str:
    """What the tensor may be, in words."""
    if task.media == "text":
        return "BYTES, a text each; token numbers mean something only to the tokenizer they are of"
    if task.structured:
        return "BYTES, the JSON of an input each; this task takes no numbers"
    known = numbers_of(task)
    if not known:
        return "BYTES, a file each; this task takes no numbers"
    names = " or ".join(kind.datatype for kind in known)
    return f"BYTES, a file each, or {names} of the shape {known[0].says}"


def _kind(datatype: Json, task: Task) -> Numbers | None:
    """The kind of numbers, ``None`` for BYTES."""
    if datatype == "BYTES":
        return None
    for kind in numbers_of(task):
        if kind.datatype == datatype:
            return kind
    raise Refused(invalid(f"{AT}/datatype", f"send {_wanted(task)}"))


def _of_bytes(
    tensor: Mapping[str, Json], own: dict[str, Json], raw: bytes | None, context: HttpContext
) -> Input:
    task = context.task
    shape = _shape(tensor.get("shape"), f"{AT}/shape")
    take_text_type(own, f"{AT}/parameters")
    size = own.pop("binary_data_size", None)
    if own:
        message = "only binary_data_size and content_type 'str' are known here"
        raise Refused(invalid(f"{AT}/parameters", message))
    check_length(shape[0], context)
    behind = _behind(tensor, size, raw)
    if behind is None:
        elements = _flat(tensor.get("data"), shape, f"{AT}/data")
    else:
        elements = _elements(behind, shape[0])
    values = [_value(one, task, f"{AT}/data/{index}") for index, one in enumerate(elements)]
    return Input(values, shape)


def _of_numbers(
    tensor: Mapping[str, Json],
    own: dict[str, Json],
    raw: bytes | None,
    kind: Numbers,
    parameters: dict[str, Json],
    context: HttpContext,
) -> Input:
    shape, whole = numbers.shape_of(tensor.get("shape"), kind, f"{AT}/shape")
    size = own.pop("binary_data_size", None)
    rate_hz = numbers.rate_hz(kind, own, parameters, f"{AT}/parameters", context)
    if own:
        known = "binary_data_size and sampling_rate" if kind.is_sound else "binary_data_size"
        raise Refused(invalid(f"{AT}/parameters", f"of such a tensor {known} can be said here"))
    check_length(shape[0], context)
    numbers.check_size(numbers.bytes_of(shape, kind), context)
    behind = _behind(tensor, size, raw)
    if behind is None:
        nested = shape[1:] if whole else shape
        data = numbers.of_json(tensor.get("data"), nested, kind, f"{AT}/data")
    else:
        data = numbers.of_bytes(behind, shape, kind, AT)
    files = kind.files(data, shape, rate_hz)
    numbers.check_size(sum(map(len, files)), context)
    return Input([*files], shape[:1], whole=whole)


def _behind(tensor: Mapping[str, Json], size: Json, raw: bytes | None) -> bytes | None:
    """The bytes behind the JSON that are the tensor's, ``None`` where its data is JSON."""
    if size is None:
        if raw:
            message = "send it: the body has bytes behind the JSON"
            raise Refused(invalid(f"{AT}/parameters/binary_data_size", message))
        return None
    if raw is None:
        message = "send the header Inference-Header-Content-Length with it"
        raise Refused(invalid(f"{AT}/parameters/binary_data_size", message))
    if type(size) is not int or size != len(raw):
        message = f"send the bytes that follow the JSON: {len(raw)}"
        raise Refused(invalid(f"{AT}/parameters/binary_data_size", message))
    if tensor.get("data") is not None:
        raise Refused(invalid(f"{AT}/data", "leave it out: the elements follow the JSON as bytes"))
    return raw


# -- BYTES ----------------------------------------------------------------------------------------


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


def _elements(raw: bytes, count: int) -> list[bytes]:
    try:
        return elements_of(raw, count)
    except Torn:
        message = (
            f"the bytes behind the JSON must be {count} elements, as the shape says, each behind "
            "its length as four bytes, little-endian"
        )
        raise Refused(invalid(AT, message)) from None


def _value(element: Json, task: Task, at: str) -> Json:
    """An element as ``inputs`` at ``POST /`` would have it; a file of bytes as it is."""
    if isinstance(element, bytes):
        if task.media != "text" and not task.structured:
            return element
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
