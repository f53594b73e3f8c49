"""Log lines on their way out: a bounded queue and one thread that may block.

Laws
- :meth:`LineWriter.put` never waits for the reader of the log. When the queue is full the line is
  lost and counted.
- Lines leave in the order of their arrival, whole, and nobody else writes between them.
- The end waits a short, fixed time for what is queued; then the rest is lost.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable

MOST_LINES = 4096
"""About half a minute of a busy server's lines."""

MOST_BYTES = 4 * 1024 * 1024
FLUSH_LIMIT_S = 1.0
_CHUNK_BYTES = 64 * 1024
"""The size of a pipe on Linux: more at once only makes the bookkeeping coarser."""

_RETRY_S = 1.0


class LineWriter:
    """Writes lines to a file descriptor without ever making the caller wait.

    Args:
        fd: where lines go; stays open.
        on_drop: told how many lines were lost; called on any thread, must not wait.
    """

    def __init__(self, fd: int, on_drop: Callable[[int], None]) -> None:
        self._fd = fd
        self._on_drop = on_drop
        self._lines: deque[bytes] = deque()
        self._nbytes = 0
        self._closed = False
        self._changed = threading.Condition()
        # A daemon: a reader that never comes must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Queue one line (with its line break), or lose it."""
        with self._changed:
            full = len(self._lines) >= MOST_LINES or self._nbytes + len(line) > MOST_BYTES
            lost = full or self._closed
            if not lost:
                self._lines.append(line)
                self._nbytes += len(line)
                self._changed.notify()
        if lost:
            self._on_drop(1)

    def close(self, limit_s: float = FLUSH_LIMIT_S) -> bool:
        """Take no more lines and wait at most ``limit_s`` for those queued; True if all are out."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while chunk := self._take():
            self._write(chunk)

    def _take(self) -> list[bytes]:
        """The next lines, about a pipe's worth; none at the end."""
        with self._changed:
            while not self._lines and not self._closed:
                self._changed.wait()
            chunk: list[bytes] = []
            size = 0
            while self._lines and size < _CHUNK_BYTES:
                line = self._lines.popleft()
                size += len(line)
                chunk.append(line)
            self._nbytes -= size
            return chunk

    def _write(self, lines: list[bytes]) -> None:
        rest = memoryview(b"".join(lines))
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                # Somebody who shares the descriptor made it non-blocking.
                select.select([], [self._fd], [], _RETRY_S)
            except OSError:
                # The reader is gone or the disk is full: lost, and the next lines may get through.
                self._on_drop(max(1, bytes(rest).count(b"\n")))
                return
