"""API keys: who may ask for predictions, where a key file is configured.

The file has one key a line; empty lines and lines that begin with ``#`` say nothing.

Laws
- Keys are compared in constant time, all of them each time.
- The file is read again when it changes; one that cannot be read, or holds no key, changes
  nothing: the keys in force stay.
- A key is never logged and never answered.
"""

from __future__ import annotations

import hmac
from pathlib import Path

from service.http.context import Call

_SCHEME = b"bearer"


class KeyFile:
    """The keys of one file.

    Args:
        path: of the file.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds no key.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._seen = self._look()
        self._keys = _parse(self._path.read_bytes())
        if not self._keys:
            raise ValueError("the file holds no key")

    def admits(self, call: Call) -> bool:
        """Whether the request carries one of the keys."""
        self._refresh()
        scheme, _, given = call.headers.get(b"authorization", b"").partition(b" ")
        if b"authorization" in call.repeated or scheme.lower() != _SCHEME:
            return False
        given = given.strip()
        matches = [hmac.compare_digest(given, key) for key in self._keys]
        return any(matches)

    def _look(self) -> tuple[int, int, int]:
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _refresh(self) -> None:
        try:
            seen = self._look()
            if seen == self._seen:
                return
            keys = _parse(self._path.read_bytes())
        except OSError:
            return  # being replaced, perhaps: the next request looks again
        self._seen = seen
        self._keys = keys or self._keys


def _parse(text: bytes) -> tuple[bytes, ...]:
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith(b"#"))
