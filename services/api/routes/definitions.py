"""Definitions."""

from typing import Final

from fastapi import APIRouter

from contracts import ids
from contracts.commands import SyncDefinitions
from contracts.errors import Rejected
from contracts.replies import DefinitionsSynced
from contracts.subjects import DEFINITIONS_BYTES_MAX
from libs.domain.access import is_administrator
from minutebook.models import DefinitionSummary, DefinitionView, Page, SyncedView, SyncRequest, SyncResult
from services.api import cursors
from services.api.door import PREFIX, SECURED, Caller, DoorRoute, TheDoor
from services.api.parameters import PAGE_LIMIT, Cursor, Limit
from services.api.problems import documented

router: Final = APIRouter(prefix=PREFIX, tags=["definitions"], route_class=DoorRoute, dependencies=SECURED)


@router.get("/definitions", responses=documented(401, 403, 422, 503))
async def list_definitions(
    caller: Caller, door: TheDoor, limit: Limit = PAGE_LIMIT, cursor: Cursor = None
) -> Page[DefinitionSummary]:
    """Workflows of the caller's tenant group, in order of id."""
    after = None
    if cursor is not None:
        (after,) = cursors.decode(cursor, cursors.name)
    found = await door.queries.definition_ids(caller, limit=limit + 1, after=after)
    shown = await door.views.definitions(caller, [stream_id for stream_id, _ in found[:limit]])
    return Page(
        items=tuple(shown[stream_id] for stream_id, _ in found[:limit] if stream_id in shown),
        next_cursor=cursors.encode(found[limit - 1][1]) if len(found) > limit else None,
    )


@router.get("/definitions/{definition_id}", responses=documented(401, 403, 404, 422, 503))
async def get_definition(definition_id: str, caller: Caller, door: TheDoor) -> DefinitionView:
    """The version of a workflow that new runs take."""
    stream_id = ids.definition(caller.tenant_group, definition_id)
    return await door.views.definition(caller, stream_id, definition_id)


@router.put("/definitions", responses=documented(400, 401, 403, 409, 413, 415, 422, 503))
async def sync_definitions(body: SyncRequest, caller: Caller, door: TheDoor) -> SyncResult:
    """Declare the files of a `definitions/` folder. For administrators. All problems come at once, or all is stored."""
    if not is_administrator(caller):
        raise Rejected("definition.not_yours", "definitions are synced by administrators", status=403)
    size = sum(len(path.encode()) + len(text.encode()) for path, text in body.files.items())
    if size > DEFINITIONS_BYTES_MAX:
        raise Rejected(
            "body.too_large",
            f"the files have {size} bytes together; at most {DEFINITIONS_BYTES_MAX} are taken",
            status=413,
        )
    command = SyncDefinitions(**await door.opening(caller), files=body.files)
    result = await door.ask(command, DefinitionsSynced)
    return SyncResult(synced=tuple(SyncedView(**thing.model_dump()) for thing in result.synced))
