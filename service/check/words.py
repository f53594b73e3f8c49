"""What would be served, at what cost and with which limits, as rows of a name and a sentence.

Laws
- Every number is the one that a server would work with: costs are what a worker has measured,
  limits are derived by ``core/limits``.
- What is known only once the model is loaded is said to be so, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from service.core.limits import CHARS_PER_TOKEN, MOST_CHARS, Limits, derive
from service.settings import Settings
from service.tasks import Task, task_named
from service.worker.wire import Facts

Row = tuple[str, str]

WAYS = {
    "batched": "batched: inputs of several requests go through the model together",
    "generating": "generating: token after token, inputs of the same parameters together",
    "whole": "whole: the stock call itself, one input after the other",
    "alone": "alone: the stock forward, one input after the other",
    "hearing": "hearing: sounds of one length together, others where padding does no harm",
    "listening": "listening: every piece of every sound together, as far as the model allows",
    "speaking": "speaking: one text after the other",
    "watching": "watching: films together, each as the model's own number of frames",
}
"""How a worker runs a task, by the entry's word."""

LATER = "known once the model is loaded: --load"


def serving(settings: Settings) -> Iterator[Row]:
    """What would be served, as far as the settings say."""
    task = task_named(settings.task)
    yield "model", f"{settings.model}, {_where(settings)}"
    yield "task", task.name + (f" (transformers: {task.stock})" if task.stock else "")
    yield "takes", _takes(task)
    yield "parameters", _parameters(task)
    yield "runs", WAYS[task.way]
    yield "device", _device(settings)
    for module, extra in task.needs.items():
        found = "is installed" if find_spec(module) else "IS NOT INSTALLED"
        yield "needs", f"{module}, which {found} (extra '{extra}')"


def found(settings: Settings, facts: Facts) -> Iterator[Row]:
    """What a worker has found, where it says more than the settings."""
    task = task_named(settings.task)
    threads = f", {facts.torch_threads} threads a worker" if facts.torch_threads else ""
    yield "device", f"{facts.device}, {facts.dtype}{threads}"
    if settings.workers == "auto":
        yield "workers", f"{facts.workers}, as measured"
    if task.way == "batched" and not facts.batchable:
        yield "runs", "one input after the other: this model answers otherwise beside padding"
    if facts.path not in ("stock", task.way):
        yield "path", f"{facts.path}: a faster way, proved equal to the stock one"
    yield "loaded in", f"{facts.load_s:.1f} s"


def costs(facts: Facts, unit: str) -> Iterator[Row]:
    """What the warm-up has measured."""
    typical_s = facts.cost_fixed_s + facts.cost_unit_s * facts.typical_units
    a_unit = f"{_ms(facts.cost_unit_s)} for each unit ({unit}), padding counted"
    yield "a batch", f"{_ms(facts.cost_fixed_s)} + {a_unit}"
    yield "one typical input", f"{facts.typical_units} {unit}: {_ms(typical_s)} alone"
    longest_s = facts.cost_fixed_s + facts.cost_unit_s * facts.max_tokens
    if unit == "tokens":
        yield "the longest input", f"{facts.max_tokens} {unit}: {_ms(longest_s)} alone"
    if facts.step_units:
        yield "a generated token", _ms(facts.step_units * facts.cost_unit_s)


def limits_before(settings: Settings) -> Iterator[Row]:
    """The limits, as far as the settings say."""
    named = settings.limit_settings
    yield "deadline", LATER if named.deadline_ms is None else _ms(named.deadline_ms / 1000)
    yield from _of_requests(settings)


def limits(settings: Settings, facts: Facts) -> Iterator[Row]:
    """The limits in force, with the costs that were measured."""
    derived = in_force(settings, facts)
    auto = settings.limit_settings.deadline_ms is None
    why = ", 30 typical inputs rounded up" if auto else ""
    yield (
        "deadline",
        f"{_ms(derived.deadline_s)}{why}; a client may name up to " + _ms(derived.max_deadline_s),
    )
    yield "predicted wait", f"{_ms(derived.wait_cap_s)}, then 503 overloaded"
    yield "a batch", f"{_ms(derived.batch_time(facts.cost_fixed_s))} at most"
    if facts.max_tokens:
        yield "tokens", f"{facts.max_tokens} in one input"
    one, many = derived.max_chars(1), derived.max_chars(settings.max_items)
    yield "characters", f"{one} in a request of one input, {many} in one of {settings.max_items}"
    yield from _of_requests(settings, chars=False)


def in_force(settings: Settings, facts: Facts) -> Limits:
    """The limits that a server would derive."""
    return derive(
        settings.limit_settings,
        fixed_s=facts.cost_fixed_s,
        unit_s=facts.cost_unit_s,
        typical_units=facts.typical_units,
        max_tokens=facts.max_tokens,
    )


def _of_requests(settings: Settings, *, chars: bool = True) -> Iterator[Row]:
    if chars:
        most = settings.limit_settings.max_chars
        derived = f"{CHARS_PER_TOKEN} for each token that the model takes, at most {MOST_CHARS}"
        yield "characters", derived if most is None else f"{most} in a request"
    yield "inputs", f"{min(settings.max_items, settings.queue_limit)} in a request"
    yield "body", f"{settings.max_body_bytes} bytes"
    yield "queue", f"{settings.queue_limit} inputs, {settings.queue_bytes} bytes"


def _where(settings: Settings) -> str:
    if settings.synthetic:
        return "no model: it sleeps as long as one would take"
    if settings.packaged_model:
        return "inside the package"
    if settings.model_is_folder:
        return "a folder"
    return f"from the hub ({settings.revision or 'main'}), unless it is cached"


def _takes(task: Task) -> str:
    what = f"inputs of {task.media}" if not task.structured else f"{task.media} or a JSON object"
    return f"{what}, one or a list of them"


def _parameters(task: Task) -> str:
    names = [
        name + (" (required)" if one.required else "") for name, one in task.parameters.items()
    ]
    return ", ".join(names) or "none"


def _device(settings: Settings) -> str:
    if settings.device != "auto":
        return settings.device
    return "auto: an accelerator if there is one, else the CPU"


def _ms(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
