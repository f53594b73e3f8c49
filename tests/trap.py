"""A trap for whoever opens what a client names: an address, and a file."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path


class Trap:
    """A listener that must never be contacted and a file that must never be opened.

    The file is a pipe: whoever opens it to read waits there, and is seen.
    """

    def __init__(self, folder: Path) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.file = folder / "secret.png"
        os.mkfifo(self.file)

    @property
    def names(self) -> list[str]:
        """Every way of naming either."""
        port = self.listener.getsockname()[1]
        path = str(self.file)
        near = f"127.0.0.1:{port}/x.png"
        dotted = f"/proc/self/root{path}", f"{self.file.parent}/./{self.file.name}"
        return [
            f"http://{near}", f"HTTP://{near}", f"hTTps://{near}", f"//{near}", f"ftp://{near}",
            f" http://{near}", f"http://user:word@{near}", f"http://localhost:{port}/x.wav",
            f"http://2130706433:{port}/x.png", f"http://[::ffff:127.0.0.1]:{port}/x.png",
            f"url:http://{near}", f"hf://{near}", f"s3://{near}", f"http:/{near}",
            f"data:image/png;url=http://{near}", f"data:text/html,<img src=http://{near}>",
            path, f"file://{path}", f"FILE://{path}", f"file:{path}", f"file://localhost{path}",
            f"@{path}", f"<{path}", f"{path}\x00.txt", *dotted, os.path.relpath(path),
            f"|cat {path}", f"$(cat {path})", f"{{{{open('{path}')}}}}", f"%file:{path}%",
            f'<!DOCTYPE x [<!ENTITY y SYSTEM "file://{path}">]>&y;',
            f'!!python/object/apply:open ["{path}"]', f"c__builtin__\nopen\n(V{path}\ntR.",
            f"../../../../../../../../..{path}", path.replace("/", "%2F"),
        ]  # fmt: skip

    def untouched(self) -> bool:
        """Whether nobody has come."""
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return not _somebody_reads(self.file)
        return False

    def close(self) -> None:
        """The listener ends."""
        self.listener.close()


def _somebody_reads(pipe: Path) -> bool:
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return False
    return True
