"""An answer becomes JSON bytes here, once; the front only splices them.

Laws
- numpy scalars and arrays and tensors are taken as the numbers they hold.
- A picture becomes PNG in base64, and so does a mask, which is a matrix of booleans: as numbers it
  would be a hundred times as long.
- JSON knows no NaN and no infinity: an answer that holds one gives no bytes, which means the
  item's own ``model_error``. A denormal is a number and stays one.
"""

from __future__ import annotations

import math

import msgspec

from service.worker.interface import Answer

_MATRIX = 2


def _plain(value: Answer) -> Answer:
    if _is_picture(value):
        from service.worker.pictures import as_png

        return as_png(value)
    tolist = getattr(value, "tolist", None)  # numpy scalar or array, torch tensor
    if tolist is None:
        raise TypeError("not a number")
    return tolist()


def _is_picture(value: Answer) -> bool:
    """By its looks: neither library is imported here."""
    if type(value).__module__.startswith("PIL."):
        return True
    return str(getattr(value, "dtype", "")) == "bool" and value.ndim == _MATRIX


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def encode_answer(answer: Answer) -> bytes:
    """JSON bytes of one answer, empty if a number in it is not finite.

    Raises:
        TypeError: the answer holds something that JSON cannot carry.
    """
    encoded = _encoder.encode(answer)
    # The encoder writes NaN and infinities as null. Most answers hold no null at all, so that
    # looking closer (a null may be a None, or a word of the text) is rare.
    if b"null" in encoded and not _all_finite(answer):
        return b""
    return encoded


def _all_finite(value: Answer) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(_all_finite(part) for part in value.values())
    if isinstance(value, list | tuple):
        return all(_all_finite(part) for part in value)
    if hasattr(value, "tolist") and not _is_picture(value):
        return _all_finite(value.tolist())
    return True
