"""From a parsed body to the question that the dispatcher is asked, every limit checked.

Laws
- Sizes are judged before contents, contents before anything is tokenised: items, then each input,
  then characters, then parameters.
- The first input at fault fails the request and is named by its pointer; parameters at fault are
  named all at once.
- A deadline that a client names can only tighten what the server allows, and it is a positive
  integer or a 400 that names the header. What a proxy says that it will wait only ever tightens:
  Envoy says it with every request, and a client that names nothing still gets the default.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from service.core.admission import Ask
from service.core.errors import Problem, Refused, invalid, problem
from service.http.context import Call, HttpContext
from service.http.media import Body
from service.tasks.parameter import Json
from service.worker.rehearsal import FAULT_SYNTAX, parse_fault

_CLIENT = b"x-request-timeout-ms"
_PROXY = b"x-envoy-expected-rq-timeout-ms"
_NAMES = {
    _CLIENT: "X-Request-Timeout-Ms",
    _PROXY: "x-envoy-expected-rq-timeout-ms",
    b"x-rehearse-fault": "X-Rehearse-Fault",
}
_REHEARSE = b"x-rehearse-fault"
_MOST_DIGITS = 18
"""More digits than any deadline has; int() of thousands of them would cost time."""


class Patience(NamedTuple):
    """How long whoever asks will wait, in seconds from the headers on.

    Attributes:
        client_s: the deadline that the client named, ``None`` without.
        proxy_s: what the proxy in front waits, infinite without.
    """

    client_s: float | None
    proxy_s: float

    @property
    def least_s(self) -> float:
        """The shorter of both; infinite where nobody said anything."""
        return self.proxy_s if self.client_s is None else min(self.client_s, self.proxy_s)


def patience_of(call: Call, max_deadline_ms: int) -> Patience:
    """What the headers say of it.

    Raises:
        Refused: ``malformed_request`` that names the header.
    """
    client_s, proxy_s = (
        min(_milliseconds(call, name), max_deadline_ms) / 1000 if name in call.headers else None
        for name in (_CLIENT, _PROXY)
    )
    return Patience(client_s, math.inf if proxy_s is None else proxy_s)


def rehearsed_fault(call: Call, *, rehearsal: bool) -> str:
    """The fault to act out, empty for none; without the setting the header is ignored.

    Raises:
        Refused: ``malformed_request`` that says what may be asked for.
    """
    given = call.headers.get(_REHEARSE)
    if given is None or not rehearsal:
        return ""
    fault = given.decode("latin-1")
    if _REHEARSE in call.repeated or parse_fault(fault) is None:
        raise Refused(_bad_header(_REHEARSE, f"one of {FAULT_SYNTAX}"))
    return fault


class Inputs(NamedTuple):
    """The inputs of a request, checked: a text and the bytes of its media for each."""

    texts: tuple[str, ...]
    media: tuple[bytes, ...]
    is_list: bool


def inputs_of(body: Body, context: HttpContext) -> Inputs:
    """The inputs, checked, and whether they came as a list.

    Raises:
        Refused: ``invalid_input``, ``payload_too_large``.
    """
    task = context.task
    is_list = not task.is_one(body.inputs) if body.is_list is None else body.is_list
    if not is_list:
        taken = [task.taken(body.inputs, "/inputs")]
    else:
        check_length(len(body.inputs), context)
        taken = [task.taken(value, f"/inputs/{index}") for index, value in enumerate(body.inputs)]
    texts, media = zip(*taken, strict=True)
    limits = context.dispatcher.limits
    if limits is not None:
        most = limits.max_chars(len(texts))
        if sum(map(len, texts)) > most:
            detail = f"The inputs of this request may have at most {most} characters together."
            raise Refused(problem("payload_too_large", detail, limit=most))
    return Inputs(texts, media, is_list)


def parameters_of(value: Json, context: HttpContext) -> dict[str, Json]:
    """The parameters, checked and normalised.

    Raises:
        Refused: ``invalid_input``.
    """
    task = context.task
    if not value and (value is None or isinstance(value, dict)) and not task.needs_parameters:
        return {}
    return task.parse_parameters(value, context.dispatcher.int_facts)


def ask_of(
    call: Call,
    context: HttpContext,
    body: Body,
    *,
    nbytes: int,
    body_at: float,
    patience: Patience,
    rehearse: str,
) -> Ask:
    """The question for the dispatcher.

    Raises:
        Refused: whatever is wrong with the body.
    """
    inputs = inputs_of(body, context)
    call.items = len(inputs.texts)
    parameters = parameters_of(body.parameters, context)
    if body.flaw is not None:
        raise Refused(body.flaw)
    task = context.task
    work = task.work(parameters)
    held = max(nbytes, sum(map(len, inputs.media)))  # samples are longer than their JSON can be
    named = [own_s for own_s in (patience.client_s, body.timeout_s) if own_s is not None]
    return Ask(
        request_id=call.request_id,
        inputs=inputs.texts,
        parameters=msgspec.json.encode(parameters) if parameters else b"{}",
        is_list=inputs.is_list,
        nbytes=held,
        headers_at=call.started - call.waited_s,
        body_at=body_at - call.waited_s,
        timeout_s=min(named, default=None),
        rehearse=rehearse,
        client=call.client,
        times=work.times,
        steps=work.steps,
        media=inputs.media if task.media != "text" else (),
        sizes=tuple(map(task.size, inputs.texts, inputs.media)),
        proxy_s=patience.proxy_s,
    )


def check_length(items: int, context: HttpContext) -> None:
    """Refuse a request of more inputs than one may have, or of none.

    Raises:
        Refused: ``payload_too_large``, ``invalid_input``.
    """
    if not items:
        raise Refused(invalid("/inputs", "send at least one input in the list"))
    settings = context.settings
    most = min(settings.max_items, settings.queue_limit)
    if items > most:
        detail = f"A request may have at most {most} inputs."
        raise Refused(problem("payload_too_large", detail, limit=most))


def _milliseconds(call: Call, name: bytes) -> int:
    value = call.headers[name].strip(b" \t")
    if name in call.repeated or not value.isdigit():
        raise Refused(_bad_header(name, "one positive integer of milliseconds"))
    digits = value.lstrip(b"0")
    if not digits:
        raise Refused(_bad_header(name, "one positive integer of milliseconds"))
    return int(digits[:_MOST_DIGITS])


def _bad_header(name: bytes, what: str) -> Problem:
    return problem("malformed_request", f"The header {_NAMES[name]} must be {what}.")
