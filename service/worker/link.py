"""The worker's end of the socket: whole frames in, whole frames out.

Laws
- Three threads send; one lock keeps their frames whole.
- The end of the socket ends the process, at once and from the reader's own thread, whatever the
  model's thread is doing. So does a front that breaks the protocol.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from socket import socket
from threading import Lock

from service.worker.framing import Splitter, WireError
from service.worker.wire import (
    FromWorker,
    ToWorker,
    decode_to_worker,
    encode,
)

_RECEIVE_BYTES = 256 * 1024

EXIT_ENDED = 0
"""The front closed the socket."""
EXIT_BROKEN_WIRE = 4
"""The front broke the protocol."""


class Link:
    """One connected, blocking socket.

    Args:
        sock: owned from now on.
        ended: takes the exit code when the socket is at its end; ends the process.
    """

    def __init__(self, sock: socket, ended: Callable[[int], None] = os._exit) -> None:
        self._sock = sock
        self._ended = ended
        self._sending = Lock()

    def read(self, take: Callable[[ToWorker], None]) -> None:
        """Hand on every frame until the end; the reader thread's whole life."""
        splitter = Splitter()
        try:
            while data := self._sock.recv(_RECEIVE_BYTES):
                for body in splitter.feed(data):
                    take(decode_to_worker(body))
        except OSError:
            self._ended(EXIT_ENDED)  # a reset is an end like another
        except WireError:
            self._ended(EXIT_BROKEN_WIRE)
        else:
            self._ended(EXIT_ENDED)

    def send(self, frame: FromWorker) -> None:
        """Send one frame whole.

        Raises:
            WireError: it is larger than a frame may be; nothing was sent.
        """
        data = encode(frame)
        try:
            with self._sending:
                self._sock.sendall(data)
        except OSError:
            self._ended(EXIT_ENDED)
