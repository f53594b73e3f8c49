"""Media as tensors of numbers: which a task takes, and the file that each item of one becomes.

=========  ================  =========================================  =======================
input      datatype          shape                                      becomes
=========  ================  =========================================  =======================
a sound    FP32, INT16       ``[n]``, ``[items, n]``                    a WAV of these samples
an image   UINT8             ``[h, w, 3]``, ``[items, h, w, 3]``        a PNG of these pixels
=========  ================  =========================================  =======================

Laws
- A file holds the numbers as they came, so that an answer is that of the same sound or picture.
- Limits of length, rate and size are those of files, and asked where files are: in the worker.
- An input that is more than one medium (a picture and a question) is no tensor of numbers; nor is a
  text: token numbers mean something only to the tokenizer that made them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.tasks.base import Task
from service.tasks.files import png, wav
from service.tasks.media import Medium

ANY = -1
"""An axis of any length."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """One kind of tensor.

    Attributes:
        datatype: by the name of the Open Inference Protocol.
        code: of its numbers in ``array``.
        item: shape of one item, :data:`ANY` where it is free.
        says: what to send.
    """

    datatype: str
    code: str
    item: tuple[int, ...]
    says: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of several items."""
        return (ANY, *self.item)

    @property
    def is_sound(self) -> bool:
        """Whether it needs a rate."""
        return len(self.item) == 1

    def items_of(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """The shape with its items as first axis, ``None`` if it is another kind's."""
        whole = (1, *shape) if len(shape) == len(self.item) else tuple(shape)
        if len(whole) != len(self.shape):
            return None
        fits = all(wanted in (ANY, axis) for axis, wanted in zip(whole, self.shape, strict=True))
        return whole if fits else None

    def files(self, data: bytes, shape: Sequence[int], rate_hz: int) -> list[bytes]:
        """The files of the items.

        Args:
            data: the numbers, little-endian, row after row.
            shape: as :meth:`items_of` gives it.
            rate_hz: of sounds.
        """
        each = len(data) // shape[0]
        items = [data[at : at + each] for at in range(0, each * shape[0], each)]
        if self.is_sound:
            return [wav(item, rate_hz, floating=self.code == "f") for item in items]
        return [png(item, shape[2], shape[1]) for item in items]


_SOUND = "[n] for n samples of a sound, or [m, n] for m sounds"
_IMAGE = (
    "[height, width, 3] for the red, green and blue of an image, or [m, height, width, 3] for m "
    "images"
)

_BY_MEDIUM: Mapping[Medium, tuple[Numbers, ...]] = {
    "audio": (Numbers("FP32", "f", (ANY,), _SOUND), Numbers("INT16", "h", (ANY,), _SOUND)),
    "image": (Numbers("UINT8", "B", (ANY, ANY, 3), _IMAGE),),
}


def numbers_of(task: Task) -> tuple[Numbers, ...]:
    """The tensors of numbers that a task takes."""
    return () if task.structured else _BY_MEDIUM.get(task.media, ())
