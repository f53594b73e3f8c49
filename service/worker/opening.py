"""What a client sent as bytes, opened: the one place where a medium's decoder is chosen.

Laws
- Decoders come in with the first medium of their kind: a text task imports none of them.
- A decoder takes bytes and nothing else, so that no name of a file or host can reach one.
"""

from __future__ import annotations

from service.tasks.media import Json, Medium
from service.worker.interface import Foreign


def opened(value: Json, medium: Medium) -> Foreign:
    """The input with every ``bytes`` in it decoded.

    Raises:
        Unsuitable: it is not what it should be, or too large; named by its decoder.
    """
    if isinstance(value, bytes):
        return _open(value, medium)
    if isinstance(value, dict):
        return {name: opened(part, medium) for name, part in value.items()}
    if isinstance(value, list):
        return [opened(part, medium) for part in value]
    return value


def _open(data: bytes, medium: Medium) -> Foreign:
    if medium == "image":
        from service.worker.pictures import open_image

        return open_image(data)
    raise NotImplementedError(medium)
