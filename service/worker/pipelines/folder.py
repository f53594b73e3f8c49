"""Finds the model's folder and looks at its files, before torch is imported.

A wrong model setting fails here in a fraction of a second, and each way in which it can be wrong
has its own sentence.

Laws
- Weights are safetensors. A pickle is never opened, whatever a loader would do with it.
- A folder is read without the network. A hub id is looked for in the local cache first; the
  network is used only for one that is not there, and never with ``HF_HUB_OFFLINE``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from service.worker.interface import CannotLoad

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_PATTERNS = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model", "*.jinja")


def find_folder(model: str, revision: str, *, trust_remote_code: bool) -> Path:
    """The folder that holds the model, downloaded if it must be.

    Raises:
        CannotLoad: there is none, or it cannot be reached.
    """
    folder = Path(model).expanduser()
    if model and folder.is_dir():
        return folder
    if folder.exists() or not _HUB_ID.fullmatch(model):
        raise CannotLoad("model_not_found", "The model folder does not exist.")
    patterns = [*_PATTERNS, "*.py"] if trust_remote_code else list(_PATTERNS)
    return _find_on_hub(model, revision or None, patterns)


def _find_on_hub(model: str, revision: str | None, patterns: list[str]) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import (
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    def snapshot(*, local: bool) -> Path:
        return Path(
            snapshot_download(
                model, revision=revision, allow_patterns=patterns, local_files_only=local
            )
        )

    try:
        cached = snapshot(local=True)
        if (cached / "config.json").is_file() and _weight_files(cached):
            return cached
    except (LocalEntryNotFoundError, HFValidationError):
        pass  # not cached, or only in part
    if constants.HF_HUB_OFFLINE:
        raise CannotLoad(
            "hub_unreachable",
            "The model is no folder and not in the local cache, and HF_HUB_OFFLINE is set.",
        )
    try:
        return snapshot(local=False)
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise CannotLoad(
            "model_not_found",
            "The model is no folder, and the hub has no such model or revision that may be read.",
        ) from error
    except Exception as error:
        # The hub's client raises its own classes, those of its HTTP library and the system's.
        raise CannotLoad(
            "hub_unreachable",
            "The model is no folder and not in the local cache, and the hub cannot be reached.",
        ) from error


def check_folder(folder: Path) -> dict[str, Any]:
    """Look at the files of a model; returns its configuration.

    Raises:
        CannotLoad: a file is missing, unreadable or cut off, or the weights are a pickle.
    """
    config = _read_json(folder / "config.json")
    files = _weight_files(folder)
    if not files:
        if any(path.suffix in _PICKLES for path in folder.iterdir()):
            raise CannotLoad(
                "pickle_only",
                "The model has its weights only as a pickle, which can run code when it is "
                "loaded; convert them to safetensors.",
            )
        raise CannotLoad("model_broken", "The model folder has no model.safetensors.")
    for file in files:
        _check_weights(file)
    return config


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CannotLoad("model_broken", f"The model folder has no {path.name}.")
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CannotLoad("model_broken", f"The model's {path.name} cannot be read.") from error
    if not isinstance(value, dict):
        raise CannotLoad("model_broken", f"The model's {path.name} is no JSON object.")
    return value


def _weight_files(folder: Path) -> list[Path]:
    if (folder / _WEIGHTS).is_file():
        return [folder / _WEIGHTS]
    if not (folder / _INDEX).is_file():
        return []
    weight_map = _read_json(folder / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CannotLoad("model_broken", f"The model's {_INDEX} names no files.")
    return [folder / name for name in sorted({str(name) for name in weight_map.values()})]


def _check_weights(file: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np"):  # reads the header and holds it against the size
            pass
    except FileNotFoundError as error:
        raise CannotLoad("model_broken", "A weights file of the model is missing.") from error
    except (SafetensorError, OSError) as error:
        raise CannotLoad(
            "model_broken", "The model's weights are cut off or damaged; copy them again."
        ) from error
