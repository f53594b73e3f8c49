"""What a client sent as bytes, opened: the one place where a medium's decoder is chosen.

Laws
- Decoders come in with the first medium of their kind: a text task imports none of them.
- A decoder takes bytes and nothing else, so that no name of a file or host can reach one.
"""

from __future__ import annotations

from service.tasks import Task
from service.tasks.media import Json
from service.worker.interface import Foreign


def opened(value: Json, task: Task) -> Foreign:
    """The input with every ``bytes`` in it decoded, within the task's own limits.

    Raises:
        Unsuitable: it is not what it should be, or too large; named by its decoder.
    """
    if isinstance(value, bytes):
        return _open(value, task)
    if isinstance(value, dict):
        return {name: opened(part, task) for name, part in value.items()}
    if isinstance(value, list):
        return [opened(part, task) for part in value]
    return value


def _open(data: bytes, task: Task) -> Foreign:
    if task.media == "image":
        from service.worker.pictures import open_image

        return open_image(data, task.max_pixels)
    # A sound is decoded at the model's rate and of a film only the frames that it looks at: their
    # pipelines do it.
    return data


def kept_bytes(value: Foreign) -> int:
    """What keeping an opened input costs, beside its texts."""
    if isinstance(value, dict):
        return sum(map(kept_bytes, value.values()))
    if isinstance(value, list):
        return sum(map(kept_bytes, value))
    if hasattr(value, "getbands"):  # a picture, a byte for each pixel and colour
        width, height = value.size
        return int(width * height * len(value.getbands()))
    return int(getattr(value, "nbytes", 0))
