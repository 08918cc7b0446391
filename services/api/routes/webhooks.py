"""Webhooks."""

from typing import Any, Final

from fastapi import APIRouter, Request, Response

from minutebook.models import DeliveryAccepted
from services.api import webhooks
from services.api.door import SECURED, TheDoor
from services.api.problems import documented

PATH: Final = "/api/public/workflows/events/{source}"

router: Final = APIRouter(tags=["events"])

_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "JSON as the source's adapter reads it; a source with a secret signs the raw body",
        "content": {
            "application/json": {
                "schema": {"type": "object"},
                "examples": {
                    "generic": {"value": {"event": "ticket.ready", "external_id": "4711", "keys": {"ticket": "T-1"}}}
                },
            }
        },
    },
    "security": [{}, {"token": []}, {"api_key": []}],
}


@router.post(
    PATH,
    status_code=202,
    response_model=DeliveryAccepted,
    response_model_exclude_none=True,
    responses={
        200: {"model": DeliveryAccepted, "description": "The delivery was stored before."},
        **documented(400, 401, 403, 404, 413, 422, 429, 503),
    },
    dependencies=SECURED,
    openapi_extra=_BODY,
)
async def deliver(source: str, request: Request, response: Response, door: TheDoor) -> DeliveryAccepted:
    """Deliver an event of a declared source. A source without a secret takes a token of its tenant group instead."""
    accepted = await webhooks.receive(door, request, source)
    if accepted.status == "duplicate":
        response.status_code = 200
    return accepted
