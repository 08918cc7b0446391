"""Inbound events: what came, and having it handed on again. For administrators: a payload may be anybody's."""

import asyncio
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query

from contracts.base import Principal
from contracts.commands import DeliverEvent, ReplayEvent
from contracts.replies import EventRouted as Routed
from minutebook.models import DeliverRequest, EventRouted, EventSummary, EventView, Page
from services.api import cursors
from services.api.door import PREFIX, SECURED, Caller, DoorRoute, TheDoor, command_id_of, require_administrator
from services.api.event_views import followed
from services.api.parameters import PAGE_LIMIT, Cursor, IdempotencyKey, Limit, Text
from services.api.problems import documented

router: Final = APIRouter(prefix=PREFIX, tags=["events"], route_class=DoorRoute, dependencies=SECURED)

_CHANGE: Final = documented(400, 401, 403, 404, 409, 413, 415, 422, 503)


@router.get("/events", responses=documented(401, 403, 422, 503))
async def list_events(
    caller: Caller,
    door: TheDoor,
    source: Annotated[Text | None, Query(description="id of the event source")] = None,
    unmatched: Annotated[bool | None, Query(description="true: those that nothing followed from")] = None,
    limit: Limit = PAGE_LIMIT,
    cursor: Cursor = None,
) -> Page[EventSummary]:
    """Inbound events of the tenant group, newest first."""
    _for_administrators(caller)
    after = None
    if cursor is not None:
        received_at, event_id = cursors.decode(cursor, cursors.instant, UUID)
        after = (received_at, event_id)
    found = await door.queries.events(caller, source=source, unmatched=unmatched, limit=limit + 1, after=after)
    page = found[:limit]
    more = cursors.encode(page[-1].received_at, page[-1].event_id) if len(found) > limit else None
    return Page(items=tuple(page), next_cursor=more)


@router.get("/events/{event_id}", responses=documented(401, 403, 404, 422, 503))
async def get_event(event_id: UUID, caller: Caller, door: TheDoor) -> EventView:
    """An inbound event with what it carried, and what followed each time that it was handed on."""
    _for_administrators(caller)
    view, takers = await asyncio.gather(door.events.view(caller, event_id), door.queries.takers(caller, event_id))
    return view.model_copy(update={"taken_by": takers, "unmatched": None if takers else view.unmatched})


@router.post("/events/{event_id}/replay", responses=_CHANGE)
async def replay_event(
    event_id: UUID, caller: Caller, door: TheDoor, idempotency_key: IdempotencyKey = None
) -> EventRouted:
    """Route an event again, by what is declared and waits now. It starts no workflow twice."""
    _for_administrators(caller)
    await door.queries.require_event(caller, event_id)
    command_id = command_id_of(caller, idempotency_key, event_id, "replay")
    command = ReplayEvent(**await door.opening(caller, command_id=command_id), inbound_id=event_id)
    return _shown(await door.ask(command, Routed))


@router.post("/events/{event_id}/deliver", responses=_CHANGE)
async def deliver_event(
    event_id: UUID, body: DeliverRequest, caller: Caller, door: TheDoor, idempotency_key: IdempotencyKey = None
) -> EventRouted:
    """Hand an event to a run's waiting step, whatever that step asks for."""
    _for_administrators(caller)
    await door.queries.require_event(caller, event_id)
    await door.queries.require_run(caller, body.run_id)
    command_id = command_id_of(caller, idempotency_key, event_id, body.run_id, body.step)
    command = DeliverEvent(
        **await door.opening(caller, command_id=command_id), inbound_id=event_id, run_id=body.run_id, step=body.step
    )
    return _shown(await door.ask(command, Routed))


def _for_administrators(caller: Principal) -> None:
    require_administrator(caller, "event.not_yours", "inbound events are read and handed on")


def _shown(routed: Routed) -> EventRouted:
    return EventRouted(event_id=routed.inbound_id, **followed(routed))
