"""Users, for administrators."""

from typing import Final
from uuid import UUID

from fastapi import APIRouter

from minutebook.models import Page, PersonalFact, RegisterUserRequest, UserView
from services.api.door import PREFIX, SECURED, Caller, DoorRoute, TheDoor, require_administrator
from services.api.parameters import PAGE_LIMIT, Cursor, Limit
from services.api.problems import documented

router: Final = APIRouter(prefix=PREFIX, tags=["users"], route_class=DoorRoute, dependencies=SECURED)

_NOT_YOURS: Final = "user.not_yours"


@router.get("/users", responses=documented(401, 403, 422, 503))
async def list_users(caller: Caller, door: TheDoor, limit: Limit = PAGE_LIMIT, cursor: Cursor = None) -> Page[UserView]:
    """Users of the tenant group, in order of their email."""
    require_administrator(caller, _NOT_YOURS, "users are listed")
    return await door.people.page(caller, limit=limit, cursor=cursor)


@router.post("/users", status_code=201, responses=documented(400, 401, 403, 409, 413, 415, 422, 503))
async def register_user(body: RegisterUserRequest, caller: Caller, door: TheDoor) -> UserView:
    """Register a person or a service user. The same again changes nothing."""
    require_administrator(caller, _NOT_YOURS, "users are registered")
    return await door.people.register(caller, body)


@router.post("/users/{user_id}/deactivate", responses=documented(400, 401, 403, 404, 409, 413, 415, 422, 503))
async def deactivate_user(user_id: UUID, caller: Caller, door: TheDoor) -> UserView:
    """End a user for good: their tokens and grants count no more, and nothing is written for their runs."""
    require_administrator(caller, _NOT_YOURS, "users are deactivated")
    return await door.people.deactivate(caller, user_id)


@router.get("/users/{user_id}/history", responses=documented(401, 403, 404, 422, 503))
async def get_user_history(
    user_id: UUID, caller: Caller, door: TheDoor, limit: Limit = PAGE_LIMIT, cursor: Cursor = None
) -> Page[PersonalFact]:
    """What was changed of a user: by whom, and what it was before and after."""
    require_administrator(caller, _NOT_YOURS, "what was changed of users is shown")
    return await door.people.facts(caller, user_id, limit=limit, cursor=cursor)
