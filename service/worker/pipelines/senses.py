"""Loads what hears, listens, speaks or watches: parts of the model as its stock pipeline has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from transformers import ProcessorMixin, pipeline
from transformers.pipelines import SUPPORTED_TASKS

from service.tasks import Task
from service.worker.interface import CannotLoad
from service.worker.pipelines.loading import load_model
from service.worker.pipelines.owned import Owned
from service.worker.wire import Load

_SOUND = {"feature_extractor": True}
_PARTS: Mapping[str, Mapping[str, bool]] = {
    "audio-classification": _SOUND,
    "automatic-speech-recognition": {"tokenizer": True, **_SOUND},
    "zero-shot-audio-classification": {"tokenizer": True, **_SOUND},
    "text-to-audio": {"tokenizer": True, "processor": False},
    "video-classification": {"image_processor": True},
}


def load_sense(load: Load, folder: Path, task: Task) -> Owned:
    """Load the model from the folder, as the entry says, and warm up.

    Raises:
        CannotLoad: the model does not fit the task, or see :func:`load_model`.
    """
    classes = SUPPORTED_TASKS[task.pipeline]["pt"]
    if task.way == "speaking":
        classes = classes[:1]  # spectrograms would want a vocoder from the hub
    wanted = _PARTS[task.pipeline]
    loaded = load_model(load, folder, *classes, own_head=task.own_head, wanted=wanted)
    parts = loaded.parts
    if not isinstance(parts.get("processor"), ProcessorMixin):
        parts.pop("processor", None)
    if task.way == "watching" and not hasattr(loaded.model.config, "num_frames"):
        raise CannotLoad("wrong_task", "The model does not say how many frames it sees.")
    pipe = pipeline(task.pipeline, model=loaded.model, device=loaded.device, **parts)
    made = _kind(task)(load, task, pipe)
    made.warm_up()
    return made


def _kind(task: Task) -> type[Owned]:
    if task.way == "hearing":
        from service.worker.pipelines.hearing import Hearing

        return Hearing
    if task.way == "listening":
        from service.worker.pipelines.listening import Listening

        return Listening
    if task.way == "speaking":
        from service.worker.pipelines.speaking import Speaking

        return Speaking
    from service.worker.pipelines.watching import Watching

    return Watching
