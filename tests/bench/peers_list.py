"""The peers: what each is installed from, how it is started, and what it wants to be asked.

=========  ===========================================  ===================================
peer       what gathers its batches                     its cap
=========  ===========================================  ===================================
litserve   up to 16 texts, or 10 ms                     none
mosec      up to 16 texts, or 10 ms                     requests in its queue, else 429
bentoml    up to 16 texts, the wait sized by itself     requests inside a worker, else 429
ray        up to 16 texts, or 10 ms                     requests in its queue, else 503
mlserver   up to 16 texts, or 10 ms                     none
=========  ===========================================  ===================================
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.peers_load import Shape
from tests.bench.peers_servers.knobs import TIMEOUT_S, WAIT_MS, Knobs

ROOM = "tests.bench.peers_servers"


@dataclass(frozen=True, slots=True)
class Peer:
    """One server that is not ours.

    Attributes:
        name: for people and for ``--only``.
        requirement: what it is installed from.
        shape: what a request looks like.
        command: its words after the interpreter's, given its settings and a folder of its own.
        cap: whether the number of requests inside can be bounded.
        besides: what it does not run without although it does not ask for it.
    """

    name: str
    requirement: str
    shape: Shape
    command: Callable[[Knobs, Path], list[str]]
    cap: bool = False
    besides: tuple[str, ...] = ()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _litserve(_: Knobs, __: Path) -> list[str]:
    return ["-m", f"{ROOM}.with_litserve"]


def _mosec(knobs: Knobs, _: Path) -> list[str]:
    words = ["-m", f"{ROOM}.with_mosec", "--address", "127.0.0.1", "--port", str(knobs.port)]
    words += ["--timeout", str(1000 * TIMEOUT_S)]
    return [*words, "--capacity", str(knobs.cap)] if knobs.cap else words


def _bentoml(knobs: Knobs, _: Path) -> list[str]:
    where = ["--host", "127.0.0.1", "--port", str(knobs.port)]
    return ["-m", "bentoml", "serve", f"{ROOM}.with_bentoml:FillMask", *where]


def _ray(_: Knobs, __: Path) -> list[str]:
    return ["-m", f"{ROOM}.with_ray"]


def _mlserver(knobs: Knobs, folder: Path) -> list[str]:
    server = {
        "debug": False, "host": "127.0.0.1", "http_port": knobs.port, "grpc_port": free_port(),
        "metrics_port": free_port(), "parallel_workers": knobs.workers,
        "metrics_dir": str(folder / "metrics"),
    }  # fmt: skip
    model = {
        "name": "fill-mask", "implementation": f"{ROOM}.with_mlserver.FillMask",
        "max_batch_size": knobs.batch, "max_batch_time": WAIT_MS / 1000,
    }  # fmt: skip
    (folder / "settings.json").write_text(json.dumps(server))
    (folder / "model-settings.json").write_text(json.dumps(model))
    return ["-m", "mlserver.cli.main", "start", str(folder)]


_TEXT = (b'{"text": "', b'"}')
_TEXTS = (b'{"texts": ["', b'"]}')
_TENSOR = (
    b'{"inputs": [{"name": "texts", "shape": [1], "datatype": "BYTES", "data": ["',
    b'"]}]}',
)

PEERS = (
    Peer("litserve", "litserve==0.2.19", Shape("/predict", *_TEXT), _litserve),
    Peer("mosec", "mosec==0.9.8", Shape("/inference", *_TEXT), _mosec, cap=True),
    Peer("bentoml", "bentoml==1.4.40", Shape("/fill", *_TEXTS), _bentoml, cap=True),
    Peer("ray", "ray[serve]==2.60.0", Shape("/", *_TEXT), _ray, cap=True),
    Peer(
        "mlserver", "mlserver==1.7.1", Shape("/v2/models/fill-mask/infer", *_TENSOR), _mlserver,
        besides=("uvloop<0.22",),  # its workers ask for a loop that newer ones no longer make
    ),
)  # fmt: skip
