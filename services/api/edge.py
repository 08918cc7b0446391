"""The outermost layer: request ids, one span per request, and the last catch."""

import re
from http import HTTPStatus
from typing import Final

from opentelemetry.trace import Span
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.ids import mint
from libs.telemetry.logs import get_logger
from libs.telemetry.tracing import span
from services.api.problems import internal

REQUEST_ID_HEADER: Final = "x-request-id"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._\-]{1,100}")

_log = get_logger("api")


class Edge:
    """ASGI middleware round everything. A request's trace goes on from its `traceparent`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _request_id(headers)
        scope.setdefault("state", {})["request_id"] = request_id
        answered = 0

        async def sending(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        attributes = {"http.request.method": scope["method"], "minutebook.request_id": request_id}
        with span(f"api {scope['method']}", traceparent=headers.get("traceparent"), attributes=attributes) as opened:
            try:
                await self._app(scope, receive, sending)
            except ClientDisconnect:
                _log.debug("caller went away", request_id=request_id)
            except Exception:
                _log.exception("request failed", method=scope["method"], request_id=request_id)
                if answered:
                    raise
                await internal(request_id)(scope, receive, sending)
            _describe(opened, scope, answered)


def _request_id(headers: Headers) -> str:
    """The caller's own id when it is one that logs can carry, else a new one."""
    given = headers.get(REQUEST_ID_HEADER, "")
    return given if _REQUEST_ID.fullmatch(given) else str(mint())


def _describe(opened: Span, scope: Scope, status: int) -> None:
    """Name the span by the route's template, never by the path: ids would make every name unique."""
    route = getattr(scope.get("route"), "path", None)
    if route is not None:
        opened.update_name(f"api {scope['method']} {route}")
        opened.set_attribute("http.route", route)
    opened.set_attribute("http.response.status_code", status)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        opened.set_attribute("error.type", str(status))
