"""Runs: starting and reading them."""

import asyncio
from typing import Annotated, Any, Final, cast
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from contracts import ids
from contracts.base import Principal
from contracts.commands import RunToStart, StartRun, StartRuns
from contracts.errors import Rejected
from contracts.replies import RunChanged as Changed
from contracts.replies import RunsStarted as Started
from libs.ids import mint
from minutebook.models import (
    ArtifactView,
    HistoryEntry,
    Page,
    RunChanged,
    RunsStarted,
    RunStarted,
    RunSummary,
    RunView,
    StartRunRequest,
    StartRunsRequest,
)
from minutebook.models.problem import ProblemItem
from minutebook.models.states import RunState
from services.api.door import PREFIX, SECURED, Caller, DoorRoute, TheDoor
from services.api.lean import lean
from services.api.parameters import PAGE_LIMIT, Cursor, IdempotencyKey, Limit, Moment, Text, Wait
from services.api.problems import documented
from services.api.run_lists import CONTEXT_VALUES_MAX, RunFilter

router: Final = APIRouter(prefix=PREFIX, tags=["runs"], route_class=DoorRoute, dependencies=SECURED)

_READ: Final = documented(401, 403, 404, 422, 503)
_START: Final = documented(400, 401, 403, 404, 409, 413, 415, 422, 429, 503)


@router.post("/definitions/{definition_id}/runs", status_code=201, responses=_START)
@lean
async def start_run(
    definition_id: str,
    body: StartRunRequest,
    caller: Caller,
    door: TheDoor,
    response: Response,
    idempotency_key: IdempotencyKey = None,
    wait: Wait = 0.0,
) -> RunChanged:
    """Start a run of the active version. For holders of a manual trigger's role who are members of the project.

    With `wait` the answer comes once the run has come to rest, or when that time is over; it says how the run stands.
    """
    run_id = _run_id(caller, definition_id, idempotency_key)
    command = StartRun(
        **await door.opening(caller, command_id=None if idempotency_key is None else _command_id(run_id)),
        run_id=run_id,
        definition_id=definition_id,
        context=body.context,
        project_id=body.project_id,
        variant=body.variant,
    )
    with door.waiting.watch(run_id) as watch:
        changed = shown(await door.ask(command, Changed))
        if wait:
            standing = await door.waiting.until_settled(watch, wait, state=changed.state)
            changed = RunChanged(run_id=run_id, state=cast(RunState, standing.state), version=standing.version)
    response.headers["location"] = f"{PREFIX}/runs/{changed.run_id}"
    return changed


@router.post("/definitions/{definition_id}/runs:batch", responses=_START)
@lean
async def start_runs(definition_id: str, body: StartRunsRequest, caller: Caller, door: TheDoor) -> RunsStarted:
    """Start many runs of the active version. Each is started or refused by itself; the answers are in their order.

    When the reply was lost, send the same request again: items with an idempotency key start no second run.
    """
    command = StartRuns(
        **await door.opening(caller),
        definition_id=definition_id,
        runs=tuple(
            RunToStart(
                run_id=_run_id(caller, definition_id, item.idempotency_key),
                context=item.context,
                project_id=item.project_id,
                variant=item.variant,
            )
            for item in body.items
        ),
    )
    started = await door.ask(command, Started)
    return RunsStarted(
        items=tuple(
            RunStarted(run=shown(reply.result) if reply.result else None, problem=reply.problem)
            for reply in started.runs
        )
    )


CONTEXT: Final = "context."
_CONTEXT_PARAMETERS: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "context",
            "in": "query",
            "description": "values of the context, as `context.jira_key=CORE-142`: runs that have all of them",
            "style": "form",
            "explode": True,
            "schema": {
                "type": "object",
                "patternProperties": {r"^context\..+$": {"type": "string"}},
                "additionalProperties": False,
                "maxProperties": CONTEXT_VALUES_MAX,
                "examples": [{"context.jira_key": "CORE-142"}],
            },
        }
    ]
}


@router.get("/runs", responses=documented(401, 403, 422, 503), openapi_extra=_CONTEXT_PARAMETERS)
async def list_runs(
    request: Request,
    caller: Caller,
    door: TheDoor,
    definition: Annotated[Text | None, Query(description="id of the definition")] = None,
    state: Annotated[list[RunState] | None, Query(description="one or more states")] = None,
    project: Annotated[Text | None, Query(description="key of the project")] = None,
    initiated_by: Annotated[UUID | None, Query(description="id of the user or key that started it")] = None,
    parent: Annotated[UUID | None, Query(description="the run that they restart or were forked from")] = None,
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
        parent=parent,
        created_from=created_from,
        created_before=created_before,
        context=_context(request),
    )
    return await door.queries.runs(caller, wanted, limit=limit, cursor=cursor)


@router.get("/runs/{run_id}", responses=_READ)
@lean
async def get_run(run_id: UUID, caller: Caller, door: TheDoor, wait: Wait = 0.0) -> RunView:
    """A run with its steps, what it waits for, its effects and its cost.

    With `wait` it is read once it has come to rest, or when that time is over.
    """
    await door.queries.require_run(caller, run_id)
    if wait:
        with door.waiting.watch(run_id) as watch:
            await door.waiting.until_settled(watch, wait)
    view, forks = await asyncio.gather(door.views.run(caller, run_id), door.queries.children(caller, run_id))
    return view.model_copy(update={"forks": forks})


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


def _context(request: Request) -> dict[str, str]:
    """The parameters that name values of the context.

    Raises:
        contracts.errors.Rejected: 422, too many, one twice, or one that no text of the record is like.
    """
    given = [
        (name.removeprefix(CONTEXT), value)
        for name, value in request.query_params.multi_items()
        if name.startswith(CONTEXT)
    ]
    values = dict(given)
    if len(values) != len(given) or len(values) > CONTEXT_VALUES_MAX or any("\x00" in k + v for k, v in given):
        item = ProblemItem(path="query.context", message=f"at most {CONTEXT_VALUES_MAX} values, each key once, no NUL")
        raise Rejected("request.invalid", f"the request is not acceptable: {item.message}", errors=(item,))
    return values


def _run_id(caller: Principal, definition_id: str, idempotency_key: str | None) -> UUID:
    """A new id, or the one that the caller's key stands for."""
    if idempotency_key is None:
        return mint()
    return ids.triggered_run(caller.tenant_group, definition_id, f"idempotency:{caller.id}:{idempotency_key}")


def _command_id(run_id: UUID) -> UUID:
    """The same start sent again is the same command."""
    return ids.derive("command", run_id, "start")


def shown(changed: Changed) -> RunChanged:
    """An owner's reply as the API answers it."""
    return RunChanged(run_id=changed.run_id, state=changed.state, version=changed.version)


BUSIEST: Final = tuple(
    route for route in router.routes if isinstance(route, DoorRoute) and route.endpoint in {start_run, start_runs}
)
"""Starts, which are answered at the edge."""
