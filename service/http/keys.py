"""API keys: who may ask for predictions, where a key file is configured.

How the file is written stands in ``settings/keyfile``.

Laws
- Only digests are kept, so that no bug can tell a key. They are compared in constant time, all of
  them each time.
- The file is read again when it changes. One that cannot be read, holds no key or a broken digest
  changes nothing: the keys in force stay.
- A key is never logged and never answered; whose request it is, is known by the digest's beginning.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import TYPE_CHECKING

from service.http.context import Call
from service.settings.keyfile import digest_of, digests_in

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_SCHEME = b"bearer"
_HOLDER_BYTES = 12


class KeyFile:
    """The keys of one file.

    Args:
        path: of the file.
        log: is told when the file has changed, never what it holds.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds no key, or a digest that is none.
    """

    def __init__(self, path: str | Path, log: FilteringBoundLogger) -> None:
        self._path = Path(path)
        self._log = log
        self._seen = self._look()
        self._digests = digests_in(self._path.read_bytes())

    def holder(self, call: Call) -> str | None:
        """Whose key the request carries: a name that tells nothing of it; ``None`` without one."""
        self._refresh()
        scheme, _, given = call.headers.get(b"authorization", b"").partition(b" ")
        if b"authorization" in call.repeated or scheme.lower() != _SCHEME:
            return None
        digest = digest_of(given.strip())
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return f"key {digest[:_HOLDER_BYTES].hex()}" if any(matches) else None

    def _look(self) -> tuple[int, int, int]:
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _refresh(self) -> None:
        try:
            seen = self._look()
            if seen == self._seen:
                return
            digests = digests_in(self._path.read_bytes())
        except OSError:
            return  # being replaced, perhaps: the next request looks again
        except ValueError:
            self._seen = seen
            self._log.warning("keys.unusable")
            return
        self._seen, self._digests = seen, digests
        self._log.info("keys.read", keys=len(digests))
