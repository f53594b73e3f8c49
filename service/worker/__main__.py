"""``python -P -m service.worker FD PARENT_PID``: one worker on an inherited socket.

Laws
- It never outlives the front: the kernel kills it with its parent, the parent is checked after
  that is arranged (it may have died before), and the end of the socket ends it as well.
- SIGTERM and SIGINT are the front's to act on: whoever sends them to all processes must not stop a
  batch while the front drains. A terminal's Ctrl-C does not come here: the front starts its workers
  in a process group of their own, since this code is still being imported when one may be pressed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys

_PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def main(arguments: list[str]) -> int:
    """Serve until the socket ends.

    Args:
        arguments: the socket's file descriptor and the parent's process id.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    descriptor, parent = int(arguments[0]), int(arguments[1])
    if os.getppid() != parent:
        return 0
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    from service.worker.quiet import silence

    silence()

    from service.worker.runner import Runner

    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)  # a process that model code starts must not keep it open
    sock.settimeout(None)
    return Runner(sock).serve()


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # Daemon threads may be inside native code: interpreter shutdown would wait or crash there.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
