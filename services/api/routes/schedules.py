"""Schedules: the lines by which definitions start runs, and when they do so next."""

import re
from datetime import datetime, timedelta
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query

from contracts.commands import PauseSchedule, ResumeSchedule
from contracts.replies import ScheduleChanged as Changed
from libs.domain.slots import moment, read
from libs.language.cron import Slot
from minutebook.models import Page, ScheduleChanged, ScheduleView, SlotView
from minutebook.models.states import ScheduleState
from services.api import cursors
from services.api.door import PREFIX, SECURED, Caller, DoorRoute, TheDoor
from services.api.parameters import PAGE_LIMIT, Cursor, Limit, Text
from services.api.problems import documented
from services.api.queries import ScheduleLine

router: Final = APIRouter(prefix=PREFIX, tags=["schedules"], route_class=DoorRoute, dependencies=SECURED)

NEXT_SHOWN: Final = 5

_INTERVAL: Final = re.compile(r"every (\d+) s")

_CHANGE: Final = documented(400, 401, 403, 404, 409, 413, 415, 422, 503)


@router.get("/schedules", responses=documented(401, 403, 422, 503))
async def list_schedules(
    caller: Caller,
    door: TheDoor,
    definition: Annotated[Text | None, Query(description="id of the definition")] = None,
    state: Annotated[ScheduleState | None, Query(description="one state")] = None,
    limit: Limit = PAGE_LIMIT,
    cursor: Cursor = None,
) -> Page[ScheduleView]:
    """Schedules of the tenant group with their next firings, in order of their definition."""
    after = None
    if cursor is not None:
        name, stream_id = cursors.decode(cursor, cursors.name, UUID)
        after = (name, stream_id)
    found = await door.queries.schedules(caller, definition_id=definition, state=state, limit=limit + 1, after=after)
    now = await door.clock.now()
    page = found[:limit]
    more = cursors.encode(page[-1].definition_id, page[-1].stream_id) if len(found) > limit else None
    return Page(items=tuple(_view(line, now) for line in page), next_cursor=more)


@router.post("/schedules/{schedule_id}/pause", responses=_CHANGE)
async def pause_schedule(schedule_id: UUID, caller: Caller, door: TheDoor) -> ScheduleChanged:
    """Start no runs by a schedule until it is resumed."""
    await door.queries.require_schedule(caller, schedule_id)
    return _shown(await door.ask(PauseSchedule(**await door.opening(caller), schedule_id=schedule_id), Changed))


@router.post("/schedules/{schedule_id}/resume", responses=_CHANGE)
async def resume_schedule(schedule_id: UUID, caller: Caller, door: TheDoor) -> ScheduleChanged:
    """Let a schedule start runs again. What it would have started meanwhile is not made up for."""
    await door.queries.require_schedule(caller, schedule_id)
    return _shown(await door.ask(ResumeSchedule(**await door.opening(caller), schedule_id=schedule_id), Changed))


def _view(line: ScheduleLine, now: datetime) -> ScheduleView:
    return ScheduleView(
        schedule_id=line.stream_id,
        definition_id=line.definition_id,
        line=line.line,
        timezone=line.timezone,
        state=line.state,
        next=_next(line, now) if line.state == "active" else (),
        last_run=line.last_run,
    )


def _next(line: ScheduleLine, now: datetime) -> tuple[SlotView, ...]:
    """The firings to come. A line or a zone that cannot be read any more has none, and spoils no list."""
    interval = _INTERVAL.fullmatch(line.line)
    if interval is not None:
        due_at = _due_again(line, timedelta(seconds=int(interval[1])))
        slots: tuple[Slot, ...] = () if due_at is None else (moment(max(due_at, now), line.timezone),)
    else:
        cron = read(line.line, line.timezone)
        slots = () if cron is None else cron.upcoming(NEXT_SHOWN, now)
    return tuple(SlotView(at=slot.due_at, local=slot.local) for slot in slots)


def _due_again(line: ScheduleLine, every: timedelta) -> datetime | None:
    """When an interval fires next: so long after its last run has ended, once the clock looks; None while it runs."""
    if line.wake_at is None or (line.last_run is not None and line.last_run_ended_at is None):
        return None
    return line.wake_at if line.last_run_ended_at is None else max(line.wake_at, line.last_run_ended_at + every)


def _shown(changed: Changed) -> ScheduleChanged:
    return ScheduleChanged(schedule_id=changed.schedule_id, state=changed.state)
