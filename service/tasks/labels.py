"""Labels that come with a request, and the sentence that they are put in."""

from __future__ import annotations

from collections.abc import Mapping

from service.tasks.checks import is_text, texts
from service.tasks.parameter import Json, Parameter, Reject
from service.tasks.schemas import Schema

MAX_LABELS = 100
MAX_LABEL_CHARS = 200
MAX_TEMPLATE_CHARS = 500

_TEMPLATE = f"a text of up to {MAX_TEMPLATE_CHARS} characters with one {{}} for the label"


def _template(value: Json, _facts: Mapping[str, int]) -> str:
    # No other brace: a template is not a place to reach into an object from.
    if not is_text(value, MAX_TEMPLATE_CHARS) or value.count("{}") != 1:
        raise Reject(f"send {_TEMPLATE}")
    if "{" in value.replace("{}", "") or "}" in value.replace("{}", ""):
        raise Reject(f"send {_TEMPLATE}, and no other brace")
    return str(value)


_TEMPLATE_SCHEMA: Schema = {
    "type": "string", "maxLength": MAX_TEMPLATE_CHARS, "pattern": r"^[^{}]*\{\}[^{}]*$",
}  # fmt: skip


def _by_commas(text: str) -> list[str]:
    return [label.strip() for label in text.split(",") if label.strip()]


def candidate_labels() -> Parameter:
    """The labels, as a list or a text with commas."""
    return texts(
        "candidate_labels", "prepare", "labels with commas between them",
        most=MAX_LABELS, chars=MAX_LABEL_CHARS, required=True, split=_by_commas,
    )  # fmt: skip


def template() -> Parameter:
    """The sentence."""
    return Parameter("hypothesis_template", "prepare", _TEMPLATE, _template,
                     schema=lambda _: _TEMPLATE_SCHEMA)  # fmt: skip
