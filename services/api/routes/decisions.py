"""Decisions: the inbox, and the one answer."""

from typing import Final
from uuid import UUID

from fastapi import APIRouter

from contracts.commands import AnswerDecision, ReassignDecision
from contracts.replies import DecisionAccepted as Accepted
from contracts.replies import DecisionChanged
from minutebook.models import (
    DecideRequest,
    DecisionAccepted,
    DecisionView,
    InboxItem,
    Page,
    ReassignRequest,
    TaskItem,
)
from minutebook.models.states import DecisionOutcome
from services.api import cursors
from services.api.door import PREFIX, SECURED, Caller, DoorRoute, TheDoor, command_id_of, require_administrator
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
        decisions = await door.decisions.summaries(caller, [one.stream_id for one in scanned])
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
    return await door.decisions.one(caller, decision_id)


@router.post("/decisions/{decision_id}/reassign", responses=documented(400, 401, 403, 404, 409, 413, 415, 422, 503))
async def reassign(
    decision_id: UUID,
    body: ReassignRequest,
    caller: Caller,
    door: TheDoor,
    idempotency_key: IdempotencyKey = None,
) -> DecisionView:
    """Let a person answer in the place of another, or beside those who may. For administrators."""
    await door.queries.require_decision(caller, decision_id)
    require_administrator(caller, "decision.not_yours", "a decision is reassigned")
    from_user = body.from_user and await door.delegations.user(caller, body.from_user, active=False)
    command = ReassignDecision(
        **await door.opening(caller, command_id=command_id_of(caller, idempotency_key, decision_id, "reassign")),
        decision_id=decision_id,
        from_user=from_user.id if from_user else None,
        to_user=await door.delegations.user(caller, body.to_user),
        reason=body.reason,
    )
    await door.ask(command, DecisionChanged)
    return await door.decisions.one(caller, decision_id)


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
    """Answer a decision, once; where a quorum is asked for, vote. The answer is the caller's own, or given for somebody
    who lets the caller decide in their place, whatever the body says.
    """
    await door.queries.require_decision(caller, decision_id)
    command = AnswerDecision(
        **await door.opening(caller, command_id=command_id_of(caller, idempotency_key, decision_id, outcome)),
        decision_id=decision_id,
        outcome=outcome,
        comment=body.comment,
        revised_artifact=body.revised_artifact,
        answer=body.answer,
        shown=body.shown,
    )
    accepted = await door.ask(command, Accepted)
    return DecisionAccepted(
        decision_id=accepted.decision_id,
        run_id=accepted.run_id,
        outcome=accepted.outcome,
        revised=accepted.revised,
        state=accepted.state,
        approvals=accepted.approvals,
        needed=accepted.needed,
    )
