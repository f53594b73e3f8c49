"""The file of API keys, as it is written.

=====================  ===================================================================
a line of the file     says
=====================  ===================================================================
empty, or ``# …``      nothing
``sha256:HEX``         a key by its SHA-256 digest, so that the file holds no secret
anything else          a key as it is sent
=====================  ===================================================================

Only digests leave this module. A fast digest is enough for what nobody can guess: a key should be
random, and no word.
"""

from __future__ import annotations

import hashlib
import re

_PREFIX = b"sha256:"
_DIGEST = re.compile(rb"sha256:([0-9A-Fa-f]{64})")


def digest_of(key: bytes) -> bytes:
    """The digest by which a key is known."""
    return hashlib.sha256(key).digest()


def digests_in(text: bytes) -> tuple[bytes, ...]:
    """The digests of all keys of a file.

    Raises:
        ValueError: it holds no key, or a digest that is none.
    """
    lines = (line.strip() for line in text.splitlines())
    digests = tuple(_digest(line) for line in lines if line and not line.startswith(b"#"))
    if not digests:
        raise ValueError("the file holds no key")
    return digests


def _digest(line: bytes) -> bytes:
    if not line.startswith(_PREFIX):
        return digest_of(line)
    match = _DIGEST.fullmatch(line)
    if match is None:
        raise ValueError("a sha256: line of the file needs 64 hexadecimal digits")
    return bytes.fromhex(match[1].decode())
