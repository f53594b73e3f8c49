"""Where predictions are asked for: each address and its dialect.

Laws
- Every POST to one of these addresses is a prediction request and ends in one outcome; one that
  names another model is one too, and ends as ``not_found``.
- Nothing is looked up twice: the name of the model is known at the start, so are the addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from starlette.types import ASGIApp

from service.core.errors import Refused, problem
from service.http.api import Predict
from service.http.context import HttpContext
from service.http.dialect import Dialect, Plain
from service.http.oip import Oip, infer_paths, unknown_model
from service.http.openai import EMBEDDINGS, Embeddings, other_task

_INFER = re.compile(r"/v2/models/[^/]+(?:/versions/[^/]+)?/infer")


def dialects(context: HttpContext) -> dict[str, Dialect]:
    """Every address at which this server predicts."""
    found: dict[str, Dialect] = {"/": Plain()}
    found |= dict.fromkeys(infer_paths(context), Oip())
    if context.serves_embeddings:
        found[EMBEDDINGS] = Embeddings()
    return found


class Predictions:
    """The addresses: which are predictions, and who serves them.

    Iterating gives those that are served.

    Args:
        context: of the server.
    """

    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._served: dict[str, ASGIApp] = {
            path: Predict(context, dialect) for path, dialect in dialects(context).items()
        }

    def __contains__(self, path: object) -> bool:
        """Whether a POST to it is a prediction request."""
        if path in self._served or path == EMBEDDINGS:
            return True
        return isinstance(path, str) and _INFER.fullmatch(path) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._served)

    def __len__(self) -> int:
        return len(self._served)

    def at(self, path: str) -> ASGIApp:
        """Who serves it.

        Raises:
            Refused: ``not_found``, since it is of another model or another task.
        """
        app = self._served.get(path)
        if app is not None:
            return app
        if path == EMBEDDINGS:
            raise Refused(other_task(self._context))
        if _INFER.fullmatch(path):
            raise Refused(unknown_model(self._context))
        raise Refused(problem("not_found"))
