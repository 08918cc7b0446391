"""Effects."""

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query

from minutebook.models import EffectView, Page
from minutebook.models.states import EffectState
from services.api import cursors
from services.api.door import PREFIX, SECURED, Caller, DoorRoute, TheDoor
from services.api.parameters import PAGE_LIMIT, Cursor, Limit
from services.api.problems import documented

router: Final = APIRouter(prefix=PREFIX, tags=["effects"], route_class=DoorRoute, dependencies=SECURED)


@router.get("/effects", responses=documented(401, 403, 422, 503))
async def list_effects(
    caller: Caller,
    door: TheDoor,
    state: Annotated[EffectState | None, Query(description="`in_doubt` for those that a person must settle")] = None,
    limit: Limit = PAGE_LIMIT,
    cursor: Cursor = None,
) -> Page[EffectView]:
    """Writes of runs that the caller may see, in a stable order."""
    after = None
    if cursor is not None:
        (after,) = cursors.decode(cursor, UUID)
    found = await door.queries.effect_ids(caller, state=state, limit=limit + 1, after=after)
    effects = await door.views.effects(caller, found[:limit])
    return Page(
        items=tuple(effects[effect_id] for effect_id in found[:limit] if effect_id in effects),
        next_cursor=cursors.encode(found[limit - 1]) if len(found) > limit else None,
    )
