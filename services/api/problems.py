"""Every error leaves as an RFC 9457 problem, whoever raised it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from contracts.errors import TITLES, Broken, MinutebookError, Rejected
from libs.telemetry.logs import get_logger
from minutebook.models.problem import Problem, ProblemItem

PROBLEM_JSON: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1
ERRORS_SHOWN_MAX: Final = 100

_log = get_logger("api")

_WHEN: Final = {
    400: "The request cannot be read: the body is not strict JSON, for example.",
    401: "No token, or one that is unknown, revoked or ended.",
    403: "The caller may not do this.",
    404: "It does not exist, or not for this caller.",
    409: "What is there does not allow it any more; the problem says why.",
    413: "The body is larger than is read.",
    415: "The body is not declared as JSON.",
    422: "The request is readable but not acceptable; `errors` names each place.",
    429: "Too many at a time; send the same request again later.",
    503: "Something that is needed does not answer now; send the same request again.",
}


_EXAMPLES: Final = {
    400: ("json.invalid", "the body is no JSON: line 1 column 2"),
    401: ("auth.missing", "send a token as `Authorization: Bearer <token>` or as `x-api-key: <token>`"),
    403: ("run.not_yours", "only the run's initiator and administrators may do this"),
    404: ("run.not_found", "there is no run 0193a1f2-7c1e-7d7a-9a51-3f0b8d0c7a11"),
    409: ("run.not_open", "the run is completed; it cannot cancel any more"),
    413: ("body.too_large", "the body is larger than the 1048576 bytes that are read"),
    415: ("body.not_json", "send the body as `content-type: application/json`"),
    422: ("request.invalid", "the request is not acceptable: query.limit: Input should be less than or equal to 200"),
    429: ("admission.full", "1000 runs of release-note wait for their turn; no more are taken in"),
    503: ("ask.unanswered", "the planner does not answer; send the same request again"),
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for OpenAPI; 500 needs no mention."""
    return {status: {"description": _WHEN[status], "content": {PROBLEM_JSON: _shape(status)}} for status in statuses}


def _shape(status: int) -> dict[str, Any]:
    code, detail = _EXAMPLES[status]
    example = Problem(title=TITLES[status], status=status, code=code, detail=detail, request_id="mine-1")
    return {
        "schema": {"$ref": "#/components/schemas/Problem"},
        "example": example.model_dump(mode="json", exclude_defaults=True),
    }


def respond(problem: Problem, *, request_id: str | None = None, headers: dict[str, str] | None = None) -> Response:
    """A problem as a response."""
    more = dict(headers or {})
    if problem.status == HTTPStatus.UNAUTHORIZED:
        more["www-authenticate"] = 'Bearer realm="minutebook"'
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        more["retry-after"] = str(RETRY_AFTER_SECONDS)
    if problem.status == HTTPStatus.TOO_MANY_REQUESTS:
        more["retry-after"] = str(problem.extra.get("retry_after_seconds", RETRY_AFTER_SECONDS))
    body = problem.model_copy(update={"request_id": request_id}).model_dump_json(exclude_none=True)
    return Response(body, status_code=problem.status, headers=more, media_type=PROBLEM_JSON)


def internal(request_id: str | None) -> Response:
    """What a caller learns of a bug of ours: nothing but the id under which the log has the rest."""
    error = Broken("internal", "this should not have happened; the log has the details under this request id")
    return respond(error.problem(), request_id=request_id)


def install(app: FastAPI) -> None:
    """Answer every error of this application as a problem."""
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)


async def answer(request: Request, error: Exception) -> Response | None:
    """The problem that an error is; None for one that is a bug of ours."""
    for kind, handler in _HANDLERS.items():
        if isinstance(error, kind):
            return await handler(request, error)
    return None


def request_id_of(request: Request) -> str | None:
    """The id that the edge gave this request."""
    return getattr(request.state, "request_id", None)


async def _on_ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, MinutebookError)
    if isinstance(error, Broken):
        _log.error("request broke", code=error.code, detail=error.message, request_id=request_id_of(request))
        if error.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            return internal(request_id_of(request))
    return respond(error.problem(), request_id=request_id_of(request))


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found: Sequence[Any] = error.errors()
    if any(item["loc"][0] == "path" for item in found):
        # An id that is none names nothing: as absent as one that was never given out.
        missing = Rejected("resource.not_found", f"there is nothing at {request.url.path}", status=404)
        return respond(missing.problem(), request_id=request_id_of(request))
    items = tuple(ProblemItem(path=_path(item["loc"]), message=item["msg"]) for item in found[:ERRORS_SHOWN_MAX])
    named = "; ".join(f"{item.path}: {item.message}" for item in items[:3])
    rejected = Rejected("request.invalid", f"the request is not acceptable: {named}", errors=items)
    return respond(rejected.problem(), request_id=request_id_of(request))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    match status:
        case HTTPStatus.NOT_FOUND:
            code, detail = "route.not_found", f"there is nothing at {request.url.path}; /docs lists what there is"
        case HTTPStatus.METHOD_NOT_ALLOWED:
            code, detail = "method.not_allowed", f"{request.method} is not one of the methods of {request.url.path}"
        case _:
            code, detail = f"http.{status.value}", str(error.detail)
    problem = Problem(title=status.phrase, status=status.value, code=code, detail=detail)
    return respond(problem, request_id=request_id_of(request), headers=dict(error.headers or {}))


_HANDLERS: Final[Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]] = {
    MinutebookError: _on_ours,
    RequestValidationError: _on_validation,
    HTTPException: _on_http,
}


def _path(location: Sequence[str | int]) -> str:
    """Where a value stands: in the body from its root (`context.jira_key`), else with its place (`query.limit`)."""
    place, rest = location[0], [str(part) for part in location[1:]]
    if place == "body":
        return ".".join(rest) or "body"
    return ".".join([str(place), *rest])
