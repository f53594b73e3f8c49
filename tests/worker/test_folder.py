"""A wrong model setting is found without torch, each way with its own sentence."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants

from service.worker.interface import CannotLoad
from service.worker.pipelines.folder import check_folder, find_folder
from tests.worker.line import PACKAGED, failure


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the packaged model to break."""
    copy = tmp_path / "model"
    shutil.copytree(PACKAGED, copy)
    return copy


class Marks:
    """Unpickling it writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (Path.write_text, (self.marker, "executed"))


def refused(folder: Path) -> CannotLoad:
    """The refusal of a folder."""
    with pytest.raises(CannotLoad) as caught:
        check_folder(folder)
    return caught.value


def test_packaged_model_is_whole() -> None:
    """The packaged model passes, and its configuration is returned."""
    assert find_folder(PACKAGED, "", trust_remote_code=False) == Path(PACKAGED)
    assert check_folder(Path(PACKAGED))["architectures"] == ["BertForMaskedLM"]


@pytest.mark.parametrize("model", ["/no/such/folder", "./no-such", "~/no-such-folder", "a b", ""])
def test_no_folder(model: str) -> None:
    """A path that is not there is no hub id."""
    with pytest.raises(CannotLoad, match="model_not_found"):
        find_folder(model, "", trust_remote_code=False)


def test_file_is_no_folder(tmp_path: Path) -> None:
    """A file in the place of the folder is refused too."""
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(CannotLoad, match="model_not_found"):
        find_folder(str(file), "", trust_remote_code=False)


def test_no_config(folder: Path) -> None:
    """Without its configuration a folder is no model."""
    (folder / "config.json").unlink()
    assert "config.json" in refused(folder).message


@pytest.mark.parametrize("text", ["", "{", "[]", "\ud83d".encode("utf-8", "surrogatepass")])
def test_broken_config(folder: Path, text: str | bytes) -> None:
    """A configuration that is no JSON object is named."""
    (folder / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    refusal = refused(folder)
    assert refusal.reason == "model_broken"
    assert "config.json" in refusal.message


@pytest.mark.parametrize("size", [0, 4, 100, 5000, 29_699_223])
def test_cut_off_weights(folder: Path, size: int) -> None:
    """Weights that end too early, down to the last byte, are damaged."""
    with (folder / "model.safetensors").open("rb+") as file:
        file.truncate(size)
    refusal = refused(folder)
    assert refusal.reason == "model_broken"
    assert "cut off" in refusal.message


def test_no_weights(folder: Path) -> None:
    """A folder without any weights says what is missing."""
    (folder / "model.safetensors").unlink()
    refusal = refused(folder)
    assert refusal.reason == "model_broken"
    assert "model.safetensors" in refusal.message


def test_shards(folder: Path) -> None:
    """An index leads to its files; each of them must be there and whole."""
    index = folder / "model.safetensors.index.json"
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    check_folder(folder)
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "gone"}}))
    assert "missing" in refused(folder).message
    index.write_text(json.dumps({"weight_map": {}}))
    assert "names no files" in refused(folder).message


def test_pickle_is_never_opened(folder: Path, tmp_path: Path) -> None:
    """Weights as a pickle are refused by name; the code in them does not run."""
    marker = tmp_path / "marker"
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Marks(marker)))
    failed = failure(str(folder))
    assert failed.reason == "pickle_only"
    assert "safetensors" in failed.message
    assert not marker.exists()
    pickle.loads((folder / "pytorch_model.bin").read_bytes())  # noqa: S301 - it would have run
    assert marker.exists()


@pytest.mark.parametrize("what", ["missing", "no_config", "cut_off"])
def test_process_says_why_at_once(folder: Path, what: str) -> None:
    """A worker process refuses such a folder without loading torch first, and ends."""
    if what == "missing":
        shutil.rmtree(folder)
    elif what == "no_config":
        (folder / "config.json").unlink()
    else:
        with (folder / "model.safetensors").open("rb+") as file:
            file.truncate(1_000_000)
    failed = failure(str(folder))
    assert failed.reason == ("model_not_found" if what == "missing" else "model_broken")
    assert re.fullmatch(r"[A-Z][^\n/]*\.", failed.message)
    assert str(folder) not in str(failed)


def test_hub_id_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub id that is not cached is refused without the network where that is forbidden."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CannotLoad, match="hub_unreachable") as caught:
        find_folder("nobody/no-such-model", "", trust_remote_code=False)
    assert "HF_HUB_OFFLINE" in caught.value.message


def test_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub that does not answer is its own reason."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(CannotLoad, match="hub_unreachable"):
        find_folder("nobody/no-such-model", "", trust_remote_code=False)


def test_cached_hub_id_needs_no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub id that is in the local cache is found there, without a connection."""
    snapshot = tmp_path / "models--somebody--small" / "snapshots" / ("0" * 40)
    shutil.copytree(PACKAGED, snapshot)
    refs = tmp_path / "models--somebody--small" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    download = huggingface_hub.snapshot_download

    def local(*args: Any, local_files_only: bool, **options: Any) -> str:
        assert local_files_only, "the network was asked"
        return str(download(*args, local_files_only=True, **options))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", local)
    assert find_folder("somebody/small", "", trust_remote_code=False) == snapshot
    assert find_folder("somebody/small", "main", trust_remote_code=False) == snapshot
