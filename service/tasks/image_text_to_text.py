"""image-text-to-text: an answer to a text and the images in it; not streamed.

An input is a chat (messages whose content is a text, or a list of texts and images), or an object
with ``text`` and ``images``, in which the model's own mark stands for each image. The images of a
chat are not sent back with it.
"""

from __future__ import annotations

from service.core.errors import Refused, invalid
from service.tasks.base import Task, a_text
from service.tasks.chats import BAD_CHATS, a_chat, chat_schema, is_chat
from service.tasks.checks import number, switch, table, whole
from service.tasks.examples import HARBOUR, NIGHT
from service.tasks.generation import DEFAULT_NEW_TOKENS, steps, stops
from service.tasks.media import an_image
from service.tasks.parameter import Json
from service.tasks.schemas import BYTES, TEXT, list_of, members, one_of

MAX_NEW_TOKENS = 4096
MAX_IMAGES = 16

_PART = "send a list of {'type': 'text', 'text': …} and {'type': 'image', 'image': …}"


def _is_chat(value: Json) -> bool:
    return is_chat(value) and not value[0].keys() & {"text", "image", "images"}


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
    found = a_chat(value, pointer, _content)
    images = sum(part["type"] == "image" for message in found for part in message["content"])
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


def _asked(image: str, text: str) -> Json:
    content = [{"type": "image", "image": image}, {"type": "text", "text": text}]
    return [{"role": "user", "content": content}]


_PART_SCHEMA = one_of(
    members(type={"const": "text"}, text=TEXT), members(type={"const": "image"}, image=BYTES)
)
_CHAT_SCHEMA = chat_schema(one_of(TEXT, list_of(_PART_SCHEMA, 1, MAX_IMAGES)))

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
        stops("stop_sequence"),
        switch("return_full_text", "post", " (default true)"),
    ),
    bad_examples=(
        (HARBOUR, "an image alone is no question"),
        ({"text": "a", "images": []}, "an image is needed"),
        ({"text": "", "images": [HARBOUR]}, "a text is not empty"),
        ({"text": "a", "image": "http://localhost/a.png"}, "an address is never opened"),
        ({"text": "a", "images": ["/a/path.png"]}, "a path is never opened"),
        *BAD_CHATS,
        (
            [{"role": "user", "content": [{"type": "image", "url": "http://localhost/a.png"}]}],
            "an address is never opened",
        ),
    ),
    work=steps,
)  # fmt: skip
