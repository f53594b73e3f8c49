"""Where an exception came from, without a word of what it says.

Laws
- Class and frames (``file:line function``), never message, arguments, notes or locals: libraries
  put inputs, paths and secrets into those.
- A file is named relative to the package or to ``site-packages``, so a log does not tell how the
  machine is laid out.
- Causes and the members of groups are shown in the same way, a bounded number of them.
"""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path
from traceback import walk_tb
from typing import Any

MOST_FRAMES = 20
"""The innermost frames of one exception; recursion is cut here."""

MOST_MEMBERS = 8
MOST_DEPTH = 4
MOST_IN_ALL = 32
"""How many members of a group, how many causes or groups inside each other, how many in all."""

_HERE = str(Path(__file__).resolve().parent.parent) + "/"
_STDLIB = sysconfig.get_paths()["stdlib"] + "/"
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_FROZEN = re.compile(r"<frozen [\w.]{1,60}>")


def error_fields(error: BaseException) -> dict[str, Any]:
    """The fields of a log event that describe an exception.

    Returns:
        ``error`` (the class) and ``frames`` (outermost first), and where there are any
        ``caused_by`` (the cause, or the exception that was being treated) and ``members`` (of a
        group), each of the same shape.
    """
    return _fields(error, depth=0, seen=set())


def class_name(error: BaseException) -> str:
    """The exception's class with its module, without the module for built-in ones."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else _dotted(kind)


def frames(error: BaseException) -> list[str]:
    """``file:line function`` of the innermost frames, outermost first."""
    found = [
        f"{place(frame.f_code.co_filename)}:{line} {frame.f_code.co_qualname}"
        for frame, line in walk_tb(error.__traceback__)
    ]
    return found[-MOST_FRAMES:]


def place(filename: str) -> str:
    """A source file without what is special to this machine."""
    if filename.startswith("<"):
        return filename if _FROZEN.fullmatch(filename) else "<code>"
    inside, packages = _PACKAGES.subn("", filename)
    if packages:
        return inside
    for root in (_HERE, _STDLIB):
        if filename.startswith(root):
            return filename.removeprefix(root)
    return Path(filename).name


def _fields(error: BaseException, *, depth: int, seen: set[int]) -> dict[str, Any]:
    seen.add(id(error))
    fields: dict[str, Any] = {"error": class_name(error), "frames": frames(error)}
    if depth == MOST_DEPTH:
        return fields
    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    if cause is not None and id(cause) not in seen and len(seen) < MOST_IN_ALL:
        fields["caused_by"] = _fields(cause, depth=depth + 1, seen=seen)
    if isinstance(error, BaseExceptionGroup):
        fields["members"] = [
            _fields(member, depth=depth + 1, seen=seen)
            for member in error.exceptions[:MOST_MEMBERS]
            if id(member) not in seen and len(seen) < MOST_IN_ALL
        ]
    return fields


def _dotted(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
