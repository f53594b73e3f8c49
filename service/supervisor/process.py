"""One worker process from its start to its end: exec, socketpair, output, exit status.

``supervisor`` decides what to do about it; this room only carries it.

Laws
- Started by exec with a clean environment: no secret of the front, no open file but its socket.
- Its input is empty; what it prints is read to the end, or it would block on a full pipe. However
  much it prints, few lines are looked at and logged, with paths cut to their last three parts.
- Its last words count: what it sent before it ended is heard before its end is reported.
- It cannot outlive the front: it dies with its parent (PR_SET_PDEATHSIG) and at end of file.
- Whatever it sends is decoded by type; anything else is reported once as broken.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from service.logs import get_log
from service.worker import wire
from service.worker.framing import Splitter, WireError
from service.worker.wire import FromWorker, ToWorker

KEPT = ("PATH", "HOME", "USER", "LANG", "TMPDIR", "TZ", "PYTHONPATH", "HTTPS_PROXY", "NO_PROXY")
KEPT_PREFIXES = (
    "LC_", "HF_", "TRANSFORMERS_", "TORCH", "PYTORCH_", "CUDA_", "NVIDIA_", "LD_", "OMP_", "MKL_",
    "KMP_", "OPENBLAS_", "MALLOC_", "XDG_", "SSL_", "COVERAGE_", "REQUESTS_",
)  # fmt: skip
"""What a worker may need of the environment; the front's keys and settings are not among it."""

SECRET = re.compile(r"(^|_)(KEY|KEYS|SECRET|SECRETS|TOKEN|TOKENS|PASSWORD|CREDENTIALS?)($|_)")
HUB_TOKENS = (
    "HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_DISABLE_IMPLICIT_TOKEN",
)  # fmt: skip
"""The one secret that a worker may need: who loads a hub model may need the hub's token."""

EXIT_S = 0.5
"""Between the end of a process and that of its socket; whichever comes second should be near."""

PATH = re.compile(r"(?<![\w:/])(?:/[^/\s\"':]+)+(?=(?:/[^/\s\"':]+){3})/")
"""The beginning of a path of the machine, all but its last three parts."""

LINE_BYTES = 300
READ_BYTES = 65_536
LINES_A_SECOND = 20
"""What is logged of a worker's output: enough to see a crash, too little to flood."""


def environment(environ: Mapping[str, str], threads: int, *, hub: bool = False) -> dict[str, str]:
    """The environment of a worker; what the operator set himself stays, but for secrets.

    Args:
        environ: the front's.
        threads: intra-op threads, where nothing else is set.
        hub: whether the model is one of the hub, which may need a token.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if (name in KEPT or name.startswith(KEPT_PREFIXES)) and not SECRET.search(name)
    }
    if hub:
        kept |= {name: environ[name] for name in HUB_TOKENS if name in environ}
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        kept.setdefault(name, str(threads))
    kept.setdefault("RAYON_NUM_THREADS", "1")
    kept["TOKENIZERS_PARALLELISM"] = "false"
    kept["HF_HUB_DISABLE_TELEMETRY"] = "1"
    kept["PYTHONUNBUFFERED"] = "1"
    return kept


class WorkerProcess(asyncio.Protocol):
    """One process.

    Args:
        on_frame: called with each frame.
        on_broken: called once when what it sends is no frame, or it closed its socket.
        on_exit: called once with its return code (negative: the signal).
        index: the worker's place, for the log.
    """

    def __init__(
        self,
        index: int,
        on_frame: Callable[[FromWorker], None],
        on_broken: Callable[[], None],
        on_exit: Callable[[int], None],
    ) -> None:
        self._index = index
        self._on_frame = on_frame
        self._on_broken = on_broken
        self._on_exit = on_exit
        self._splitter = Splitter()
        self._transport: asyncio.Transport | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._code: int | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._silent = False
        self._output = b""
        self._lines = 0
        self._window = 0.0
        self.exited = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._popen.pid if self._popen and not self.exited.is_set() else None

    async def start(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Run ``command`` with the socket's number and our process id as its last arguments.

        Raises:
            OSError: it cannot be started.
        """
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # Ours, and it returns as soon as the new process has exec'ed (2 ms).
                self._popen = subprocess.Popen(  # noqa: ASYNC220, S603
                    [*command, str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=dict(env),
                    pass_fds=[theirs.fileno()],
                    process_group=0,  # a terminal's Ctrl-C is the front's to act on
                )
            except OSError:
                ours.close()
                raise
        if self._popen.stdout is not None:
            os.set_blocking(self._popen.stdout.fileno(), False)
            loop.add_reader(self._popen.stdout.fileno(), self._read_output)
        self._pidfd = os.pidfd_open(self._popen.pid)
        loop.add_reader(self._pidfd, self._exit)
        ours.setblocking(False)  # noqa: FBT003  the standard library's signature
        await loop.connect_accepted_socket(lambda: self, ours)

    def send(self, frame: ToWorker) -> None:
        """Send one frame; nothing happens once the process is gone or silenced."""
        if self._transport is not None and not self._silent:
            self._transport.write(wire.encode(frame))

    def kill(self) -> None:
        """End it now; no frame of it is heard any more."""
        self._silent = True
        if self._popen is not None and not self.exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                self._popen.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close its socket: it ends by itself at end of file."""
        self._silent = True
        if self._transport is not None:
            self._transport.close()

    # ------------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is ours."""
        # not isinstance: uvloop's transports are no subclasses of asyncio's
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Decode what arrived."""
        try:
            for body in self._splitter.feed(data):
                if self._silent:
                    return
                self._on_frame(wire.decode_from_worker(body))
        except WireError:
            self._break()

    def eof_received(self) -> bool:
        """It closed its socket; its exit follows, or it is broken."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The socket is gone: without an exit the process is worth nothing."""
        self._transport = None
        if self._code is not None:
            self._finish(self._code)
        elif not self.exited.is_set():
            self._patience = asyncio.get_running_loop().call_later(EXIT_S, self._break)

    def _break(self) -> None:
        if not self._silent and not self.exited.is_set():
            self._silent = True
            self._on_broken()

    # ------------------------------------------------------------------ output and exit

    def _exit(self) -> None:
        """It has ended; its socket may still hold what it said before."""
        if self._popen is None:
            return
        self._code = self._popen.wait()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        if self._patience is not None:
            self._patience.cancel()
        if self._transport is None or self._silent:
            self._finish(self._code)
        else:  # its end of file comes, unless a child of it holds the socket
            self._patience = loop.call_later(EXIT_S, self._finish, self._code)

    def _finish(self, code: int) -> None:
        if self.exited.is_set() or self._popen is None:
            return
        if self._patience is not None:
            self._patience.cancel()
        if self._popen.stdout is not None:
            self._read_output()
            self._log([self._output])
            asyncio.get_running_loop().remove_reader(self._popen.stdout.fileno())
            self._popen.stdout.close()
        self._silent = True
        self.exited.set()
        if self._transport is not None:
            self._transport.close()
        self._on_exit(code)

    def _read_output(self) -> None:
        if self._popen is None or self._popen.stdout is None:
            return
        fd = self._popen.stdout.fileno()
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(fd)
            return
        *lines, self._output = (self._output + data).split(b"\n")
        self._output = self._output[-LINE_BYTES:]
        self._log(lines)

    def _log(self, lines: Sequence[bytes]) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._window >= 1.0:
            self._window, self._lines = now, 0
        for line in filter(bytes.strip, lines):
            if self._lines >= LINES_A_SECOND:
                return
            self._lines += 1
            text = line[:LINE_BYTES].decode("utf-8", "replace")
            clean = "".join(char if char.isprintable() else " " for char in text).strip()
            clean = PATH.sub("", clean)
            if clean:
                get_log().warning("worker.output", worker=self._index, line=clean)
