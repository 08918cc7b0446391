"""The description that the API gives of itself: what FastAPI derives, with our one problem shape in it."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from minutebook.models.problem import Problem
from services.api.edge import REQUEST_ID_HEADER

DESCRIPTION = """Runs of agent workflows that people decide on, and the record that proves it.

Every error is a problem of RFC 9457 (`application/problem+json`) with a stable `code`. Instants are RFC 3339 with a
zone, money is in integer microdollars, durations have their unit in their name. Lists are paged with opaque cursors.
Every response has `x-request-id`: the caller's own, or a new one."""


def install(app: FastAPI) -> None:
    """Make `app.openapi()` answer the complete description."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]  # FastAPI's own way to extend it


def _describe(app: FastAPI) -> dict[str, Any]:
    description = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    _, problems = models_json_schema([(Problem, "serialization")], ref_template="#/components/schemas/{model}")
    schemas = description["components"]["schemas"]
    schemas.update(problems["$defs"])
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    header = {"description": "names the request in logs", "schema": {"type": "string"}}
    for path in description["paths"].values():
        for operation in path.values():
            for response in operation["responses"].values():
                response.setdefault("headers", {})[REQUEST_ID_HEADER] = header
    return description
