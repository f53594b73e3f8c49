"""The Kubernetes manifests as a cluster would get them, and what tests ask of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import manifests

from service.settings import Settings, load_settings
from tests.tools import require_tool

Object = dict[str, Any]

ROOTS = [path.name for path in manifests.roots()]
"""The folders that can be applied: the base and the overlays."""


@cache
def rendered(name: str) -> tuple[Object, ...]:
    """Every object of one of the roots."""
    require_tool("kubectl")
    (folder,) = (path for path in manifests.roots() if path.name == name)
    return tuple(manifests.render(folder))


def kinds(name: str) -> list[str]:
    """The kinds of a root's objects."""
    return sorted(one["kind"] for one in rendered(name))


def only(name: str, kind: str) -> Object:
    """The one object of a kind."""
    (found,) = (one for one in rendered(name) if one["kind"] == kind)
    return found


def pod(name: str) -> Object:
    """The pod that the Deployment makes."""
    template: Object = only(name, "Deployment")["spec"]["template"]
    return template


def container(name: str) -> Object:
    """The one container of the pod."""
    (found,) = pod(name)["spec"]["containers"]
    one: Object = found
    return one


def settings(name: str) -> Settings:
    """The settings that the pod's server would have."""
    variables: dict[str, str] = only(name, "ConfigMap")["data"]
    return load_settings([], variables)


def seconds(text: str) -> float:
    """A duration as the Gateway API writes it, in seconds."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0}
    unit = "ms" if text.endswith("ms") else text[-1]
    return float(text.removesuffix(unit)) * units[unit]


def size_bytes(text: str) -> int:
    """A quantity of memory in bytes."""
    return int(text[:-2]) << {"Ki": 10, "Mi": 20, "Gi": 30}[text[-2:]]


def components() -> list[Path]:
    """Every part of which overlays are made."""
    return sorted((manifests.FOLDER / "components").iterdir())
