"""Definitions and their versions."""

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Query

from contracts.base import Principal
from contracts.commands import InspectServers, PromoteDefinition, ServerListing, SyncDefinitions
from contracts.errors import Rejected, Unavailable
from contracts.replies import DefinitionChanged, DefinitionsSynced, ServersInspected
from contracts.subjects import DEFINITIONS_BYTES_MAX
from minutebook.models import (
    DefinitionDiff,
    DefinitionPromoted,
    DefinitionSummary,
    DefinitionView,
    Page,
    PromoteRequest,
    SyncedView,
    SyncRequest,
    SyncResult,
)
from services.api import cursors
from services.api.definition_views import named_version
from services.api.diffs import diff
from services.api.door import PREFIX, SECURED, Caller, Door, DoorRoute, TheDoor, require_administrator
from services.api.parameters import PAGE_LIMIT, Cursor, Hash, Limit
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
    shown = await door.definitions.summaries(caller, [stream_id for stream_id, _ in found[:limit]])
    return Page(
        items=tuple(shown[stream_id] for stream_id, _ in found[:limit] if stream_id in shown),
        next_cursor=cursors.encode(found[limit - 1][1]) if len(found) > limit else None,
    )


@router.get("/definitions/{definition_id}", responses=documented(401, 403, 404, 422, 503))
async def get_definition(definition_id: str, caller: Caller, door: TheDoor) -> DefinitionView:
    """The version of a workflow that new runs take, and every version that was declared."""
    return await door.definitions.view(caller, definition_id)


@router.get("/definitions/{definition_id}/diff", responses=documented(401, 403, 404, 422, 503))
async def diff_definition(
    definition_id: str,
    caller: Caller,
    door: TheDoor,
    before: Annotated[Hash | None, Query(description="hash of the one; else the version that new runs take")] = None,
    after: Annotated[Hash | None, Query(description="hash of the other; else the version declared last")] = None,
) -> DefinitionDiff:
    """Compare two versions step by step, and show the open runs of the first that stand at a step that differs."""
    return await diff(door, caller, definition_id, before=before, after=after)


@router.post("/definitions/{definition_id}/promote", responses=documented(400, 401, 403, 404, 409, 413, 415, 422, 503))
async def promote_definition(
    definition_id: str, body: PromoteRequest, caller: Caller, door: TheDoor
) -> DefinitionPromoted:
    """Let every new run take a version that was declared before: the end of a canary, or the way back."""
    version = named_version(await door.definitions.versions(caller, definition_id), body.hash)
    command = PromoteDefinition(**await door.opening(caller), definition_id=definition_id, hash=version.hash)
    changed = await door.ask(command, DefinitionChanged)
    return DefinitionPromoted(definition_id=changed.definition_id, hash=changed.hash)


@router.put("/definitions", responses=documented(400, 401, 403, 409, 413, 415, 422, 503))
async def sync_definitions(body: SyncRequest, caller: Caller, door: TheDoor) -> SyncResult:
    """Declare the files of a `definitions/` folder. For administrators. All problems come at once, or all is stored."""
    require_administrator(caller, "definition.not_yours", "definitions are synced")
    size = sum(len(path.encode()) + len(text.encode()) for path, text in body.files.items())
    if size > DEFINITIONS_BYTES_MAX:
        raise Rejected(
            "body.too_large",
            f"the files have {size} bytes together; at most {DEFINITIONS_BYTES_MAX} are taken",
            status=413,
        )
    command = SyncDefinitions(
        listings=await _listings(caller, door, body.files),
        **await door.opening(caller),
        files=body.files,
        canary_percent=body.canary_percent,
    )
    result = await door.ask(command, DefinitionsSynced)
    return SyncResult(
        synced=tuple(SyncedView(**thing.model_dump()) for thing in result.synced), warnings=result.warnings
    )


async def _listings(caller: Principal, door: Door, files: Mapping[str, str]) -> dict[str, ServerListing]:
    """What the declared servers say of their tools now. Nobody is kept from a sync by a server that is away."""
    declared = [path.removeprefix("mcp/").removesuffix(".yaml") for path in files if path.startswith("mcp/")]
    if not declared:
        return {}
    command = InspectServers(**await door.opening(caller), files={**files})
    try:
        return (await door.ask(command, ServersInspected)).listings
    except Unavailable as error:
        return {server: ServerListing(unreachable=error.message) for server in declared}
