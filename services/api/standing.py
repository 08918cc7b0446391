"""What a run waits for: read off its state, with the decisions, the waits and the concurrency key that it names."""

from collections.abc import Mapping
from uuid import UUID

from contracts.base import Principal
from libs.domain import admission, decision, run, wait
from libs.domain.lifecycle import RUN_OPEN
from libs.domain.run.operating import may_complete
from minutebook.models import (
    WaitingFor,
    WaitingForDecision,
    WaitingForEvent,
    WaitingForPerson,
    WaitingForTime,
    WaitingForTurn,
)


def waiting_for(
    caller: Principal,
    run_id: UUID,
    state: run.State,
    children: Mapping[UUID, decision.State | wait.State],
    key: admission.State | None,
) -> tuple[WaitingFor, ...]:
    """Everything that an open run waits for, in the order in which its steps were reached."""
    if state.status not in RUN_OPEN:
        return ()
    if state.held and state.admission is not None:
        return (_turn(run_id, state, key),)
    found = [_of_step(caller, state, step, record, children) for step, record in state.steps.items()]
    return tuple(waiting for waiting in found if waiting is not None)


def _of_step(
    caller: Principal,
    state: run.State,
    step: str,
    record: run.StepRecord,
    children: Mapping[UUID, decision.State | wait.State],
) -> WaitingFor | None:
    """What a step waits for; None where it works, or its answer is there already."""
    child = children.get(record.open_id) if record.open_id is not None else None
    match record.status:
        case "delayed" | "retrying" if record.not_before is not None:
            return WaitingForTime(step=step, until=record.not_before)
        case "waiting" if isinstance(child, decision.State) and record.open_id is not None:
            return _decision(caller, record.open_id, child)
        case "waiting" if isinstance(child, wait.State) and record.open_id is not None and record.since is not None:
            return WaitingForEvent(
                step=step,
                wait_id=record.open_id,
                source=child.source,
                match=child.match,
                opened_at=record.since,
                until=record.until,
            )
        case "waiting" if record.waits_on == "manual" and record.since is not None:
            return WaitingForPerson(
                step=step,
                role=record.role,
                opened_at=record.since,
                until=record.until,
                may_complete=may_complete(caller, state, record),
            )
        case _:
            return None


def _decision(caller: Principal, decision_id: UUID, state: decision.State) -> WaitingForDecision | None:
    if state.status != "open" or state.opened_at is None:
        return None
    count = decision.tally(state)
    return WaitingForDecision(
        step=state.step,
        decision_id=decision_id,
        title=state.title,
        role=state.role,
        outcomes=state.outcomes,
        opened_at=state.opened_at,
        due_at=state.due_at,
        until=state.until,
        question=state.question,
        approvals=count.approvals,
        needed=count.needed,
        escalation=state.kind == "escalation",
        may_answer=decision.may_answer(caller, state),
    )


def _turn(run_id: UUID, state: run.State, key: admission.State | None) -> WaitingForTurn:
    assert state.admission is not None, "a held run has asked for its turn"
    place = key.place(run_id) if key is not None else None
    return WaitingForTurn(
        key=state.admission.key,
        limit=state.admission.limit,
        held_by=key.holders if key is not None else (),
        ahead=0 if place is None else place - 1,
    )
