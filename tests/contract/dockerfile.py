"""A Dockerfile as data: its stages, and the instructions of each."""

from __future__ import annotations

import re
from typing import NamedTuple


class Instruction(NamedTuple):
    """One instruction: its word in capitals, and the rest on one line."""

    word: str
    rest: str


Stage = list[Instruction]


def instructions(text: str) -> Stage:
    """Every instruction in order; comments are dropped and continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    parts = (line.strip().partition(" ") for line in joined.splitlines() if line.strip())
    return [Instruction(word.upper(), rest.strip()) for word, _, rest in parts]


def stages(text: str) -> list[Stage]:
    """The stages, each beginning with its FROM; what stands before the first is the zeroth."""
    found: list[Stage] = [[]]
    for one in instructions(text):
        if one.word == "FROM":
            found.append([])
        found[-1].append(one)
    return found


def all_of(stage: Stage, word: str) -> list[str]:
    """What a stage's instructions of one word say."""
    return [one.rest for one in stage if one.word == word]


def environment(stage: Stage) -> dict[str, str]:
    """The variables that a stage sets."""
    pairs = (pair.partition("=") for rest in all_of(stage, "ENV") for pair in rest.split())
    return {name: value for name, _, value in pairs}
