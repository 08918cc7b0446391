"""Delegations: who lets whom decide in their place."""

from typing import Final
from uuid import UUID

from fastapi import APIRouter

from minutebook.models import DelegateRequest, DelegationView, Page
from services.api.door import PREFIX, SECURED, Caller, DoorRoute, TheDoor, command_id_of
from services.api.parameters import PAGE_LIMIT, Cursor, IdempotencyKey, Limit
from services.api.problems import documented

router: Final = APIRouter(prefix=PREFIX, tags=["decisions"], route_class=DoorRoute, dependencies=SECURED)


@router.get("/delegations", responses=documented(401, 403, 422, 503))
async def list_delegations(
    caller: Caller, door: TheDoor, limit: Limit = PAGE_LIMIT, cursor: Cursor = None
) -> Page[DelegationView]:
    """Delegations from and to the caller, and for an administrator everybody's, also those that are over."""
    return await door.delegations.page(caller, limit=limit, cursor=cursor)


@router.post("/delegations", status_code=201, responses=documented(400, 401, 403, 404, 409, 413, 415, 422, 503))
async def delegate(
    body: DelegateRequest, caller: Caller, door: TheDoor, idempotency_key: IdempotencyKey = None
) -> DelegationView:
    """Let a person decide in one's place until a moment. What they answer is recorded as theirs, for the other one."""
    command_id = command_id_of(caller, idempotency_key, "delegation", body.to_user, body.from_user or "")
    return await door.delegations.give(caller, body, command_id=command_id)


@router.delete("/delegations/{delegation_id}", responses=documented(400, 401, 403, 404, 409, 413, 415, 422, 503))
async def end_delegation(delegation_id: UUID, caller: Caller, door: TheDoor) -> DelegationView:
    """End a delegation before its time. It counts no more within 2 s."""
    return await door.delegations.end(caller, delegation_id)
