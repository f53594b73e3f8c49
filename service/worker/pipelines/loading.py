"""Model and tokenizer from a folder, or one sentence that says why not.

Laws
- safetensors only, ``trust_remote_code`` only as given, never the network.
- A model whose weights do not hold what the task needs is refused: the library would fill the
  gaps with random numbers and answer nonsense.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoFeatureExtractor,
    AutoImageProcessor,
    AutoProcessor,
    AutoTokenizer,
)
from transformers.pipelines import SUPPORTED_TASKS

from service.tasks import TASKS
from service.worker.faults import kind_of
from service.worker.interface import CannotLoad, Foreign
from service.worker.pipelines.folder import check_folder
from service.worker.pipelines.layout import lay_out
from service.worker.wire import Load

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)


_PARTS: dict[str, tuple[Foreign, str]] = {
    "tokenizer": (AutoTokenizer, "tokenizer"),
    "image_processor": (AutoImageProcessor, "image processor"),
    "feature_extractor": (AutoFeatureExtractor, "feature extractor"),
    "processor": (AutoProcessor, "processor"),
}

_OF_TEXT = {"tokenizer": True}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model on the CPU, what makes its inputs, and the device that it is meant for.

    ``parts`` are named as a stock pipeline's arguments: ``tokenizer``, ``image_processor``,
    ``feature_extractor``, ``processor``.
    """

    model: Foreign
    parts: dict[str, Foreign]
    device: torch.device

    @property
    def tokenizer(self) -> Foreign:
        """Of a task of texts."""
        return self.parts["tokenizer"]


def load_model(
    load: Load,
    folder: Path,
    *auto_classes: Foreign,
    spare: Sequence[str] = (),
    own_head: bool = False,
    wanted: Mapping[str, bool] = _OF_TEXT,
) -> Loaded:
    """Load what the first fitting one of ``auto_classes`` makes of the folder.

    Args:
        load: as it came in LOAD.
        folder: of the model.
        auto_classes: what the task can use.
        spare: beginnings of names of weights that the task does not use.
        own_head: whether only a model that was made for one of them will do.
        wanted: the parts to load beside the model, and whether the task cannot do without.

    Raises:
        CannotLoad: the device is missing, the files are broken or do not fit the task.
        MemoryError, torch.OutOfMemoryError: no memory for it.
    """
    torch.set_num_threads(max(1, load.torch_threads))
    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)
    device = _device(load.device)
    raw = check_folder(folder)
    options = {"trust_remote_code": load.trust_remote_code, "local_files_only": True}
    with _named("model_broken", "The model's config.json fits no known architecture."):
        _check_remote_code(raw, load)
        config = AutoConfig.from_pretrained(folder, **options)
    auto_class = _fitting(config, raw, auto_classes)
    if own_head and not made_for(raw, auto_class):
        raise _incomplete(raw, auto_class)
    parts = {
        name: part
        for name, needed in wanted.items()
        if (part := _part(name, folder, options, needed=needed)) is not None
    }
    with _named(
        "model_broken", "The model's weights cannot be read or do not fit its config.json."
    ):
        model, info = auto_class.from_pretrained(
            folder,
            config=config,
            dtype=_dtype(load.dtype, device),
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
    missing = [name for name in info["missing_keys"] if not name.startswith(tuple(spare))]
    if missing or info["mismatched_keys"]:
        raise _incomplete(raw, auto_class)
    if device.type == "cpu":
        lay_out(model)
    return Loaded(model.eval(), parts, device)


def _part(name: str, folder: Path, options: dict[str, Any], *, needed: bool) -> Foreign:
    """One part, ``None`` for one that is not there and not needed."""
    auto_class, called = _PARTS[name]
    if name == "tokenizer" and not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        if needed:
            raise CannotLoad("model_broken", "The model folder has no tokenizer.")
        return None
    try:
        with _named("model_broken", f"The model's {called} cannot be read."):
            return auto_class.from_pretrained(folder, **options)
    except CannotLoad as error:
        if isinstance(error.__cause__, ImportError):
            message = f"The model's {called} needs a package that is not installed."
            raise CannotLoad("error", message) from error.__cause__
        if needed:
            raise
        return None


@contextmanager
def _named(reason: str, message: str) -> Iterator[None]:
    """Give whatever the libraries raise inside a reason; running out of memory keeps its own."""
    try:
        yield
    except CannotLoad:
        raise
    except Exception as error:
        # Foreign code that raises anything from KeyError to its own classes.
        if kind_of(error, lambda: True) == "oom":
            raise
        raise CannotLoad(reason, message) from error


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise CannotLoad("no_device", "The device setting names no device.") from error
    missing = CannotLoad("no_device", "This machine has no such device.")
    if device.type == "cpu":
        return device
    backend: Foreign = getattr(torch, device.type, None)
    if not hasattr(backend, "is_available") or not backend.is_available():
        raise missing
    if (device.index or 0) >= backend.device_count():
        raise missing
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype | str:
    # Half precision is slow and partly missing on CPUs; a device takes what the checkpoint has.
    if name == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise CannotLoad("error", "The dtype setting names no floating-point type.")
    return dtype


def _check_remote_code(raw: dict[str, Any], load: Load) -> None:
    if load.trust_remote_code or not raw.get("auto_map"):
        return
    if raw.get("model_type") not in CONFIG_MAPPING:
        raise CannotLoad(
            "remote_code",
            "The model brings its own code; set trust_remote_code if you trust it.",
        )


def _fitting(config: Foreign, raw: dict[str, Any], auto_classes: Sequence[Foreign]) -> Foreign:
    auto_map = raw.get("auto_map")
    for auto_class in auto_classes:
        own_code = isinstance(auto_map, dict) and auto_class.__name__ in auto_map
        # The library offers no public way to ask which architectures an auto class takes.
        if own_code or type(config) in auto_class._model_mapping:  # noqa: SLF001
            return auto_class
    hint = _hint(raw)
    raise CannotLoad("wrong_task", f"The model's architecture does not fit the task.{hint}")


def made_for(raw: dict[str, Any], auto_class: Foreign) -> bool:
    """Whether the model's own configuration says that it is one of the class's."""
    made: set[str] = set()
    # By name: asked for the classes themselves it would import every model of the library.
    for names in auto_class._model_mapping._model_mapping.values():  # noqa: SLF001 - as above
        made.update(names if isinstance(names, tuple) else (names,))
    return not made.isdisjoint(raw.get("architectures") or ())


def _incomplete(raw: dict[str, Any], auto_class: Foreign) -> CannotLoad:
    if not made_for(raw, auto_class):
        hint = _hint(raw)
        return CannotLoad("wrong_task", f"The model was made for another task.{hint}")
    return CannotLoad("model_broken", "The model's weights lack parts that the task needs.")


def _hint(raw: dict[str, Any]) -> str:
    """The tasks that the model's own configuration says it was made for, as a sentence."""
    found = [
        task.name
        for task in TASKS.values()
        if task.pipeline in SUPPORTED_TASKS and not task.spare_weights
        if any(made_for(raw, auto_class) for auto_class in SUPPORTED_TASKS[task.pipeline]["pt"])
    ]
    return f" It fits the task {' or '.join(found)}." if found else ""
