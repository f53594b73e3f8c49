"""An inference request taken apart: one tensor, the parameters, what is wanted back.

Laws
- What is not understood is refused, never passed over: an answer to another question than the
  client has asked would be worse than none.
- ``null`` is the same as absent: some clients write every member.
- Nothing outside the request is ever opened: no shared memory, no address.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.core.errors import Problem, Refused, invalid, problem
from service.http.context import HttpContext
from service.http.media import Body, json_of
from service.http.oip.inputs import AT, INPUTS, input_of
from service.http.oip.members import object_of, only, take_text_type
from service.tasks.parameter import Json

OUTPUTS = "outputs"
"""The name of the tensor."""

WHAT_TO_SEND = (
    f"send an inference request: {{'inputs': [{{'name': '{INPUTS}', 'datatype': 'BYTES', "
    "'shape': [n], 'data': [...]}]}"
)

_MEMBERS = frozenset({"id", "parameters", "inputs", "outputs"})
_MAX_ID_CHARS = 1024
_MICROSECONDS = 1e-6
_LONGEST_S = 1e9


@dataclass(frozen=True, slots=True)
class Said:
    """What the answer must agree with.

    Attributes:
        id: of the client, ``None`` if it named none.
        shape: of the items that came.
        binary: whether the output is wanted as bytes.
        whole: whether the input tensor is one item, and not a list of them.
    """

    id: str | None
    shape: tuple[int, ...]
    binary: bool
    whole: bool = False

    def place(self, index: int) -> str:
        """JSON pointer of an item."""
        return AT if self.whole else f"{AT}/data/{index}"


def take_apart(body: bytes, head_bytes: int | None, context: HttpContext) -> Body:
    """Inputs and parameters of an inference request.

    Args:
        body: all of it.
        head_bytes: length of its JSON, ``None`` if it is nothing else.
        context: of the server.

    Raises:
        Refused: ``malformed_request``, ``invalid_input``, ``payload_too_large``.
    """
    if head_bytes is not None and head_bytes > len(body):
        raise Refused(_bad_length())
    value, flaw = json_of(body if head_bytes is None else body[:head_bytes], WHAT_TO_SEND)
    if not isinstance(value, dict):
        raise Refused(flaw or invalid("", WHAT_TO_SEND))
    only(value, _MEMBERS, "")
    raw = None if head_bytes is None else body[head_bytes:]
    parameters = object_of(value.get("parameters"), "/parameters")
    binary = _switch(parameters, "binary_data_output", "/parameters")
    timeout_s = _timeout_s(parameters)
    take_text_type(parameters, "/parameters")
    given = input_of(value.get("inputs"), raw, parameters, context)
    wanted = _wanted(value.get("outputs"), binary=binary)
    said = Said(_id(value.get("id")), given.shape, wanted, given.whole)
    return Body(given.values, parameters, flaw, said=said, is_list=True, timeout_s=timeout_s)


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


# -- the rest -------------------------------------------------------------------------------------


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
    only(output, frozenset({"name", "parameters"}), at)
    if output.get("name") != OUTPUTS:
        raise Refused(invalid(f"{at}/name", f"send '{OUTPUTS}', the one output of this model"))
    parameters = object_of(output.get("parameters"), f"{at}/parameters")
    if parameters.get("binary_data") is not None:
        binary = _switch(parameters, "binary_data", f"{at}/parameters")
    if any(value is not None for name, value in parameters.items() if name != "binary_data"):
        raise Refused(invalid(f"{at}/parameters", "only binary_data is known here"))
    return binary
