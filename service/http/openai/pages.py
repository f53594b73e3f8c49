"""Which models there are, as the ``openai`` client asks, and where its requests go."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from service import NAME
from service.core.errors import Problem, Refused, problem
from service.http import pages
from service.http.context import HttpContext
from service.http.routes import Place
from service.tasks.parameter import Json

EMBEDDINGS = "/v1/embeddings"
_PAGE = "/v1/{page}"


def other_task(context: HttpContext) -> Problem:
    """This server makes no vectors; says what it does."""
    detail = (
        f"This server's task is {context.task.name}; embeddings need one that is started with the "
        "task feature-extraction. Predictions are POST /."
    )
    return problem("not_found", detail)


def unknown_model(context: HttpContext) -> Problem:
    """There is no such model here; says which there is."""
    detail = f"This server serves one model, '{context.settings.model_name}'."
    return problem("not_found", detail)


def is_model(name: Json, context: HttpContext) -> bool:
    """Whether it names the model, with or without what stands before its last path part."""
    return isinstance(name, str) and name.rpartition("/")[2] == context.settings.model_name


def _model(context: HttpContext) -> dict[str, Json]:
    # When a model was made is not known; clients only want a number.
    return {
        "id": context.settings.model_name, "object": "model", "created": 0, "owned_by": NAME,
    }  # fmt: skip


def models(context: HttpContext, _request: Request) -> Response:
    """The one model, as a list."""
    return pages.as_json({"object": "list", "data": [_model(context)]})


def model(context: HttpContext, request: Request) -> Response:
    """The one model."""
    if not is_model(request.path_params["name"], context):
        raise Refused(unknown_model(context))
    return pages.as_json(_model(context))


PLACES: dict[str, Place] = {
    "/v1/models": Place(models, label=_PAGE),
    "/v1/models/{name:path}": Place(model, label=_PAGE),
    EMBEDDINGS: Place(None, also=("POST",), label=_PAGE),
}
