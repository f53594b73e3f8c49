"""The Open Inference Protocol V2, with the binary extension, as Triton's and KServe's clients ask.

One model, of one version; one input tensor ``inputs`` of BYTES, a text (or a file) each, or of the
numbers of sounds and images; one output tensor ``outputs``. The parameters of the request are those
of the task.

Laws
- A request is always a list: n elements in, n answers out, whatever n is.
- An answer is the JSON that a list at ``POST /`` holds for it, as BYTES. Where the parameters make
  each answer one vector, ``outputs`` is FP32 of the shape [n, width].
- Samples and pixels become files, and travel as any other file does: their answer and their limits
  are those of the file.
- Token numbers are refused, with words: they mean something only to the tokenizer that made them,
  and the house knows only its own.
- Everything else (admission, deadline, queue, counting) is as at ``POST /``.
"""

from __future__ import annotations

from service.http.oip.dialect import Oip
from service.http.oip.pages import PLACES, infer_paths, unknown_model

__all__ = ["PLACES", "Oip", "infer_paths", "unknown_model"]
