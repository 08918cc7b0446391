"""Dead letters: what services gave up on. For administrators: it says what went wrong inside."""

from typing import Final
from uuid import UUID

from fastapi import APIRouter

from minutebook.models import DeadLetterView, Page
from services.api import cursors
from services.api.door import PREFIX, SECURED, Caller, DoorRoute, TheDoor, require_administrator
from services.api.parameters import PAGE_LIMIT, Cursor, Limit
from services.api.problems import documented

router: Final = APIRouter(prefix=PREFIX, tags=["dead letters"], route_class=DoorRoute, dependencies=SECURED)


@router.get("/dead-letters", responses=documented(401, 403, 422, 503))
async def list_dead_letters(
    caller: Caller, door: TheDoor, limit: Limit = PAGE_LIMIT, cursor: Cursor = None
) -> Page[DeadLetterView]:
    """Messages about streams of the tenant group that a service gave up on, the one that failed last first."""
    require_administrator(caller, "dead_letter.not_yours", "dead letters are read")
    after = None
    if cursor is not None:
        last_at, letter_id = cursors.decode(cursor, cursors.instant, UUID)
        after = (last_at, letter_id)
    found = await door.letters.read(tenant_group=caller.tenant_group, after=after, limit=limit + 1)
    page = found[:limit]
    return Page(
        items=tuple(
            DeadLetterView(
                letter_id=letter.id,
                service=letter.service,
                durable=letter.durable,
                subject=letter.subject,
                stream_id=letter.stream_id,
                code=letter.code,
                message=letter.message,
                tries=letter.tries,
                first_at=letter.first_at,
                last_at=letter.last_at,
            )
            for letter in page
        ),
        next_cursor=cursors.encode(page[-1].last_at, page[-1].id) if len(found) > limit else None,
    )
