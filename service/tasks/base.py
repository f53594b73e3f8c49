"""The shape of a task's entry: inputs, parameters, example, canary, batch key, answers.

Laws
- An unknown parameter is a 422; a known one is checked by type and range. Nothing a client sends
  reaches a pipeline's call under another name.
- ``key`` is made of the prepare and forward parameters only: items of one batch agree in it;
  post parameters need not.
- A refusal names the field by JSON pointer and says what to send instead, never what was sent.
- An entry is values and pure functions: the worker runs the stock pipeline as the entry says, so a
  new task is one file in this room.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from service.core.errors import FieldError, Refused, invalid, problem
from service.tasks.media import MARK, MAX_PIXELS, Medium, packed, unpacked
from service.tasks.parameter import Json, Parameter, Reject
from service.tasks.schemas import ANY, BY_MEDIUM, BYTES, Schema

Way = Literal[
    "batched", "alone", "generating", "whole", "hearing", "listening", "speaking", "watching"
]


class Work(NamedTuple):
    """What a request's parameters make of one input.

    Attributes:
        times: how often its text goes through the model.
        steps: tokens that are generated one after the other.
    """

    times: int = 1
    steps: int = 0


class Model(NamedTuple):
    """What a parameter may have to be held against, once the model is there.

    Attributes:
        max_tokens: most tokens of one input.
        special_tokens: that the tokenizer adds to each of them.
        fast_tokenizer: whether the tokenizer knows where in the text a token stands.
        abilities: what a processor can do afterwards and a model puts out, by the library's names.
    """

    max_tokens: int
    special_tokens: int
    fast_tokenizer: bool
    abilities: frozenset[str] = frozenset()


def a_text(value: Json, pointer: str) -> str:
    """A text with something in it, as it is.

    Raises:
        Refused: ``invalid_input`` that names the pointer and says what to send.
    """
    if not isinstance(value, str):
        raise Refused(invalid(pointer, "send a string"))
    if not value.strip():
        raise Refused(invalid(pointer, "send a text that is not empty"))
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(invalid(pointer, "send text of valid Unicode (no lone surrogates)")) from None
    return value


def is_no_list(value: Json) -> bool:
    """Whether ``inputs`` is one input and not a list of them."""
    return not isinstance(value, list)


def as_it_is(answer: bytes, _input: str, _parameters: Mapping[str, Json]) -> bytes:
    """The answer of a lone input as the worker made it."""
    return answer


Shape = Callable[[bytes, str, Mapping[str, Json]], bytes]
"""The answer of a lone input, that input and the parameters; returns what the client gets."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task.

    Attributes:
        name: the transformers task name.
        media: what an input is, or holds: ``text``, ``image``, ``audio`` or ``video``.
        example: an input that works on any model of the task; ``{mask}`` is its mask token.
        canary: the input of the self-test, same convention.
        example_parameters: what the example needs, where a parameter is required.
        canary_parameters: the canary's.
        parameters: every parameter that passes, by name.
        bad_examples: inputs that must be refused with 422, with the reason, for tests and pages.
        unit: what one unit of cost is.
        aliases: other names that transformers knows it by.
        stock: the transformers task whose pipeline runs it, where that has another name.
        way: how the worker runs it: ``batched`` with others, ``alone`` (media whose forwards are
            not shared), ``generating`` token by token, or ``whole``: the stock call itself; with
            sounds and films ``hearing``, ``listening`` (to speech), ``speaking``, ``watching``.
        needs: Python modules that its pipeline cannot do without, and the extra that has them.
        structured: whether an input may be another JSON value than a string.
        spare_weights: parts of the network that the task does not use, and so may be missing.
        wide_answers: whether an answer holds a vector for each token.
        cutting: parameters that let a text that is too long for the model be cut.
        also: more of the library's auto classes that its pipeline takes, by name.
        generate: parameters that the stock pipeline takes together, as ``generate_kwargs``.
        inside: parameters that the stock pipeline takes in one object with the medium.
        max_pixels: most pixels of one image; less where the answer is as large as the image.
        own_head: whether only a model that was made for this task will do.
        needs_label: how one of the model's labels must begin.
        parse: checks one input and returns it as the pipeline takes it.
        schema: of the inputs that ``parse`` takes; without one, what the medium suggests.
        answer: schema of the answer to one input.
        is_one: whether ``inputs`` is one input; for tasks whose input is a list itself.
        together: whether parameters fit each other; returns the fault.
        fits: whether parameters fit the model; asked by the worker; returns the fault.
        work: how much of it there is.
        lone: the answer of a lone input, where the stock call gives it another shape than in a
            list.
        hub: the same as the Hugging Face hub's own API has it, for its client.
        hub_type: the media type of that, where it is no JSON.
        vector: whether parameters make each answer one flat list of numbers.
    """

    name: str
    media: Medium
    example: Json
    canary: Json
    example_parameters: Mapping[str, Json] = field(default_factory=dict)
    canary_parameters: Mapping[str, Json] = field(default_factory=dict)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    bad_examples: tuple[tuple[Json, str], ...] = ()
    unit: str = "tokens"
    aliases: tuple[str, ...] = ()
    stock: str = ""
    way: Way = "batched"
    needs: Mapping[str, str] = field(default_factory=dict)
    structured: bool = False
    spare_weights: tuple[str, ...] = ()
    wide_answers: bool = False
    cutting: tuple[str, ...] = ("truncation",)
    also: tuple[str, ...] = ()
    generate: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    max_pixels: int = MAX_PIXELS
    own_head: bool = False
    needs_label: str = ""
    parse: Callable[[Json, str], Json] = a_text
    schema: Schema | None = None
    answer: Schema = field(default_factory=lambda: ANY)
    is_one: Callable[[Json], bool] = is_no_list
    together: Callable[[Mapping[str, Json]], FieldError | None] = lambda _: None
    fits: Callable[[Mapping[str, Json], Model], FieldError | None] = lambda _, __: None
    work: Callable[[Mapping[str, Json]], Work] = lambda _: Work()
    lone: Shape = as_it_is
    hub: Shape = as_it_is
    hub_type: str = "application/json"
    vector: Callable[[Mapping[str, Json]], bool] = lambda _: False

    @property
    def pipeline(self) -> str:
        """The transformers task whose pipeline runs it."""
        return self.stock or self.name

    @property
    def input_schema(self) -> Schema:
        """Schema of one input."""
        if self.schema is not None:
            return self.schema
        return BY_MEDIUM.get(self.media, BYTES)

    @property
    def needs_parameters(self) -> bool:
        """Whether a request without parameters is refused."""
        return any(parameter.required for parameter in self.parameters.values())

    def parse_input(self, value: Json, pointer: str) -> str:
        """One input as it travels to the worker: the text, or JSON behind :data:`MARK`.

        Args:
            value: the decoded JSON value.
            pointer: its JSON pointer, for the message.

        Raises:
            Refused: ``invalid_input`` that names the pointer and says what to send.
        """
        return self.travelling(self.parse(value, pointer))

    def travelling(self, value: Json) -> str:
        """A value that :attr:`parse` has returned, as a text."""
        if isinstance(value, str) and not (self.structured and value.startswith(MARK)):
            return value
        return MARK + json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def taken(self, value: Json, pointer: str) -> tuple[str, bytes]:
        """One input as it travels to the worker: the text, and the bytes of its media.

        Raises:
            Refused: as :meth:`parse_input`.
        """
        if self.media == "text":
            return self.parse_input(value, pointer), b""
        return packed(self.parse(value, pointer))

    def size(self, text: str, media: bytes) -> int:
        """What costs are guessed from before an input is prepared; at least 1.

        The characters of a text, the bytes of a sound or film; an image counts as one, since its
        bytes say little of its size.
        """
        if self.media == "text":
            return len(text)
        return 1 if self.media == "image" else max(1, len(media))

    def arrived(self, text: str, media: bytes = b"") -> Json:
        """The value of an input that has travelled; what was a medium is ``bytes``."""
        if self.media != "text":
            return unpacked(text, media)
        if self.structured and text.startswith(MARK):
            return json.loads(text[len(MARK) :])
        return text

    def parse_parameters(self, value: Json, facts: Mapping[str, int]) -> dict[str, Json]:
        """The parameters of one request, checked and normalised; all faults at once.

        Args:
            value: the decoded ``parameters`` member, ``None`` if absent.
            facts: the model's integer facts, for ranges.

        Raises:
            Refused: ``invalid_input`` with one entry for each parameter at fault.
        """
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise Refused(invalid("/parameters", "send an object of parameters"))
        faults: list[FieldError] = []
        result: dict[str, Json] = {}
        if not value.keys() <= self.parameters.keys():  # one entry, however many were sent
            allowed = ", ".join(sorted(self.parameters)) or "none"
            faults.append(FieldError("/parameters", f"unknown parameter; known are: {allowed}"))
        for name, known in self.parameters.items():
            given = value.get(name)
            if given is not None:
                try:
                    result[name] = known.check(given, facts)
                except Reject as reject:
                    faults.append(FieldError(f"/parameters/{name}", reject.message))
            elif known.required:
                faults.append(FieldError(f"/parameters/{name}", f"send {known.describe}"))
        if not faults and (fault := self.together(result)) is not None:
            faults.append(fault)
        if faults:
            raise Refused(problem("invalid_input", errors=tuple(faults)))
        return result

    def key(self, parameters: Mapping[str, Json]) -> str:
        """The batch key: items whose keys differ are never in one batch."""
        parts = [
            f"{name}={parameters[name]!r}"
            for name in sorted(parameters)
            if self.parameters[name].role != "post"
        ]
        return ";".join(parts)

    def call(self, parameters: Mapping[str, Json]) -> dict[str, Json]:
        """The parameters as the stock pipeline's call names them."""
        named = {self.parameters[name].stock or name: value for name, value in parameters.items()}
        together = {name: named.pop(name) for name in self.generate if name in named}
        return {**named, "generate_kwargs": together} if together else named
