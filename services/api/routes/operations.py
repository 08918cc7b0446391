"""What people do to runs: stop them, let them go on, complete their steps, and begin anew from them."""

from typing import Final
from uuid import UUID

from fastapi import APIRouter, Response

from contracts import ids
from contracts.base import Principal
from contracts.commands import CancelRun, CompleteStep, ForkRun, RestartRun, ResumeRun, RetryStep, SuspendRun
from contracts.replies import RunChanged as Changed
from libs.ids import mint
from minutebook.models import (
    BulkRequest,
    BulkResult,
    CompleteStepRequest,
    ForkRequest,
    ReasonRequest,
    RunChanged,
)
from services.api.bulk import bulk
from services.api.definition_views import named_version
from services.api.door import PREFIX, SECURED, Caller, Door, DoorRoute, TheDoor, command_id_of
from services.api.parameters import IdempotencyKey
from services.api.problems import documented
from services.api.routes.runs import shown

router: Final = APIRouter(prefix=PREFIX, tags=["runs"], route_class=DoorRoute, dependencies=SECURED)

NO_REASON: Final = ReasonRequest()
THE_PRESENT: Final = ForkRequest()

_CHANGE: Final = documented(400, 401, 403, 404, 409, 413, 415, 422, 503)


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
    return shown(await door.ask(ResumeRun(**await door.opening(caller), run_id=run_id), Changed))


@router.post("/runs/{run_id}/steps/{step}/retry", responses=_CHANGE)
async def retry_step(run_id: UUID, step: str, caller: Caller, door: TheDoor) -> RunChanged:
    """Try a failed step of a suspended or failed run once more."""
    await door.queries.require_run(caller, run_id)
    return shown(await door.ask(RetryStep(**await door.opening(caller), run_id=run_id, step=step), Changed))


@router.post("/runs/{run_id}/steps/{step}/complete", responses=_CHANGE)
async def complete_step(
    run_id: UUID,
    step: str,
    body: CompleteStepRequest,
    caller: Caller,
    door: TheDoor,
    idempotency_key: IdempotencyKey = None,
) -> RunChanged:
    """Complete a manual step with an artefact. For holders of its role; without one for the run's initiator."""
    await door.queries.require_run(caller, run_id)
    command = CompleteStep(
        **await door.opening(caller, command_id=command_id_of(caller, idempotency_key, run_id, step, "complete")),
        run_id=run_id,
        step=step,
        artifact=body.artifact,
        comment=body.comment,
    )
    return shown(await door.ask(command, Changed))


@router.post("/runs/{run_id}/restart", status_code=201, responses=_CHANGE)
async def restart_run(
    run_id: UUID, caller: Caller, door: TheDoor, response: Response, idempotency_key: IdempotencyKey = None
) -> RunChanged:
    """Start a new run with the context of this one, of the version that new runs take now. Answers the new run."""
    await door.queries.require_run(caller, run_id)
    new_run_id = _new_run_id(caller, run_id, "restart", idempotency_key)
    command = RestartRun(
        **await door.opening(caller, command_id=command_id_of(caller, idempotency_key, run_id, "restart")),
        run_id=run_id,
        new_run_id=new_run_id,
    )
    return _born(await door.ask(command, Changed), response)


@router.post("/runs/{run_id}/fork", status_code=201, responses=_CHANGE)
async def fork_run(
    run_id: UUID,
    caller: Caller,
    door: TheDoor,
    response: Response,
    body: ForkRequest = THE_PRESENT,
    idempotency_key: IdempotencyKey = None,
) -> RunChanged:
    """Start a new run from a point of this one's history. Answers the new run.

    Steps that were finished there are taken over with their artefacts, and so is what they wrote to the outside.
    """
    await door.queries.require_run(caller, run_id)
    command = ForkRun(
        **await door.opening(caller, command_id=command_id_of(caller, idempotency_key, run_id, "fork")),
        run_id=run_id,
        new_run_id=_new_run_id(caller, run_id, "fork", idempotency_key),
        at_version=body.at_version,
        from_step=body.from_step,
        context=body.context,
        artifacts=body.artifacts,
        hash=None if body.hash is None else await _hash_of(door, caller, run_id, body.hash),
    )
    return _born(await door.ask(command, Changed), response)


@router.post("/runs:bulk", responses=documented(400, 401, 403, 409, 413, 415, 422, 503))
async def change_runs(body: BulkRequest, caller: Caller, door: TheDoor) -> BulkResult:
    """Retry or cancel the runs that a filter takes, each by itself and each with its own fact.

    Without `confirm` nothing is done: the answer says how many there are. With another count than there are now it is
    refused as `bulk.count_changed`.
    """
    return await bulk(door, caller, body)


async def _change(
    door: Door, caller: Principal, kind: type[CancelRun | SuspendRun], run_id: UUID, body: ReasonRequest
) -> RunChanged:
    await door.queries.require_run(caller, run_id)
    reason = {} if body.reason is None else {"reason": body.reason}
    return shown(await door.ask(kind(**await door.opening(caller), run_id=run_id, **reason), Changed))


async def _hash_of(door: Door, caller: Principal, run_id: UUID, text: str) -> str:
    """The whole hash of the version of the run's definition that was named by its beginning."""
    [run] = (await door.queries.summaries(caller.tenant_group, [run_id])).values()
    return named_version(await door.definitions.versions(caller, run.definition_id), text).hash


def _new_run_id(caller: Principal, run_id: UUID, act: str, idempotency_key: str | None) -> UUID:
    """A new id, or the one that the caller's key stands for."""
    if idempotency_key is None:
        return mint()
    return ids.derive("run", caller.tenant_group, run_id, act, caller.id, idempotency_key)


def _born(changed: Changed, response: Response) -> RunChanged:
    response.headers["location"] = f"{PREFIX}/runs/{changed.run_id}"
    return shown(changed)
