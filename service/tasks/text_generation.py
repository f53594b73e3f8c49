"""text-generation: a text continued, or a chat answered; not streamed.

Without parameters the stock defaults hold, sampling among them: the same text then has another
answer each time. Items of one batch agree in every parameter of the generation, also in how many
tokens they may get.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.core.errors import FieldError
from service.tasks.base import Task, a_text
from service.tasks.chats import BAD_CHATS, a_chat, chat_schema, is_chat
from service.tasks.checks import MAX_WHOLE, at, number, only, switch, table, whole
from service.tasks.generation import DEFAULT_NEW_TOKENS, steps, stops
from service.tasks.parameter import Json, Parameter, Reject
from service.tasks.schemas import STRING, TEXT, Schema, integer, list_of, members, one_of


def _parse(value: Json, pointer: str) -> Json:
    return a_chat(value, pointer, a_text) if is_chat(value) else a_text(value, pointer)


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


def _together(parameters: Mapping[str, Json]) -> FieldError | None:
    if "stop" in parameters and "stop_sequence" in parameters:
        return at("stop", "send it or stop_sequence, not both")
    if parameters.get("min_new_tokens", 0) > parameters.get("max_new_tokens", DEFAULT_NEW_TOKENS):
        return at("min_new_tokens", "send at most max_new_tokens")
    return None


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
    schema=one_of(TEXT, chat_schema(TEXT)),
    answer=list_of(members(generated_text=one_of(STRING, list_of({"type": "object"})))),
    is_one=lambda value: not isinstance(value, list) or is_chat(value),
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
        stops("stop_sequence"),
        stops("stop", "stop_sequence"),
        switch("return_full_text", "post", " (default true)"),
        only("details", "post", "false: details are not served", value=False),
    ),
    bad_examples=BAD_CHATS,
    together=_together,
    work=steps,
)  # fmt: skip
