"""Health and metadata of the protocol, and where its requests go.

A probe answers as ``/livez`` and ``/readyz`` do, by status and by a JSON object.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from service import NAME
from service.core.errors import Problem, Refused, problem
from service.http import pages
from service.http.context import HttpContext
from service.http.oip.inputs import INPUTS
from service.http.oip.request import OUTPUTS
from service.http.routes import Place
from service.tasks.numbers import numbers_of
from service.tasks.parameter import Json

VERSION = "1"
"""Of the one model; a process never serves another."""

_MODEL = "/v2/models/{name}"
_VERSIONED = "/v2/models/{name}/versions/{version}"
_HEALTH, _PAGE = "/v2/health/{probe}", "/v2/{page}"
_POST_ONLY = Place(None, also=("POST",), label=_PAGE)


def infer_paths(context: HttpContext) -> tuple[str, str]:
    """The addresses of inference, with and without a version."""
    name = context.settings.model_name
    places = (_MODEL, _VERSIONED)
    bare, versioned = (place.format(name=name, version=VERSION) for place in places)
    return f"{bare}/infer", f"{versioned}/infer"


def unknown_model(context: HttpContext) -> Problem:
    """There is no such model here; says which there is."""
    name = context.settings.model_name
    detail = f"This server serves one model, '{name}', of the version {VERSION}."
    return problem("not_found", detail)


def _known(context: HttpContext, request: Request) -> None:
    params = request.path_params
    same = params["name"] == context.settings.model_name
    if not same or params.get("version", VERSION) != VERSION:
        raise Refused(unknown_model(context))


def live(context: HttpContext, _request: Request) -> Response:
    """As ``/livez``."""
    return pages.probe(pages.is_alive(context), "live")


def ready(context: HttpContext, _request: Request) -> Response:
    """As ``/readyz``."""
    return pages.probe(pages.readiness(context)[0], "ready")


def model_ready(context: HttpContext, request: Request) -> Response:
    """As ``/readyz``, for the one model."""
    _known(context, request)
    named: dict[str, Json] = {"name": context.settings.model_name}
    return pages.probe(pages.readiness(context)[0], "ready", named)


def server(context: HttpContext, _request: Request) -> Response:
    """What this is."""
    return pages.as_json(
        {"name": NAME, "version": context.version, "extensions": ["binary_tensor_data"]}
    )


def model(context: HttpContext, request: Request) -> Response:
    """What the model takes and gives."""
    _known(context, request)
    return pages.as_json(
        {
            "name": context.settings.model_name,
            "versions": [VERSION],
            "platform": "transformers_safetensors",
            "inputs": _inputs(context),
            "outputs": [{"name": OUTPUTS, "datatype": "BYTES", "shape": [-1]}],
        }
    )


def _inputs(context: HttpContext) -> list[Json]:
    """What the one input may be: BYTES, or else one of the kinds of numbers."""
    found: list[Json] = [{"name": INPUTS, "datatype": "BYTES", "shape": [-1]}]
    rate_hz = context.dispatcher.int_facts.get("rate_hz", 0)
    for kind in numbers_of(context.task):
        tensor: dict[str, Json] = {
            "name": INPUTS,
            "datatype": kind.datatype,
            "shape": [*kind.shape],
        }
        if kind.is_sound and rate_hz:
            tensor["parameters"] = {"sampling_rate": rate_hz}
        found.append(tensor)
    return found


PLACES: dict[str, Place] = {
    "/v2": Place(server, label=_PAGE),
    "/v2/health/live": Place(live, label=_HEALTH),
    "/v2/health/ready": Place(ready, label=_HEALTH),
    _MODEL: Place(model, label=_PAGE),
    f"{_MODEL}/ready": Place(model_ready, label=_HEALTH),
    f"{_MODEL}/infer": _POST_ONLY,
    _VERSIONED: Place(model, label=_PAGE),
    f"{_VERSIONED}/ready": Place(model_ready, label=_HEALTH),
    f"{_VERSIONED}/infer": _POST_ONLY,
}
"""Open to everybody, as other probes and pages are; a prediction wants a key where there are."""
