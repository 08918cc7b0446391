"""Decisions: the inbox, and the one answer."""

from typing import Final
from uuid import UUID

from fastapi import APIRouter

from contracts.commands import AnswerDecision
from contracts.replies import DecisionAccepted as Accepted
from minutebook.models import DecideRequest, DecisionAccepted, DecisionView, InboxItem, Page, TaskItem
from minutebook.models.states import DecisionOutcome
from services.api import cursors
from services.api.door import PREFIX, SECURED, Caller, DoorRoute, TheDoor, command_id_of
from services.api.lean import lean
from services.api.parameters import PAGE_LIMIT, PAGE_LIMIT_MAX, Cursor, IdempotencyKey, Limit
from services.api.problems import documented

router: Final = APIRouter(prefix=PREFIX, tags=["decisions"], route_class=DoorRoute, dependencies=SECURED)

SCANNED_MAX: Final = 1_000
"""Open decisions that one page of the inbox looks through: most may be for roles that the caller does not hold."""

NO_COMMENT: Final = DecideRequest()


@router.get("/inbox", responses=documented(401, 403, 422, 503))
async def get_inbox(caller: Caller, door: TheDoor, limit: Limit = PAGE_LIMIT, cursor: Cursor = None) -> Page[InboxItem]:
    """Open decisions that the caller may answer, the longest waiting first."""
    after = None
    if cursor is not None:
        opened_at, decision_id = cursors.decode(cursor, cursors.instant, UUID)
        after = (opened_at, decision_id)
    found: list[InboxItem] = []
    for _ in range(SCANNED_MAX // PAGE_LIMIT_MAX):
        scanned = await door.queries.open_decisions(caller, limit=PAGE_LIMIT_MAX, after=after)
        decisions = await door.views.decisions(caller, [one.stream_id for one in scanned])
        mine = [one for one in scanned if one.stream_id in decisions and decisions[one.stream_id].may_answer]
        runs = await door.queries.summaries(caller.tenant_group, {one.run_id for one in mine})
        for one in mine:
            if len(found) == limit:
                last = found[-1].decision
                return Page(items=tuple(found), next_cursor=cursors.encode(last.opened_at, last.decision_id))
            found.append(InboxItem(decision=decisions[one.stream_id], run=runs[one.run_id]))
        if len(scanned) < PAGE_LIMIT_MAX:
            return Page(items=tuple(found))
        after = (scanned[-1].opened_at, scanned[-1].stream_id)
    return Page(items=tuple(found), next_cursor=cursors.encode(*after) if after else None)


@router.get("/tasks", responses=documented(401, 403, 422, 503))
async def get_tasks(caller: Caller, door: TheDoor, limit: Limit = PAGE_LIMIT, cursor: Cursor = None) -> Page[TaskItem]:
    """Manual steps that the caller may complete, those of the oldest runs first. A page may hold less than there is."""
    after = cursors.decode(cursor, cursors.instant, UUID) if cursor is not None else None
    found: list[TaskItem] = []
    for _ in range(SCANNED_MAX // PAGE_LIMIT_MAX):
        scanned = await door.queries.runs_with_tasks(caller, limit=min(limit, PAGE_LIMIT_MAX), after=after)
        summaries = await door.queries.summaries(caller.tenant_group, [run_id for _, run_id in scanned])
        found += await door.views.tasks(caller, {run_id: summaries[run_id] for _, run_id in scanned})
        if len(scanned) < limit:
            return Page(items=tuple(found))
        after = scanned[-1]
        if found:
            break
    return Page(items=tuple(found), next_cursor=cursors.encode(*after) if after else None)


@router.get("/decisions/{decision_id}", responses=documented(401, 403, 404, 422, 503))
async def get_decision(decision_id: UUID, caller: Caller, door: TheDoor) -> DecisionView:
    """A decision with the artefact that it is about, and the answer when there is one."""
    await door.queries.require_decision(caller, decision_id)
    return await door.views.decision(caller, decision_id)


@router.post("/decisions/{decision_id}/{outcome}", responses=documented(400, 401, 403, 404, 409, 413, 415, 422, 503))
@lean
async def decide(
    decision_id: UUID,
    outcome: DecisionOutcome,
    caller: Caller,
    door: TheDoor,
    body: DecideRequest = NO_COMMENT,
    idempotency_key: IdempotencyKey = None,
) -> DecisionAccepted:
    """Answer a decision, once. For holders of its role; the answer is the caller's own, whatever the body says."""
    await door.queries.require_decision(caller, decision_id)
    command = AnswerDecision(
        **await door.opening(caller, command_id=command_id_of(caller, idempotency_key, decision_id, outcome)),
        decision_id=decision_id,
        outcome=outcome,
        comment=body.comment,
        revised_artifact=body.revised_artifact,
    )
    accepted = await door.ask(command, Accepted)
    return DecisionAccepted(
        decision_id=accepted.decision_id,
        run_id=accepted.run_id,
        outcome=accepted.outcome,
        revised=accepted.revised,
    )
