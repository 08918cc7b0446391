"""Runs."""

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Response

from contracts import ids
from contracts.base import Principal
from contracts.commands import CancelRun, ResumeRun, RetryStep, StartRun, SuspendRun
from contracts.replies import RunChanged as Changed
from libs.ids import mint
from minutebook.models import (
    ArtifactView,
    HistoryEntry,
    Page,
    ReasonRequest,
    RunChanged,
    RunSummary,
    RunView,
    StartRunRequest,
)
from minutebook.models.states import RunState
from services.api.door import PREFIX, SECURED, Caller, Door, DoorRoute, TheDoor
from services.api.parameters import PAGE_LIMIT, Cursor, IdempotencyKey, Limit, Moment, Text
from services.api.problems import documented
from services.api.queries import RunFilter

router: Final = APIRouter(prefix=PREFIX, tags=["runs"], route_class=DoorRoute, dependencies=SECURED)

NO_REASON: Final = ReasonRequest()

_READ: Final = documented(401, 403, 404, 422, 503)
_CHANGE: Final = documented(400, 401, 403, 404, 409, 413, 415, 422, 503)


@router.post("/definitions/{definition_id}/runs", status_code=201, responses=_CHANGE)
async def start_run(
    definition_id: str,
    body: StartRunRequest,
    caller: Caller,
    door: TheDoor,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> RunChanged:
    """Start a run of the active version. For holders of a manual trigger's role who are members of the project."""
    run_id, command_id = mint(), None
    if idempotency_key is not None:
        key = f"idempotency:{caller.id}:{idempotency_key}"
        run_id = ids.triggered_run(caller.tenant_group, definition_id, key)
        command_id = ids.derive("command", run_id, "start")
    command = StartRun(
        **await door.opening(caller, command_id=command_id),
        run_id=run_id,
        definition_id=definition_id,
        context=body.context,
        project_id=body.project_id,
    )
    changed = _shown(await door.ask(command, Changed))
    response.headers["location"] = f"{PREFIX}/runs/{changed.run_id}"
    return changed


@router.get("/runs", responses=documented(401, 403, 422, 503))
async def list_runs(
    caller: Caller,
    door: TheDoor,
    definition: Annotated[Text | None, Query(description="id of the definition")] = None,
    state: Annotated[list[RunState] | None, Query(description="one or more states")] = None,
    project: Annotated[Text | None, Query(description="key of the project")] = None,
    initiated_by: Annotated[UUID | None, Query(description="id of the user or key that started it")] = None,
    created_from: Annotated[Moment | None, Query(description="at or after")] = None,
    created_before: Annotated[Moment | None, Query(description="before, and not at")] = None,
    limit: Limit = PAGE_LIMIT,
    cursor: Cursor = None,
) -> Page[RunSummary]:
    """Runs that the caller may see, newest first."""
    wanted = RunFilter(
        definition_id=definition,
        states=state,
        project_id=project,
        initiated_by=initiated_by,
        created_from=created_from,
        created_before=created_before,
    )
    return await door.queries.runs(caller, wanted, limit=limit, cursor=cursor)


@router.get("/runs/{run_id}", responses=_READ)
async def get_run(run_id: UUID, caller: Caller, door: TheDoor) -> RunView:
    """A run with its steps, what it waits for, its effects and its cost."""
    await door.queries.require_run(caller, run_id)
    return await door.views.run(caller, run_id)


@router.get("/runs/{run_id}/history", responses=_READ)
async def get_history(
    run_id: UUID, caller: Caller, door: TheDoor, limit: Limit = PAGE_LIMIT, cursor: Cursor = None
) -> Page[HistoryEntry]:
    """Every fact of a run and of its attempts, decisions and effects, in the order of the record."""
    await door.queries.require_run(caller, run_id)
    return await door.views.history(caller, run_id, limit=limit, cursor=cursor)


@router.get("/runs/{run_id}/artifacts/{step}", responses=_READ)
async def get_artifact(run_id: UUID, step: str, caller: Caller, door: TheDoor) -> ArtifactView:
    """What a step handed off: as it was proposed, and as it was approved."""
    await door.queries.require_run(caller, run_id)
    return await door.views.artifact(caller, run_id, step)


@router.post("/runs/{run_id}/cancel", responses=_CHANGE)
async def cancel_run(run_id: UUID, caller: Caller, door: TheDoor, body: ReasonRequest = NO_REASON) -> RunChanged:
    """End a run. Open steps are cancelled, and nothing is written any more."""
    return await _change(door, caller, CancelRun, run_id, body)


@router.post("/runs/{run_id}/suspend", responses=_CHANGE)
async def suspend_run(run_id: UUID, caller: Caller, door: TheDoor, body: ReasonRequest = NO_REASON) -> RunChanged:
    """Stop a run from being planned until it is resumed."""
    return await _change(door, caller, SuspendRun, run_id, body)


@router.post("/runs/{run_id}/resume", responses=_CHANGE)
async def resume_run(run_id: UUID, caller: Caller, door: TheDoor) -> RunChanged:
    """Plan a suspended run on from where it stands. Repeats nothing."""
    await door.queries.require_run(caller, run_id)
    return _shown(await door.ask(ResumeRun(**await door.opening(caller), run_id=run_id), Changed))


@router.post("/runs/{run_id}/steps/{step}/retry", responses=_CHANGE)
async def retry_step(run_id: UUID, step: str, caller: Caller, door: TheDoor) -> RunChanged:
    """Try a failed step of a suspended or failed run once more."""
    await door.queries.require_run(caller, run_id)
    return _shown(await door.ask(RetryStep(**await door.opening(caller), run_id=run_id, step=step), Changed))


async def _change(
    door: Door, caller: Principal, kind: type[CancelRun | SuspendRun], run_id: UUID, body: ReasonRequest
) -> RunChanged:
    await door.queries.require_run(caller, run_id)
    reason = {} if body.reason is None else {"reason": body.reason}
    return _shown(await door.ask(kind(**await door.opening(caller), run_id=run_id, **reason), Changed))


def _shown(changed: Changed) -> RunChanged:
    return RunChanged(run_id=changed.run_id, state=changed.state, version=changed.version)
