"""text-generation: a text continued, or a chat answered; not streamed.

Without parameters the stock defaults hold, sampling among them: the same text then has another
answer each time. Items of one batch agree in every parameter of the generation, also in how many
tokens they may get.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.core.errors import FieldError, Refused, invalid
from service.tasks.base import Task, Work, a_text
from service.tasks.checks import MAX_WHOLE, at, number, only, switch, table, texts, whole
from service.tasks.parameter import Json, Parameter, Reject
from service.tasks.schemas import STRING, TEXT, Schema, integer, list_of, members, one_of

DEFAULT_NEW_TOKENS = 256
"""The stock pipeline's, where the model's own configuration names no other."""

MAX_STOPS = 8
MAX_STOP_CHARS = 64
MAX_MESSAGES = 256

_ROLES = ("system", "user", "assistant")


def _is_chat(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _parse(value: Json, pointer: str) -> Json:
    if not _is_chat(value):
        return a_text(value, pointer)
    if len(value) > MAX_MESSAGES:
        raise Refused(invalid(pointer, f"send at most {MAX_MESSAGES} messages"))
    chat = []
    for index, message in enumerate(value):
        here = f"{pointer}/{index}"
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            raise Refused(invalid(here, "send a message with 'role' and 'content'"))
        if message["role"] not in _ROLES:
            raise Refused(invalid(f"{here}/role", f"send one of {', '.join(_ROLES)}"))
        content = a_text(message["content"], f"{here}/content")
        chat.append({"role": message["role"], "content": content})
    return chat


def _max_new_tokens(value: Json, facts: Mapping[str, int]) -> int:
    most = facts.get("max_tokens", 0)
    describe = f"an integer from 1 to {most - 1 if most else 'what the model takes'}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise Reject(f"send {describe}")
    if value < 1 or (most and value >= most):
        raise Reject(f"send {describe}")
    return value


def _new_tokens_schema(facts: Mapping[str, int]) -> Schema:
    most = facts.get("max_tokens", 0)
    return integer(1, most - 1 if most else MAX_WHOLE)


_CHAT = list_of(members(role={"enum": [*_ROLES]}, content=TEXT), 1, MAX_MESSAGES)


def _together(parameters: Mapping[str, Json]) -> FieldError | None:
    if "stop" in parameters and "stop_sequence" in parameters:
        return at("stop", "send it or stop_sequence, not both")
    if parameters.get("min_new_tokens", 0) > parameters.get("max_new_tokens", DEFAULT_NEW_TOKENS):
        return at("min_new_tokens", "send at most max_new_tokens")
    return None


def _stops(name: str) -> Parameter:
    return texts(
        name, "forward", "a text that ends the generation",
        most=MAX_STOPS, chars=MAX_STOP_CHARS, stock="stop_sequence",
    )  # fmt: skip


TASK = Task(
    name="text-generation",
    media="text",
    example="The harbour wall was built of",
    canary="It still",
    canary_parameters={"max_new_tokens": 4, "do_sample": False},
    way="generating",
    structured=True,
    own_head=True,
    parse=_parse,
    schema=one_of(TEXT, _CHAT),
    answer=list_of(members(generated_text=one_of(STRING, list_of({"type": "object"})))),
    is_one=lambda value: not isinstance(value, list) or _is_chat(value),
    parameters=table(
        Parameter(
            "max_new_tokens", "forward",
            f"an integer of at least 1 (default {DEFAULT_NEW_TOKENS})", _max_new_tokens,
            schema=_new_tokens_schema,
        ),
        whole("min_new_tokens", "forward", 0),
        switch("do_sample", "forward", " (default true)"),
        number("temperature", "forward", 0, 100),
        whole("top_k", "forward", 1),
        number("top_p", "forward", 0, 1),
        number("typical_p", "forward", 0, 1),
        number("repetition_penalty", "forward", 0, 100),
        _stops("stop_sequence"),
        _stops("stop"),
        switch("return_full_text", "post", " (default true)"),
        only("details", "post", "false: details are not served", value=False),
    ),
    bad_examples=(
        ([{"role": "user"}], "a message has role and content"),
        ([{"role": "king", "content": "a"}], "a role is one of three"),
    ),
    together=_together,
    work=lambda parameters: Work(steps=parameters.get("max_new_tokens", DEFAULT_NEW_TOKENS)),
)  # fmt: skip
