"""Notices: who was told of what, and sending one again; and the channels that they go out by."""

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query

from contracts.commands import RetryNotice
from contracts.replies import NoticeChanged as Changed
from minutebook.models import ChannelView, NoticeChanged, NoticeView, Page
from minutebook.models.states import NoticeState
from services.api import cursors
from services.api.door import PREFIX, SECURED, Caller, DoorRoute, TheDoor, command_id_of, require_administrator
from services.api.parameters import PAGE_LIMIT, Cursor, IdempotencyKey, Limit, Text
from services.api.problems import documented

router: Final = APIRouter(prefix=PREFIX, tags=["notices"], route_class=DoorRoute, dependencies=SECURED)


@router.get("/notices", responses=documented(401, 403, 422, 503))
async def list_notices(
    caller: Caller,
    door: TheDoor,
    run: Annotated[UUID | None, Query(description="only about this run, its decisions and its writes")] = None,
    state: Annotated[list[NoticeState] | None, Query(description="these states; repeated")] = None,
    channel: Annotated[Text | None, Query(description="id of the channel")] = None,
    limit: Limit = PAGE_LIMIT,
    cursor: Cursor = None,
) -> Page[NoticeView]:
    """What people were told, newest first: of runs that the caller sees; everything for administrators."""
    after = cursors.decode(cursor, cursors.instant, UUID) if cursor is not None else None
    found = await door.notice_views.page(
        caller,
        run_id=run,
        states=state,
        channel=channel,
        limit=limit + 1,
        after=None if after is None else (after[0], after[1]),
    )
    page = found[:limit]
    return Page(
        items=tuple(await door.notice_views.views(caller, [notice_id for _, notice_id in page])),
        next_cursor=cursors.encode(*page[-1]) if len(found) > limit else None,
    )


@router.post("/notices/{notice_id}/retry", responses=documented(400, 401, 403, 404, 409, 413, 415, 422, 503))
async def retry_notice(
    notice_id: UUID, caller: Caller, door: TheDoor, idempotency_key: IdempotencyKey = None
) -> NoticeChanged:
    """Send a notice once more that failed or is in doubt. For administrators; an e-mail may be read twice then."""
    require_administrator(caller, "notice.not_yours", "notices are sent again")
    await door.notice_views.require(caller, notice_id)
    opening = await door.opening(caller, command_id=command_id_of(caller, idempotency_key, notice_id, "retry"))
    changed = await door.ask(RetryNotice(**opening, notice_id=notice_id), Changed)
    return NoticeChanged(notice_id=changed.notice_id, state=changed.state)


@router.get("/channels", responses=documented(401, 403, 422, 503))
async def list_channels(
    caller: Caller, door: TheDoor, limit: Limit = PAGE_LIMIT, cursor: Cursor = None
) -> Page[ChannelView]:
    """The channels of the tenant group, in order of id. For administrators."""
    require_administrator(caller, "notice.not_yours", "channels are looked at")
    (after,) = cursors.decode(cursor, cursors.name) if cursor is not None else ("",)
    found = [channel for channel in await door.notice_views.channels(caller) if channel.id > after]
    more = cursors.encode(found[limit - 1].id) if len(found) > limit else None
    return Page(items=tuple(found[:limit]), next_cursor=more)
