"""The OpenAPI 3.1 document of what is served."""

from __future__ import annotations

from service import NAME
from service.core.errors import ERRORS
from service.http.openapi import clients
from service.http.openapi.answers import HEADERS, SCHEMAS, Described, responses
from service.http.openapi.operation import Operation
from service.http.openapi.operations import OPERATIONS, TAGS
from service.http.openapi.served import Served

OPENAPI = "3.1.0"
SCHEME = "key"
"""The name of the security scheme, where keys are configured."""


def document(served: Served) -> Described:
    """The description of the API as JSON values."""
    paths: dict[str, Described] = {}
    for (path, method), describe in OPERATIONS.items():
        operation = describe(served)
        if operation is not None:
            paths.setdefault(path, {})[method] = _operation(operation, served)
    components: Described = {"schemas": SCHEMAS | clients.SCHEMAS, "headers": HEADERS}
    if served.keyed:
        says = "One of the server's API keys."
        components["securitySchemes"] = {
            SCHEME: {"type": "http", "scheme": "bearer", "description": says}
        }
    return {
        "openapi": OPENAPI,
        "info": {
            "title": NAME.capitalize(),
            "version": served.version,
            "summary": f"{served.settings.model_name} · {served.task.name}",
            "description": _says(),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "./"}],
        "tags": [{"name": name, "description": says} for name, says in TAGS.items()],
        "paths": paths,
        "components": components,
    }


def _says() -> str:
    moved = ERRORS["method_not_allowed"].status
    return (
        "A request is let in if it can be answered in time and refused at once if not; a refusal"
        " that may be tried again says when. HEAD works wherever GET does, another method is"
        f" {moved}, another path {ERRORS['not_found'].status}, and every refusal is"
        " application/problem+json with a code."
    )


def _operation(operation: Operation, served: Served) -> Described:
    behind_key = operation.keyed and served.keyed
    refusals = (*operation.refusals, *(("unauthorized",) if behind_key else ()))
    made: Described = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
    }
    if operation.says:
        made["description"] = operation.says
    if behind_key:
        made["security"] = [{SCHEME: []}]
    if operation.parameters:
        made["parameters"] = list(operation.parameters)
    if operation.body is not None:
        made["requestBody"] = operation.body
    made["responses"] = responses(operation.answers, refusals, operation.problem)
    return made
