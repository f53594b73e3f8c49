"""Loads a task of images, sounds or films: the parts that its stock pipeline names, and no more."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import transformers
from transformers.pipelines import SUPPORTED_TASKS

from service.tasks import Task
from service.worker.interface import CannotLoad, Foreign
from service.worker.pipelines.describing import Describing
from service.worker.pipelines.documents import Documents, classes_that_write
from service.worker.pipelines.folder import check_folder
from service.worker.pipelines.loading import load_model, made_for
from service.worker.pipelines.owned import Owned
from service.worker.pipelines.shaped import Shaped
from service.worker.pipelines.whole import Whole
from service.worker.wire import Load


def load_media(load: Load, folder: Path, task: Task) -> Owned:
    """Load the model from the folder, as the entry and the stock pipeline say, and warm up.

    Raises:
        CannotLoad: the model does not fit the task, or see :func:`load_model`.
    """
    offered = SUPPORTED_TASKS.get(task.pipeline)
    if offered is None:
        raise CannotLoad("wrong_task", "The installed transformers has no such task.")
    stock = _stock_class(offered["impl"])
    raw = check_folder(folder)
    classes = offered["pt"]
    if task.way == "speaking":
        _check_sound(raw)
        classes = classes[:1]
    documents = task.name == "document-question-answering"
    also = [*task.also, *(classes_that_write(raw) if documents else ())]
    loaded = load_model(
        load,
        folder,
        *classes,
        *(getattr(transformers, name) for name in also),
        spare=task.spare_weights,
        own_head=task.own_head,
        wanted=_wanted(stock),
    )
    if not isinstance(loaded.parts.get("processor"), transformers.ProcessorMixin):
        loaded.parts.pop("processor", None)  # the library gives a tokenizer where there is none
    if task.way == "watching" and "image_processor" not in loaded.parts:
        raise _no_frames(folder)
    pipe = stock(model=loaded.model, task=task.pipeline, device=loaded.device, **loaded.parts)
    made = _kind(task)(load, task, pipe)
    made.warm_up()
    return made


def _check_sound(raw: dict[str, Any]) -> None:
    if not made_for(raw, transformers.AutoModelForTextToSpectrogram):
        return
    voice = raw.get("speaker_embedding_dim") and ", and a voice beside each text"
    raise CannotLoad(
        "wrong_task",
        "The model makes spectrograms, no sound: it would need a vocoder, which is not in its "
        f"folder{voice or ''}. Models that make sound are served.",
    )


def _no_frames(folder: Path) -> CannotLoad:
    if (folder / "video_preprocessor_config.json").is_file():
        return CannotLoad(
            "wrong_task",
            "The model's processor is one of whole films (a video processor); served are models "
            "with one of frames (an image processor).",
        )
    return CannotLoad("model_broken", "The model's image processor is not there.")


def _stock_class(named: Foreign) -> Foreign:
    """The pipeline's class; the library names it by its dotted path, to import it when needed."""
    if not isinstance(named, str):
        return named
    module, _, name = named.rpartition(".")
    return getattr(import_module(module), name)


def _wanted(stock: Foreign) -> dict[str, bool]:
    """As the stock pipelines mark them: ``True`` must be there, ``None`` may."""
    parts = ("tokenizer", "image_processor", "feature_extractor", "processor")
    marks = {name: getattr(stock, f"_load_{name}") for name in parts}
    return {name: bool(mark) for name, mark in marks.items() if mark is not False}


def _kind(task: Task) -> type[Owned]:
    if task.name == "document-question-answering":
        return Documents
    if task.way == "hearing":
        from service.worker.pipelines.tuning import Hearing

        return Hearing
    if task.way == "listening":
        from service.worker.pipelines.listening import Listening

        return Listening
    if task.way == "speaking":
        from service.worker.pipelines.speaking import Speaking

        return Speaking
    if task.way == "watching":
        from service.worker.pipelines.watching import Watching

        return Watching
    kinds: dict[str, type[Owned]] = {"whole": Whole, "generating": Describing}
    return kinds.get(task.way, Shaped)
