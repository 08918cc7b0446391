"""Grants: users' credentials for MCP servers. They come in by a request's body and go out to nobody."""

from typing import Final
from uuid import UUID

from fastapi import APIRouter

from minutebook.models import GiveGrantRequest, GrantView, Page
from services.api.door import PREFIX, SECURED, Caller, DoorRoute, TheDoor, command_id_of
from services.api.parameters import PAGE_LIMIT, Cursor, IdempotencyKey, Limit
from services.api.problems import documented

router: Final = APIRouter(prefix=PREFIX, tags=["grants"], route_class=DoorRoute, dependencies=SECURED)


@router.get("/grants", responses=documented(401, 403, 422, 503))
async def list_grants(
    caller: Caller, door: TheDoor, limit: Limit = PAGE_LIMIT, cursor: Cursor = None
) -> Page[GrantView]:
    """The caller's own grants, and for an administrator everybody's, in order of their server."""
    return await door.grants.page(caller, limit=limit, cursor=cursor)


@router.post("/grants", status_code=201, responses=documented(400, 401, 403, 404, 409, 413, 415, 422, 503))
async def give_grant(
    body: GiveGrantRequest, caller: Caller, door: TheDoor, idempotency_key: IdempotencyKey = None
) -> GrantView:
    """Let runs that one owns write to a server with one's own credential. Another one takes the place of the first."""
    command_id = command_id_of(caller, idempotency_key, "grant", body.server, body.user or "")
    return await door.grants.give(caller, body, command_id=command_id)


@router.delete("/grants/{grant_id}", responses=documented(400, 401, 403, 404, 413, 415, 422, 503))
async def revoke_grant(grant_id: UUID, caller: Caller, door: TheDoor) -> GrantView:
    """End a grant: no write that begins from now on is made with it, and the credential is deleted."""
    return await door.grants.revoke(caller, grant_id)
