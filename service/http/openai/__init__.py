"""What the ``openai`` client asks of a model that makes vectors: ``POST /v1/embeddings``.

Laws
- The vector of a text is what the model's folder says (``pooling`` = ``model`` of the task), and
  nobody else's: another name than the model's is 404.
- An input is text. Token numbers are refused, with words: they are another tokenizer's.
- Everything else (admission, deadline, queue, counting) is as at ``POST /``.
"""

from __future__ import annotations

from service.http.openai.embeddings import Embeddings
from service.http.openai.pages import EMBEDDINGS, PLACES, other_task

__all__ = ["EMBEDDINGS", "PLACES", "Embeddings", "other_task"]
