"""From the worker's answers to the body: one answer or a list, in the shape that the client reads.

The shape is the stock pipeline's. The Hugging Face hub's own API gives two tasks another one (a
list of lists, labels beside their scores), and ``huggingface_hub`` reads that and nothing else: a
client that says by its ``User-Agent`` that it is this library gets what it reads.
"""

from __future__ import annotations

import msgspec

from service.core.admission import Ask
from service.http.context import Call
from service.tasks import Task
from service.tasks.base import as_it_is

_HUB = b"hf_hub/"
"""How ``huggingface_hub`` names itself."""


def body_of(outputs: tuple[bytes, ...], ask: Ask, task: Task, call: Call) -> bytes:
    """The answer's body.

    Args:
        outputs: an answer for each input, as JSON.
        ask: the request.
        task: of this server.
        call: the request's note.
    """
    if ask.is_list:
        return b"[%b]" % b",".join(outputs)
    shape = task.hub if _is_hub(ask, task, call) else task.lone
    if shape is as_it_is:
        return outputs[0]
    return shape(outputs[0], ask.inputs[0], msgspec.json.decode(ask.parameters))


def type_of(ask: Ask, task: Task, call: Call) -> bytes:
    """The media type of that body."""
    return task.hub_type.encode() if _is_hub(ask, task, call) else b"application/json"


def _is_hub(ask: Ask, task: Task, call: Call) -> bool:
    """Whether a lone input's answer leaves in the hub's shape.

    Where that is no JSON, whoever accepts its very type asks for it too.
    """
    if ask.is_list:
        return False
    if _HUB in call.headers.get(b"user-agent", b""):
        return True
    accepted = call.headers.get(b"accept", b"").decode("latin-1")
    types = {part.partition(";")[0].strip().lower() for part in accepted.split(",")}
    return task.hub_type != "application/json" and task.hub_type in types
