"""What a process says of itself to those who operate it: health, readiness and metrics, on a port of its own."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from libs.process.service import Service

Metrics = Callable[[], tuple[bytes, str]]
"""Renders the metrics of this process: (text, content type)."""

_JSON: Final = "application/json"


def ops_app(services: Callable[[], Sequence[Service]], metrics: Metrics) -> Starlette:
    """An application with `/healthz`, `/readyz` and `/metrics`. Asks nobody who they are: keep it off public networks.

    `services` are those that this process serves now. `/readyz` is 503 while there is none, or one that is not ready,
    and says of each what it cannot use.
    """

    async def healthz(_request: Request) -> Response:
        return _json({"status": "ok"})

    async def readyz(_request: Request) -> Response:
        served = services()
        found = await asyncio.gather(*(service.ready() for service in served))
        ready = bool(found) and all(each.ok for each in found)
        names = {service.name: asdict(each) for service, each in zip(served, found, strict=True)}
        return _json({"status": "ready" if ready else "not_ready", "services": names}, status=200 if ready else 503)

    async def metricsz(_request: Request) -> Response:
        content, content_type = metrics()
        return Response(content, headers={"content-type": content_type})

    return Starlette(
        routes=[
            Route("/healthz", healthz, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
            Route("/metrics", metricsz, methods=["GET"]),
        ]
    )


def _json(value: object, *, status: int = 200) -> Response:
    return Response(json.dumps(value) + "\n", status_code=status, media_type=_JSON)
