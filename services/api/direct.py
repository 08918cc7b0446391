"""The busiest routes, answered at the edge: what lies between it and an endpoint costs as much as they do."""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from services.api import problems
from services.api.door import DoorRoute
from services.api.lean import is_lean


@dataclass(frozen=True, slots=True)
class _Way:
    methods: frozenset[str]
    path: re.Pattern[str]
    route: DoorRoute
    answer: Callable[[Request], Awaitable[Response]]


class Direct:
    """ASGI middleware that takes the requests of some lean routes, which no other route may be meant by.

    They stay in the application, which describes them, and answers what is asked of them by another method. Errors
    become the same problems.
    """

    def __init__(self, app: ASGIApp, *, routes: Iterable[DoorRoute]) -> None:
        self._app = app
        self._ways = [
            _Way(frozenset(route.methods or ()), route.path_regex, route, route.get_route_handler()) for route in routes
        ]
        assert all(is_lean(way.route.endpoint) for way in self._ways), "only those do without FastAPI's own stack"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope.get("root_path"):
            for way in self._ways:
                if scope["method"] in way.methods and (found := way.path.match(scope["path"])) is not None:
                    scope.update(route=way.route, path_params=found.groupdict())
                    response = await self._answer(way, Request(scope, receive, send))
                    await response(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    @staticmethod
    async def _answer(way: _Way, request: Request) -> Response:
        try:
            return await way.answer(request)
        except Exception as error:
            problem = await problems.answer(request, error)
            if problem is None:
                raise
            return problem
