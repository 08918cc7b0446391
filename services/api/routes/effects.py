"""Effects: the writes of runs, and how operators settle those in doubt."""

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query

from contracts.commands import ProbeEffect, SettleEffect
from contracts.errors import Rejected
from contracts.replies import EffectChanged
from minutebook.models import EffectSettled, EffectView, Page, SettleRequest
from minutebook.models.states import EffectState
from services.api import cursors
from services.api.door import (
    PREFIX,
    SECURED,
    Caller,
    DoorRoute,
    TheDoor,
    command_id_of,
)
from services.api.parameters import PAGE_LIMIT, Cursor, IdempotencyKey, Limit
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


@router.get("/effects/{effect_id}", responses=documented(401, 403, 404, 422, 503))
async def get_effect(effect_id: UUID, caller: Caller, door: TheDoor) -> EffectView:
    """A write of a run that the caller may see."""
    await door.queries.require_effect(caller, effect_id)
    found = await door.views.effects(caller, [effect_id])
    if effect_id not in found:
        raise Rejected("effect.not_found", f"there is no effect {effect_id}", status=404)
    return found[effect_id]


@router.post("/effects/{effect_id}/settle", responses=documented(400, 401, 403, 404, 409, 413, 415, 422, 503))
async def settle_effect(
    effect_id: UUID, body: SettleRequest, caller: Caller, door: TheDoor, idempotency_key: IdempotencyKey = None
) -> EffectSettled:
    """Say what became of a write in doubt, once. For administrators; not before its last call is over everywhere."""
    await door.queries.require_effect(caller, effect_id)
    command_id = command_id_of(caller, idempotency_key, "settle", effect_id, body.verdict, str(body.arm))
    command = SettleEffect(
        **await door.opening(caller, command_id=command_id),
        effect_id=effect_id,
        verdict=body.verdict,
        arm=body.arm,
        reference=body.reference,
        comment=body.comment,
    )
    return _settled(await door.ask(command, EffectChanged))


@router.post("/effects/{effect_id}/probe", responses=documented(400, 401, 403, 404, 409, 413, 415, 422, 503))
async def probe_effect(
    effect_id: UUID, caller: Caller, door: TheDoor, idempotency_key: IdempotencyKey = None
) -> EffectSettled:
    """Ask the target now whether a write in doubt is there, as its connector's `probe` says. For administrators."""
    await door.queries.require_effect(caller, effect_id)
    command_id = command_id_of(caller, idempotency_key, "probe", effect_id)
    command = ProbeEffect(**await door.opening(caller, command_id=command_id), effect_id=effect_id)
    return _settled(await door.ask(command, EffectChanged))


def _settled(changed: EffectChanged) -> EffectSettled:
    return EffectSettled(**changed.model_dump())
