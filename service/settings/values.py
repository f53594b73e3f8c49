"""What a setting's value may be: one small rule for each kind, used by every source alike.

Laws
- A rule says what the value must be (:meth:`Rule.says`) and never repeats what was given: a value
  may be a secret that landed in the wrong variable.
- A text from a flag or the environment is read by :meth:`Rule.from_text`; a typed value from a
  file or from Python code is checked by :meth:`Rule.check`. Nothing is rounded or guessed:
  ``5.5``, ``5.0`` and ``true`` are no whole numbers.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from service.core.limits import DEADLINE_LADDER_S
from service.settings.address import Address, BadAddress

AUTO: Literal["auto"] = "auto"

IntOrAuto = int | Literal["auto"]

LATENCY_BOUNDS_MS: tuple[float, ...] = (
    *(1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 750.0),
    *(step * 1000 for step in DEADLINE_LADDER_S),
)
"""Upper bounds of every latency histogram, milliseconds: steps of about 2.5, then the ladder."""


@dataclass(frozen=True, slots=True)
class Rule(ABC):
    """What a value must be. As a part of ``Annotated`` it is the field's whole validation."""

    @abstractmethod
    def says(self) -> str:
        """Say what the value must be, so that it fits after "must be"."""

    @abstractmethod
    def check(self, value: object) -> object:
        """Return the value as the setting keeps it.

        Raises:
            ValueError: the value is something else.
        """

    def from_text(self, text: str) -> object:
        """Read a text from a flag or the environment, same result and errors as ``check``."""
        return self.check(text.strip())

    def __get_pydantic_core_schema__(self, _: object, __: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: object) -> object:
            try:
                return self.check(value)
            except ValueError:
                # A braced message is pydantic's own template; the rule's words go in as a value.
                raise PydanticCustomError("rule", "must be {says}", {"says": self.says()}) from None

        return core_schema.no_info_plain_validator_function(validate)


@dataclass(frozen=True, slots=True)
class Whole(Rule):
    """A whole number from ``low`` to ``high``, or ``auto`` where the service derives it."""

    low: int
    high: int
    auto: bool = False

    def says(self) -> str:
        """See :meth:`Rule.says`."""
        return f"a whole number from {self.low} to {self.high}" + (" or auto" if self.auto else "")

    def check(self, value: object) -> int | str:
        """See :meth:`Rule.check`."""
        if self.auto and value == AUTO:
            return AUTO
        # bool is an int to Python, not to whoever wrote the file
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(self.says())  # noqa: TRY004 - one error type for every rule
        if not self.low <= value <= self.high:
            raise ValueError(self.says())
        return value

    def from_text(self, text: str) -> int | str:
        """See :meth:`Rule.from_text`. Twenty digits are beyond every bound."""
        text = text.strip()
        number = re.fullmatch(r"[+-]?[0-9]{1,20}", text)
        return self.check(int(text) if number else text)


@dataclass(frozen=True, slots=True)
class Switch(Rule):
    """On or off."""

    def says(self) -> str:
        """See :meth:`Rule.says`."""
        return "true or false"

    def check(self, value: object) -> bool:
        """See :meth:`Rule.check`."""
        if not isinstance(value, bool):
            raise ValueError(self.says())  # noqa: TRY004 - one error type for every rule
        return value

    def from_text(self, text: str) -> bool:
        """See :meth:`Rule.from_text`. Takes what people write in manifests."""
        word = text.strip().lower()
        if word in ("true", "1", "yes", "on"):
            return True
        if word in ("false", "0", "no", "off"):
            return False
        raise ValueError(self.says())


@dataclass(frozen=True, slots=True)
class Choice(Rule):
    """One of a few words."""

    words: tuple[str, ...]

    def says(self) -> str:
        """See :meth:`Rule.says`."""
        return f"one of {', '.join(self.words)}"

    def check(self, value: object) -> str:
        """See :meth:`Rule.check`."""
        if not isinstance(value, str) or value not in self.words:
            raise ValueError(self.says())
        return value


@dataclass(frozen=True, slots=True)
class Bound(Rule):
    """One of the latency histogram's bounds, in milliseconds."""

    def says(self) -> str:
        """See :meth:`Rule.says`."""
        return f"one of {', '.join(f'{bound:g}' for bound in LATENCY_BOUNDS_MS)}"

    def check(self, value: object) -> float:
        """See :meth:`Rule.check`."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(self.says())  # noqa: TRY004 - one error type for every rule
        if value not in LATENCY_BOUNDS_MS:
            raise ValueError(self.says())
        return float(value)

    def from_text(self, text: str) -> float:
        """See :meth:`Rule.from_text`."""
        for bound in LATENCY_BOUNDS_MS:
            if text.strip() == f"{bound:g}":
                return bound
        raise ValueError(self.says())


@dataclass(frozen=True, slots=True)
class Text(Rule):
    """A printable text that matches ``pattern`` as a whole; ``what`` describes it."""

    what: str
    pattern: str

    def says(self) -> str:
        """See :meth:`Rule.says`."""
        return self.what

    def check(self, value: object) -> str:
        """See :meth:`Rule.check`."""
        if not isinstance(value, str) or not (value.isprintable() or not value):
            raise ValueError(self.says())
        if not re.fullmatch(self.pattern, value):
            raise ValueError(self.says())
        return value


MODEL = Text(
    "a hub id (org/name), a folder, synthetic:cpu or synthetic:gpu",
    r"synthetic:(cpu|gpu)|(?!synthetic:|-|\s)(?!.*://).*\S",
)
REVISION = Text("a branch, tag or commit, or empty", r"([\w.][\w./-]{0,254})?")
DEVICE = Text(
    "auto, cpu, mps, cuda or xpu, or one of several such as cuda:1",
    r"auto|cpu|mps|(cuda|xpu)(:[0-9]{1,3})?",
)
FILE = Text("the path of a file, or empty", r"(\S|\S.*\S)?")


@dataclass(frozen=True, slots=True)
class Bind(Rule):
    """An address to listen on; with ``optional`` an empty text means none."""

    optional: bool = False

    def says(self) -> str:
        """See :meth:`Rule.says`."""
        return (
            "HOST:PORT (port 0 to 65535, IPv6 in brackets: [::1]:8000) or unix:PATH"
            + (", or empty" if self.optional else "")
        )  # fmt: skip

    def check(self, value: object) -> str:
        """See :meth:`Rule.check`."""
        if not isinstance(value, str):
            raise ValueError(self.says())  # noqa: TRY004 - one error type for every rule
        if self.optional and not value:
            return value
        try:
            Address.parse(value)
        except BadAddress:
            raise ValueError(self.says()) from None
        return value


def number(value: IntOrAuto) -> int | None:
    """The number of a setting, ``None`` for ``auto``."""
    return value if isinstance(value, int) else None
