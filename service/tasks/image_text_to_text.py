"""image-text-to-text: an answer to a text and the images in it; not streamed.

An input is a chat (messages whose content is a text, or a list of texts and images), or an object
with ``text`` and ``images``, in which the model's own mark stands for each image. The images of a
chat are not sent back with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.core.errors import Refused, invalid
from service.tasks.base import Task, Work, a_text
from service.tasks.checks import number, switch, table, texts, whole
from service.tasks.examples import HARBOUR, NIGHT
from service.tasks.media import an_image
from service.tasks.parameter import Json
from service.tasks.schemas import BYTES, TEXT, list_of, members, one_of

DEFAULT_NEW_TOKENS = 256
"""The stock pipeline's, where the model's own configuration names no other."""

MAX_NEW_TOKENS = 4096
MAX_IMAGES = 16
MAX_MESSAGES = 256
MAX_STOPS = 8
MAX_STOP_CHARS = 64

_ROLES = ("system", "user", "assistant")
_PART = "send a list of {'type': 'text', 'text': …} and {'type': 'image', 'image': …}"


def _is_chat(value: Json) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], dict)
        and not value[0].keys() & {"text", "image", "images"}
    )


def _part(value: Json, pointer: str) -> Json:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in ("text", "image") or value.keys() != {"type", kind}:
        raise Refused(invalid(pointer, _PART))
    take = a_text if kind == "text" else an_image
    return {"type": kind, kind: take(value[kind], f"{pointer}/{kind}")}


def _content(value: Json, pointer: str) -> Json:
    if isinstance(value, str):
        return [{"type": "text", "text": a_text(value, pointer)}]
    if not isinstance(value, list) or not value or len(value) > MAX_IMAGES:
        raise Refused(invalid(pointer, _PART))
    return [_part(one, f"{pointer}/{index}") for index, one in enumerate(value)]


def _chat(value: Json, pointer: str) -> Json:
    if len(value) > MAX_MESSAGES:
        raise Refused(invalid(pointer, f"send at most {MAX_MESSAGES} messages"))
    found = []
    images = 0
    for index, message in enumerate(value):
        here = f"{pointer}/{index}"
        if not isinstance(message, dict) or message.keys() != {"role", "content"}:
            raise Refused(invalid(here, "send a message with 'role' and 'content'"))
        if message["role"] not in _ROLES:
            raise Refused(invalid(f"{here}/role", f"send one of {', '.join(_ROLES)}"))
        content = _content(message["content"], f"{here}/content")
        images += sum(part["type"] == "image" for part in content)
        found.append({"role": message["role"], "content": content})
    if images > MAX_IMAGES:
        raise Refused(invalid(pointer, f"send at most {MAX_IMAGES} images"))
    return found


def _parse(value: Json, pointer: str) -> Json:
    if _is_chat(value):
        return _chat(value, pointer)
    if not isinstance(value, dict) or value.keys() not in ({"text", "images"}, {"text", "image"}):
        wanted = "send a list of messages, or an object with 'text' and 'images'"
        raise Refused(invalid(pointer, wanted))
    text = a_text(value["text"], f"{pointer}/text")
    if "image" in value:
        return {"images": [an_image(value["image"], f"{pointer}/image")], "text": text}
    images = value["images"]
    if not isinstance(images, list) or not 1 <= len(images) <= MAX_IMAGES:
        raise Refused(invalid(f"{pointer}/images", f"send a list of 1 to {MAX_IMAGES} images"))
    found = [an_image(one, f"{pointer}/images/{index}") for index, one in enumerate(images)]
    return {"images": found, "text": text}


def _work(parameters: Mapping[str, Json]) -> Work:
    return Work(steps=parameters.get("max_new_tokens", DEFAULT_NEW_TOKENS))


def _asked(image: str, text: str) -> Json:
    content = [{"type": "image", "image": image}, {"type": "text", "text": text}]
    return [{"role": "user", "content": content}]


_PART_SCHEMA = one_of(
    members(type={"const": "text"}, text=TEXT), members(type={"const": "image"}, image=BYTES)
)
_CHAT_SCHEMA = list_of(
    members(role={"enum": [*_ROLES]}, content=one_of(TEXT, list_of(_PART_SCHEMA, 1, MAX_IMAGES))),
    1,
    MAX_MESSAGES,
)

TASK = Task(
    name="image-text-to-text",
    media="image",
    example=_asked(HARBOUR, "What is this?"),
    canary=_asked(NIGHT, "Is it dark?"),
    canary_parameters={"max_new_tokens": 4, "do_sample": False},
    way="generating",
    needs={"PIL": "vision"},
    structured=True,
    parse=_parse,
    schema=one_of(
        _CHAT_SCHEMA, members(text=TEXT, image=BYTES),
        members(text=TEXT, images=list_of(BYTES, 1, MAX_IMAGES)),
    ),
    is_one=lambda value: not isinstance(value, list) or _is_chat(value),
    generate=("do_sample", "temperature", "top_k", "top_p", "repetition_penalty"),
    parameters=table(
        whole(
            "max_new_tokens", "forward", 1, MAX_NEW_TOKENS, f" (default {DEFAULT_NEW_TOKENS})"
        ),
        switch("do_sample", "forward"),
        number("temperature", "forward", 0, 100),
        whole("top_k", "forward", 1),
        number("top_p", "forward", 0, 1),
        number("repetition_penalty", "forward", 0, 100),
        texts(
            "stop_sequence", "forward", "a text that ends the generation",
            most=MAX_STOPS, chars=MAX_STOP_CHARS,
        ),
        switch("return_full_text", "post", " (default true)"),
    ),
    bad_examples=(
        (HARBOUR, "an image alone is no question"),
        ({"text": "a", "images": []}, "an image is needed"),
        ({"text": "", "images": [HARBOUR]}, "a text is not empty"),
        ({"text": "a", "image": "http://localhost/a.png"}, "an address is never opened"),
        ({"text": "a", "images": ["/a/path.png"]}, "a path is never opened"),
        ([{"role": "user"}], "a message has role and content"),
        ([{"role": "king", "content": "a"}], "a role is one of three"),
        (
            [{"role": "user", "content": [{"type": "image", "url": "http://localhost/a.png"}]}],
            "an address is never opened",
        ),
    ),
    work=_work,
)  # fmt: skip
